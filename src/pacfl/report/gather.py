"""Folders of runs and of federations -> plain data. The page knows nothing of files."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.alike import federation
from pacfl.experiment.config import label
from pacfl.experiment.store import RunFolder, StoreError, all_folders
from pacfl.experiment.summary import megabits_per_client
from pacfl.subspace.hierarchy import dendrogram
from pacfl.subspace.newcomers import place

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Record = Mapping[str, Any]
NEWCOMERS = "newcomers, "  # begins the protocols by which clients are judged who came after the last round


@dataclass(frozen=True)
class Judgement:
    """What was known of a run after a round: means over clients, by protocol."""

    round: int  # how many were played
    megabits: float  # per client, until then
    clusters: int
    accuracy: Mapping[str, float]
    loss: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Clients:
    """Who takes part: one entry for each client."""

    names: tuple[str, ...]
    train: Counts  # (n,) samples
    labels: Counts  # (n, classes) samples of each class; (n, 0) where that is not known
    groups: tuple[str | None, ...]  # the true one, where it is known


@dataclass(frozen=True)
class Span:
    """A newcomer within the threshold of two clusters, and its distance from each in degrees."""

    client: int
    clusters: tuple[int, int]
    distances: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Grouped:
    """How clients were grouped by their angles. Rows are in the order of joining."""

    clients: Counts  # (n,) which client a row is
    proximity: Array  # (n, n) degrees, as measured
    distances: Array  # (n, n) what the threshold cuts
    merges: Array  # (n - 1, 4) dendrogram of the distances, in scipy's form
    labels: Counts  # (n,) the clusters that the run worked with
    measure: str
    linkage: str
    threshold: float
    unit: float | None  # degrees of typical noise, if distances are adjusted to it
    evidence: Mapping[str, Any]
    newcomers: tuple[int, ...] = ()  # clients
    bridges: tuple[Span, ...] = ()


@dataclass(frozen=True, eq=False)
class Played:
    """A finished run: one algorithm, one seed."""

    hash: str
    seed: int
    algorithm: str
    settings: Mapping[str, Any]  # of run.json
    judgements: tuple[Judgement, ...]
    accuracy: Mapping[str, Array]  # protocol: (n,) at the end; NaN for clients who were not judged by it
    worst_tenth: Mapping[str, float]
    clusters: int
    ari: float | None
    cluster_of: Counts  # (n,), -1 for clients who never came
    bytes_down: int
    bytes_up: int
    megabits: float
    seconds: float
    clients: Clients
    grouped: Grouped | None = None


@dataclass(frozen=True, eq=False)
class Alike:
    """Parties that exchanged signatures (`pacfl cluster`): who is alike, and nothing learnt."""

    name: str
    hash: str  # of all that the folder holds
    clients: Clients
    grouped: Grouped


@dataclass(frozen=True, eq=False)
class Gathered:
    """What a page is about."""

    runs: tuple[Played, ...]
    unfinished: Mapping[str, int] = field(default_factory=dict)  # hash: rounds so far
    federations: tuple[Alike, ...] = ()


def gather(words: Sequence[str], runs: Path) -> Gathered:
    """What is meant: run folders, folders of runs, (beginnings of) hashes of runs kept in `runs`, or federations."""
    folders: dict[Path, RunFolder] = {}
    federations: dict[Path, Alike] = {}
    for word in words:
        if (Path(word) / federation.STATE).exists():
            federations[Path(word).resolve()] = read_federation(Path(word))
        else:
            folders |= {folder.path.resolve(): folder for folder in _meant(word, runs)}
    finished, unfinished = [], {}
    for folder in folders.values():
        if folder.result() is None:
            unfinished[folder.path.name] = len(folder.records())
        else:
            finished.append(read(folder))
    if not finished and not federations:
        raise StoreError(f"none of the {len(unfinished)} runs in {', '.join(words)} is finished; 'pacfl run' goes on")
    return Gathered(tuple(finished), unfinished, tuple(federations.values()))


def _meant(word: str, runs: Path) -> list[RunFolder]:
    path = Path(word)
    if (path / "run.json").exists():
        return [RunFolder(path)]
    if path.is_dir():
        found = all_folders(path)
        if not found:
            raise StoreError(
                f"{path}: has no runs in it; give a run folder, a folder of them, hashes, or what 'pacfl cluster' made"
            )
        return found
    begin = [folder for folder in all_folders(runs) if folder.path.name.startswith(word)]
    if len(begin) != 1:
        raise StoreError(f"{word}: is no folder, and {len(begin)} runs in {runs} begin so; 'pacfl ls' lists them")
    return begin


def read_federation(folder: Path) -> Alike:
    """What `pacfl cluster` made."""
    found = federation.load(folder)
    group, n = found.grouping, len(found.names)
    if n < 2:
        raise StoreError(f"{folder}: has one client, which is in no group; let others join first")
    distances = group.distances()
    return Alike(
        name=folder.resolve().name,
        hash=hashlib.blake2b((folder / federation.STATE).read_bytes(), digest_size=8).hexdigest(),
        clients=_unknown(found.names),
        grouped=Grouped(
            clients=np.arange(n),
            proximity=group.proximity,
            distances=distances,
            merges=dendrogram(distances, group.linkage),
            labels=group.labels,
            measure=group.measure,
            linkage=group.linkage,
            threshold=group.threshold,
            unit=group.unit,
            evidence=group.evidence,
        ),
    )


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
    apart = record["round"] > rounds
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
        t = min(record["round"] + 1, rounds)
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
        return _unknown(names)
    entries = told["clients"]
    return Clients(
        names=tuple(str(entry.get("name", name)) for entry, name in zip(entries, names, strict=True)),
        train=np.array([entry["train"] for entry in entries], dtype=np.int64),
        labels=np.array([entry["labels"] for entry in entries], dtype=np.int64),
        groups=tuple(_group(entry, len(told["sets"])) for entry in entries),
    )


def _unknown(names: tuple[str, ...]) -> Clients:
    """Clients of whom nothing but their names is known."""
    n = len(names)
    return Clients(names, np.zeros(n, dtype=np.int64), np.zeros((n, 0), dtype=np.int64), (None,) * n)


def _group(entry: Mapping[str, Any], n_sets: int) -> str | None:
    if entry["truth"] is None:
        return None
    return str(entry["set"]) if entry["set"] is not None and n_sets > 1 else f"group {entry['truth']}"


def _grouped(folder: RunFolder, founders: set[int]) -> Grouped | None:
    told = _described(folder, "grouping")
    if told is None:
        return None
    with np.load(folder.path / "grouping.npz", allow_pickle=False) as file:
        arrays = dict(file)
    if len(arrays["merges"]) == 0:  # one client alone is in no group
        return None
    clients = arrays["clients"]
    newcomers = tuple(int(c) for c in clients if int(c) not in founders)
    return Grouped(
        clients=clients,
        labels=arrays["labels"],
        **{name: arrays[name] for name in ("proximity", "distances", "merges")},
        **{word: told[word] for word in ("measure", "linkage", "threshold", "unit", "evidence")},
        newcomers=newcomers,
        bridges=_bridges(clients, arrays, told, newcomers),
    )


def _bridges(
    clients: Counts, arrays: Mapping[str, NDArray[Any]], told: Mapping[str, Any], newcomers: tuple[int, ...]
) -> tuple[Span, ...]:
    """Which newcomers stood between two clusters when they came: found again by the same rule."""
    if not newcomers or told["linkage"] == "ward":  # which has no distance of one client from a cluster
        return ()
    late = np.isin(clients, newcomers)
    order = np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])
    square = arrays["distances"][np.ix_(order, order)]
    placed = place(square, arrays["labels"][~late], told["threshold"], told["linkage"])
    came = clients[late]
    return tuple(Span(int(came[b.newcomer]), b.clusters, b.distances) for b in placed.bridges)
