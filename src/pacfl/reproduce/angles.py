"""Angles between data sets and between classes: the published values beside true principal angles."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data import load_dataset
from pacfl.learning.randomness import stream
from pacfl.reproduce.figures import heat_map
from pacfl.reproduce.items import Item, missing
from pacfl.reproduce.making import Request, asked_columns
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import NOT_RUN, Table, over_seeds
from pacfl.subspace import (
    MEASURES,
    Clustering,
    adjusted_rand_index,
    agglomerate_into,
    cluster,
    proximity,
    signature,
    split_half_angles,
)

ANIMALS: Final = (2, 3, 4, 5, 6, 7)  # of CIFAR-10's classes: bird, cat, deer, dog, frog, horse
CLASSES: Final = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def make(item: Item, request: Request) -> Outcome:
    """Every measure between all pairs, for several draws of samples."""
    lacking = missing(item, request.scale, request.data)
    columns = [column for column in asked_columns(item, request) if column not in lacking]
    angles = {column: _column(item, column, request) for column in columns}
    return {"item": item.name, "scale": request.scale, "missing": lacking, "runs": [], "tuning": [], "angles": angles}


def _column(item: Item, column: str, request: Request) -> dict[str, Any]:
    table = item.table(column, request.scale)
    data, rank = table["data"], table["item"]["settings"]["rank"]
    draws = [_bases(data, rank, seed, request.data) for seed in table["seeds"][: request.n_seeds]]
    names = list(data["sets"]) if "sets" in data else list(CLASSES)
    values: dict[str, Any] = {
        measure: [proximity(bases, measure).round(4).tolist() for bases in draws] for measure in MEASURES
    }
    return {"names": names, "rank": rank, "samples": data["samples"], "seeds": table["seeds"], **values}


def _bases(data: Mapping[str, Any], rank: int, seed: int, folder: Path | None) -> list[NDArray[np.float64]]:
    """A signature of every data set, or of every class; sets have one shape as in a mixture."""
    n = data["samples"]
    if "sets" in data:
        mixed = load_dataset("mix4", folder, sets=data["sets"])
        groups = [np.flatnonzero(mixed.source_train == s) for s in range(len(data["sets"]))]
    else:
        mixed = load_dataset(data["name"], folder)
        groups = [np.flatnonzero(mixed.y_train == c) for c in range(mixed.n_classes)]
    drawn = [stream(seed, "angles", i).permutation(group)[:n] for i, group in enumerate(groups)]
    return [signature(mixed.x_train[rows], rank) for rows in drawn]


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """Pairs of data sets with the published values, and the two kinds of classes of CIFAR-10."""
    return [_sets(item, outcome), _classes(item, outcome)]


def _sets(item: Item, outcome: Outcome) -> Table:
    stored, published = outcome["angles"].get("sets"), item.published()
    head = ("pair", "paper", "entrywise (times p)", *(m for m in MEASURES if m != "entrywise"))
    if stored is None:
        reason = outcome["missing"].get("sets", NOT_RUN)
        pairs = [
            (f"{a}, {b}", value, reason, "", "", "") for a, values in published.items() for b, value in values.items()
        ]
        return Table(f"{item.title}: sets", head, tuple(pairs))
    rows = []
    for i, j in combinations(range(len(stored["names"])), 2):
        a, b = stored["names"][i], stored["names"][j]
        values = {measure: np.array(stored[measure])[:, i, j] for measure in MEASURES}
        times_rank = over_seeds((stored["rank"] * values["entrywise"]).tolist(), 1)
        entrywise = f"{over_seeds(values['entrywise'].tolist())} ({times_rank})"
        true = (over_seeds(values[m].tolist()) for m in MEASURES if m != "entrywise")
        rows.append((f"{a}, {b}", published.get(a, {}).get(b, "-"), entrywise, *true))
    note = (
        f"Degrees, p = {stored['rank']}, raw pixels, {stored['samples']:,} training samples of each set, "
        f"mean ± standard deviation over {len(stored['entrywise'])} draws of them. "
        "`smallest` and `sum` are true principal angles; `entrywise` was published as both. The paper has no MNIST-M."
    )
    return Table(f"{item.title}: sets", head, tuple(rows), (note,))


def _classes(item: Item, outcome: Outcome) -> Table:
    stored = outcome["angles"].get("classes")
    head = ("measure", "among animals", "among vehicles", "between", "ARI of two clusters")
    if stored is None:
        return Table(f"{item.title}: classes", head, ((outcome["missing"].get("classes", NOT_RUN), "", "", "", ""),))
    true_cluster = np.isin(np.arange(len(CLASSES)), ANIMALS).astype(np.intp)
    rows = []
    for measure in MEASURES:
        draws = np.array(stored[measure])
        parts = [_mean_between(draws, true_cluster, a, b) for a, b in ((1, 1), (0, 0), (1, 0))]
        found = [adjusted_rand_index(agglomerate_into(draw, 2, "average"), true_cluster) for draw in draws]
        rows.append((measure, *(over_seeds(part) for part in parts), over_seeds(found)))
    samples = f"{stored['samples']:,} training samples of each class"
    note = f"Mean angle in degrees, p = {stored['rank']}, raw pixels, {samples}."
    return Table(f"{item.title}: classes of CIFAR-10", head, tuple(rows), (note,))


def _mean_between(draws: NDArray[np.float64], true_cluster: NDArray[np.intp], a: int, b: int) -> list[float]:
    """The mean angle over pairs of one class of kind a and another of kind b, of each draw."""
    pairs = [(i, j) for i in np.flatnonzero(true_cluster == a) for j in np.flatnonzero(true_cluster == b) if i != j]
    rows, columns = zip(*pairs, strict=True)
    return [float(draw[list(rows), list(columns)].mean()) for draw in draws]


def figures(item: Item, outcome: Outcome, folder: Path) -> list[Path]:
    """The angles between classes as a picture, animals first."""
    stored = outcome["angles"].get("classes")
    if stored is None:
        return []
    order = [*ANIMALS, *(c for c in range(len(CLASSES)) if c not in ANIMALS)]
    mean = np.mean(np.array(stored["smallest"]), axis=0)[np.ix_(order, order)]
    return [
        heat_map(mean, [CLASSES[c] for c in order], "smallest angle (degrees)", folder / f"{item.name}-classes.svg")
    ]


def cluster_clients(samples: Sequence[NDArray[Any]], rank: int, n_clusters: int | None = None) -> Clustering:
    """Clients' samples clustered as PACFL does, by the smallest angle and average linkage, without training.

    n_clusters None: at the automatic threshold.
    """
    bases = [signature(x, rank) for x in samples]
    halves = [split_half_angles(x, rank, measures=["smallest"])["smallest"] for x in samples]
    return cluster(proximity(bases, "smallest"), halves, "smallest", "average", None, n_clusters, signatures=bases)
