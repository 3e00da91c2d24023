"""A run folder -> plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pacfl.errors import StoreError
from pacfl.experiment.compare import below_local, local_baseline, n_rounds
from pacfl.experiment.description import load_clustering
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import label, megabits_per_client, metric_of, scores
from pacfl.experiment.tested_on import on_test
from pacfl.report.summary import NEWCOMERS, ON_TEST, Array, ClientClustering, Clients, Evaluation, RunSummary
from pacfl.subspace import MergeSuggestion
from pacfl.subspace.compared import compared
from pacfl.subspace.newcomers import place

Record = Mapping[str, Any]


def read(folder: RunFolder, solo: Sequence[RunFolder] = ()) -> RunSummary:
    """One finished run; solo: the runs among which its local baseline is looked for."""
    result, settings, records = folder.result(), folder.content(), folder.records()
    if result is None or settings is None or not records:
        raise StoreError(f"{folder.path}: has no finished run in it; 'pacfl run' resumes it")
    n = int(settings["data"]["clients"])
    rounds = n_rounds(folder)
    last = {p: by for i, record in enumerate(records) for p, by in _scores(record, newcomers=i > rounds).items()}
    clustered = settings["algorithm"]["name"] != "solo"  # where every client has a model of its own
    return RunSummary(
        hash=result["hash"],
        seed=settings["seed"],
        algorithm=label(settings["algorithm"], settings.get("aggregation", {})),
        settings=settings,
        evaluations=tuple(_evaluations(records, rounds)),
        metric=metric_of(result),
        scores={protocol: _array({c: s[0] for c, s in by["by_client"].items()}, n) for protocol, by in last.items()},
        metrics={
            name: {protocol: by["means"][name] for protocol, by in last.items() if name in by["means"]}
            for name in result.get("metrics", {})
        },
        worst_tenth={protocol: by["worst_tenth"] for protocol, by in last.items()},
        below_local=_below_local(folder, records, rounds, solo),
        clusters=result["clusters"] if clustered else None,
        ari=result["ari"] if clustered else None,
        cluster_of=_array(records[-1]["cluster_of"], n, -1).astype(np.int64),
        bytes_down=result["bytes_down"],
        bytes_up=result["bytes_up"],
        megabits=megabits_per_client(records),
        seconds=result["seconds"],
        clients=_clients(folder, n),
        clustering=_clustering(folder, {int(c) for c in records[0]["cluster_of"]}),
    )


def _scores(record: Record, newcomers: bool) -> dict[str, dict[str, Any]]:
    """Scores of a record by protocol.

    Those of newcomers, evaluated separately, and those on other test samples are under names of their own.
    """
    own = _of_kind(record, _prefix(None, newcomers), newcomers)
    for kind in record.get("tests", {}):
        own |= _of_kind(on_test(record, kind), _prefix(kind, newcomers), newcomers)
    return own


def _prefix(kind: str | None, newcomers: bool) -> str:
    return ("" if kind is None else kind + ON_TEST) + (NEWCOMERS if newcomers else "")


def _of_kind(record: Record, prefix: str, newcomers: bool) -> dict[str, dict[str, Any]]:
    return {
        prefix + protocol: {
            "by_client": record["by_client"][protocol],
            "worst_tenth": scores(record)[protocol]["worst_tenth"],
            "means": _means(record, protocol),
        }
        for protocol in record.get("by_client", {})
        if not (newcomers and protocol == "last_trained")  # newcomers have trained nothing yet
    }


def _means(record: Record, protocol: str) -> dict[str, float]:
    """Of the primary metric, of the others that are defined for some client, and of the loss."""
    others = {name: by[protocol]["mean"] for name, by in record.get("metrics", {}).items()}
    named = {metric_of(record): scores(record)[protocol]["mean"], **others, "loss": record["loss"][protocol]["mean"]}
    return {name: mean for name, mean in named.items() if mean is not None}


def _evaluations(records: Sequence[Record], rounds: int) -> list[Evaluation]:
    """One for each number of rounds: the last round is often evaluated again at the end, by more protocols."""
    found: dict[int, Evaluation] = {}
    for i, record in enumerate(records):
        new = {protocol: by["means"] for protocol, by in _scores(record, newcomers=i > rounds).items()}
        if not new:
            continue
        t = min(i + 1, rounds)
        before = found.get(t) or Evaluation(t, megabits_per_client(records[: i + 1]), {})
        names = dict.fromkeys((*before.means, *(name for means in new.values() for name in means)))
        means = {
            name: {**before.means.get(name, {}), **{p: own[name] for p, own in new.items() if name in own}}
            for name in names
        }
        found[t] = replace(before, means=means)
    return list(found.values())


def _below_local(
    folder: RunFolder, records: Sequence[Record], rounds: int, solo: Sequence[RunFolder]
) -> dict[str, float]:
    """The share of clients below the local baseline, by protocol, as `pacfl show` computes it."""
    baseline = local_baseline(folder, solo)
    if baseline is None or baseline.path.resolve() == folder.path.resolve():
        return {}
    theirs = baseline.records()
    pairs = [(records[rounds], theirs[n_rounds(baseline)], False)]
    if len(records) > rounds + 1:
        pairs.append((records[-1], theirs[-1], True))
    shares = {
        _prefix(kind, newcomers) + protocol: share
        for own, base, newcomers in pairs
        for kind in (None, *own.get("tests", {}))
        for protocol, share in below_local(own, base, kind).items()
    }
    return {protocol: share for protocol, share in shares.items() if share is not None}


def _array(by_client: Mapping[str, float], n: int, missing: float = np.nan) -> Array:
    array = np.full(n, missing)
    array[[int(c) for c in by_client]] = list(by_client.values())
    return array


def _clients(folder: RunFolder, n: int) -> Clients:
    """The clients as described in the folder; without a description, only how many there are."""
    stored = folder.description("clients")
    names = tuple(f"client {c}" for c in range(n))
    if stored is None:
        return Clients.named(names)
    entries = stored["clients"]
    return Clients(
        names=tuple(str(entry.get("name", name)) for entry, name in zip(entries, names, strict=True)),
        train=np.array([entry["train"] for entry in entries], dtype=np.int64),
        labels=np.array([entry["labels"] for entry in entries], dtype=np.int64),
        true_cluster=tuple(_true_cluster(entry, len(stored["sets"])) for entry in entries),
    )


def _true_cluster(entry: Mapping[str, Any], n_sets: int) -> str | None:
    if entry["true_cluster"] is None:
        return None
    if "transform" in entry:
        return f"true cluster {entry['true_cluster']}: {entry['transform']}"
    return str(entry["set"]) if entry["set"] is not None and n_sets > 1 else f"true cluster {entry['true_cluster']}"


def _clustering(folder: RunFolder, founders: set[int]) -> ClientClustering | None:
    stored = load_clustering(folder)
    if stored is None or len(stored.clients) == 1:
        return None
    newcomers = tuple(int(c) for c in stored.clients if int(c) not in founders)
    shown = compared(stored.clustering, merges=stored.merges)
    found = ClientClustering(stored.clients, stored.clustering, shown, newcomers)
    return replace(found, merge_suggestions=_merge_suggestions(found))


def _merge_suggestions(found: ClientClustering) -> tuple[MergeSuggestion, ...]:
    """The merges that newcomers suggested when they joined, computed again by the same rule."""
    clustering = found.clustering
    if not found.newcomers:
        return ()
    late = np.isin(found.clients, found.newcomers)
    order = np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])
    square = clustering.distances()[np.ix_(order, order)]
    placed = place(square, clustering.labels[~late], clustering.threshold, clustering.linkage)
    joined = found.clients[late]
    return tuple(replace(merge, newcomer=int(joined[merge.newcomer])) for merge in placed.merge_suggestions)
