"""A run folder -> plain data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import StoreError
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import label, megabits_per_client
from pacfl.report.facts import NEWCOMERS, Array, Clients, Counts, Grouped, Judgement, Played
from pacfl.subspace import MergeSuggestion
from pacfl.subspace.newcomers import place

Record = Mapping[str, Any]


def read(folder: RunFolder) -> Played:
    """One finished run."""
    result, settings, records = folder.result(), folder.content(), folder.records()
    if result is None or settings is None or not records:
        raise StoreError(f"{folder.path}: has no finished run in it")
    n = int(settings["data"]["clients"])
    rounds = int(settings["schedule"]["rounds"])
    last = {protocol: by for record in records for protocol, by in _protocols(record, rounds).items()}
    return Played(
        hash=result["hash"],
        seed=settings["seed"],
        algorithm=label(settings["algorithm"]),
        settings=settings,
        judgements=tuple(_judgements(records, rounds)),
        accuracy={protocol: _array({c: s[0] for c, s in by["by_client"].items()}, n) for protocol, by in last.items()},
        worst_tenth={protocol: by["accuracy"]["worst_tenth"] for protocol, by in last.items()},
        clusters=result["clusters"],
        ari=result["ari"],
        cluster_of=_array(records[-1]["cluster_of"], n, -1).astype(np.int64),
        bytes_down=result["bytes_down"],
        bytes_up=result["bytes_up"],
        megabits=megabits_per_client(records),
        seconds=result["seconds"],
        clients=_clients(folder, n),
        grouped=_grouped(folder, {int(c) for c in records[0]["cluster_of"]}),
    )


def _protocols(record: Record, rounds: int) -> dict[str, dict[str, Any]]:
    """Scores of a record by protocol; those of newcomers, who are judged apart, under names of their own."""
    apart = record["round"] > rounds + 1
    return {
        (NEWCOMERS if apart else "") + protocol: {
            word: record[word][protocol] for word in ("by_client", "accuracy", "loss")
        }
        for protocol in record.get("by_client", {})
        if not (apart and protocol == "last_trained")  # newcomers have trained nothing yet
    }


def _judgements(records: Sequence[Record], rounds: int) -> list[Judgement]:
    """One for each number of rounds: the last one is often judged again at the end, by more protocols."""
    found: dict[int, Judgement] = {}
    for i, record in enumerate(records):
        scores = _protocols(record, rounds)
        if not scores:
            continue
        t = min(record["round"], rounds)
        before = found.get(t) or Judgement(t, megabits_per_client(records[: i + 1]), record["clusters"], {}, {})
        found[t] = replace(
            before,
            accuracy={**before.accuracy, **{protocol: by["accuracy"]["mean"] for protocol, by in scores.items()}},
            loss={**before.loss, **{protocol: by["loss"]["mean"] for protocol, by in scores.items()}},
        )
    return list(found.values())


def _array(by_client: Mapping[str, float], n: int, missing: float = np.nan) -> Array:
    array = np.full(n, missing)
    array[[int(c) for c in by_client]] = list(by_client.values())
    return array


def _described(folder: RunFolder, name: str) -> dict[str, Any] | None:
    path = folder.path / f"{name}.json"
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise StoreError(f"{path}: is damaged; run the experiment again") from None
    return told


def _clients(folder: RunFolder, n: int) -> Clients:
    """What is told of clients; runs of before this was kept tell nothing but how many there are."""
    told = _described(folder, "clients")
    names = tuple(f"client {c}" for c in range(n))
    if told is None:
        return Clients.named(names)
    entries = told["clients"]
    return Clients(
        names=tuple(str(entry.get("name", name)) for entry, name in zip(entries, names, strict=True)),
        train=np.array([entry["train"] for entry in entries], dtype=np.int64),
        labels=np.array([entry["labels"] for entry in entries], dtype=np.int64),
        groups=tuple(_group(entry, len(told["sets"])) for entry in entries),
    )


def _group(entry: Mapping[str, Any], n_sets: int) -> str | None:
    if entry["true_cluster"] is None:
        return None
    return str(entry["set"]) if entry["set"] is not None and n_sets > 1 else f"group {entry['true_cluster']}"


def _grouped(folder: RunFolder, founders: set[int]) -> Grouped | None:
    told = _described(folder, "clustering")
    if told is None:
        return None
    with np.load(folder.path / "clustering.npz", allow_pickle=False) as file:
        arrays = dict(file)
    if len(arrays["merges"]) == 0:  # one client alone is in no group
        return None
    clients = arrays["clients"]
    newcomers = tuple(int(c) for c in clients if int(c) not in founders)
    return Grouped(
        clients=clients,
        labels=arrays["labels"],
        **{name: arrays[name] for name in ("proximity", "distances", "merges")},
        **{word: told[word] for word in ("measure", "linkage", "threshold", "reference_scale", "evidence")},
        newcomers=newcomers,
        bridges=_bridges(clients, arrays, told, newcomers),
    )


def _bridges(
    clients: Counts, arrays: Mapping[str, NDArray[Any]], told: Mapping[str, Any], newcomers: tuple[int, ...]
) -> tuple[MergeSuggestion, ...]:
    """Which newcomers stood between two clusters when they came: found again by the same rule."""
    if not newcomers or told["linkage"] == "ward":  # which has no distance of one client from a cluster
        return ()
    late = np.isin(clients, newcomers)
    order = np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])
    square = arrays["distances"][np.ix_(order, order)]
    placed = place(square, arrays["labels"][~late], told["threshold"], told["linkage"])
    came = clients[late]
    return tuple(replace(bridge, newcomer=int(came[bridge.newcomer])) for bridge in placed.merge_suggestions)
