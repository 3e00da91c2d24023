"""The training of a federation of real sites, from the folder of its server -> plain data."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from pacfl.experiment.federations import ServerFederation
from pacfl.experiment.summary import label, megabits_per_client, trained
from pacfl.report.records import Record, array, outcome
from pacfl.report.summary import ClientClustering, Clients, RunSummary
from pacfl.subspace.compared import compared

AT_SITES: Final = ("data", "model")  # sections of settings that a server only has the defaults of


def read(found: ServerFederation) -> RunSummary | None:
    """What was trained so far; None before the first round."""
    records = found.records()
    if not records or not found.cluster_of:
        return None
    n = 1 + max(found.cluster_of)
    rounds = [max(t, 1) for t in accumulate(map(trained, records))]
    whole = _whole(records, rounds)
    finished = rounds[-1] >= found.planned and not records[-1]["sampled"]  # everybody is evaluated at the end
    last = outcome([records[i] for i in whole], [rounds[i] for i in whole], n, only_latest=True)
    return RunSummary(
        hash=found.id,
        seed=found.settings["seed"],
        algorithm=label(found.settings["algorithm"], found.settings.get("aggregation", {})),
        settings=_settings(found),
        evaluations=last.evaluations,
        metric=last.metric,
        scores={p: _latest(records[whole[-1] + 1 :], p, values) for p, values in last.scores.items()},
        metrics=last.metrics,
        worst_tenth=last.worst_tenth,
        below_local={},
        clusters=records[-1]["clusters"],
        ari=None,
        cluster_of=array({str(c): k for c, k in found.cluster_of.items()}, n, -1).astype(np.int64),
        bytes_down=sum(record["bytes_down"] for record in records),
        bytes_up=sum(record["bytes_up"] for record in records),
        megabits=megabits_per_client(records),
        seconds=records[-1]["at"] - records[0]["at"],
        clients=Clients.named(tuple(found.name(c) for c in range(n))),
        clustering=_clustering(found),
        unfinished=None if finished else (rounds[-1], found.planned),
        federation=found.folder.name,
    )


def _whole(records: Sequence[Record], rounds: Sequence[int]) -> list[int]:
    """Records but those in which models were delivered late: they have scores of few sites."""
    evaluated = [len(next(iter(record.get("by_client", {}).values()), {})) for record in records]
    return [
        i
        for i, record in enumerate(records)
        if record["sampled"]
        or evaluated[i] >= max((evaluated[j] for j in range(i) if rounds[j] == rounds[i]), default=0)
    ]


def _latest(late: Sequence[Record], protocol: str, values: Any) -> Any:
    """Scores with those of sites that were evaluated late."""
    scores = values.copy()
    for record in late:
        for client, (score, _) in record.get("by_client", {}).get(protocol, {}).items():
            scores[int(client)] = score
    return scores


def _settings(found: ServerFederation) -> dict[str, Any]:
    return {section: values for section, values in found.settings.items() if section not in AT_SITES}


def _clustering(found: ServerFederation) -> ClientClustering | None:
    stored = found.signatures
    if stored is None or len(stored.names) < 2:
        return None
    tables = [one.table for one in stored.descriptions]
    clients = np.array(list(found.state.bases), dtype=np.int64)
    return ClientClustering(clients, stored.clustering, compared(stored.clustering, tables))
