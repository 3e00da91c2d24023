"""A run folder -> plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pacfl.errors import StoreError
from pacfl.experiment.compare import below_local, local_baseline, n_rounds
from pacfl.experiment.description import load_clustering
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import label, megabits_per_client
from pacfl.report.records import Record, array, outcome, prefix
from pacfl.report.summary import ClientClustering, Clients, RunSummary
from pacfl.subspace import MergeSuggestion
from pacfl.subspace.compared import compared
from pacfl.subspace.newcomers import place


def read(folder: RunFolder, solo: Sequence[RunFolder] = ()) -> RunSummary:
    """A run, as far as it is; solo: the runs among which the local baseline of a finished one is looked for."""
    result, settings, records = folder.result(), folder.content(), folder.records()
    if settings is None or not records:
        raise StoreError(f"{folder.path}: has no round of a run in it; 'pacfl run' resumes it")
    n = int(settings["data"]["clients"])
    rounds = n_rounds(folder)
    ends = [min(i + 1, rounds) for i in range(len(records))]
    found = outcome(records, ends, n, late=rounds + 1, only_latest=result is None)
    clustered = settings["algorithm"]["name"] != "solo"  # where every client has a model of its own
    return RunSummary(
        hash=folder.path.name if result is None else result["hash"],
        seed=settings["seed"],
        algorithm=label(settings["algorithm"], settings.get("aggregation", {})),
        settings=settings,
        evaluations=found.evaluations,
        metric=found.metric,
        scores=found.scores,
        metrics=found.metrics,
        worst_tenth=found.worst_tenth,
        below_local={} if result is None else _below_local(folder, records, rounds, solo),
        clusters=records[-1]["clusters"] if clustered else None,
        ari=records[-1]["ari"] if clustered else None,
        cluster_of=array(records[-1]["cluster_of"], n, -1).astype(np.int64),
        bytes_down=sum(record["bytes_down"] for record in records),
        bytes_up=sum(record["bytes_up"] for record in records),
        megabits=megabits_per_client(records),
        seconds=None if result is None else result["seconds"],
        clients=_clients(folder, n),
        clustering=_clustering(folder, {int(c) for c in records[0]["cluster_of"]}),
        unfinished=(ends[-1], rounds) if result is None else None,
    )


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
        prefix(kind, newcomers) + protocol: share
        for own, base, newcomers in pairs
        for kind in (None, *own.get("tests", {}))
        for protocol, share in below_local(own, base, kind).items()
    }
    return {protocol: share for protocol, share in shares.items() if share is not None}


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
