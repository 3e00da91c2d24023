"""Pictures of samples by UMAP, and of the angles between classes and clients."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.data import Dataset, build_scheme, load_dataset, partition
from pacfl.learning.randomness import stream
from pacfl.reproduce.angles import CLASSES, cluster_clients
from pacfl.reproduce.figures import Figure, heat_map, save
from pacfl.reproduce.items import Item, missing
from pacfl.reproduce.making import Request, asked_columns
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import NOT_RUN, Table
from pacfl.subspace import adjusted_rand_index, proximity, signature

NO_UMAP = "not drawn: UMAP needs umap-learn: pip install 'pacfl[umap]'"


def make(item: Item, request: Request) -> Outcome:
    """Points in the plane, and angles."""
    lacking = missing(item, request.scale, request.data)
    columns = [column for column in asked_columns(item, request) if column not in lacking]
    drawn = {column: _column(item, column, request) for column in columns}
    common = {"item": item.name, "scale": request.scale, "missing": lacking, "runs": [], "tuning": []}
    return {**common, "pictures": drawn}


def _column(item: Item, column: str, request: Request) -> dict[str, Any]:
    table = item.table(column, request.scale)
    data, settings = table["data"], table["item"]["settings"]
    sets = {"sets": data["sets"]} if "sets" in data else {}
    dataset = load_dataset(data["name"], request.data, **sets)
    seed = table["seeds"][0]
    rows = stream(seed, "points").permutation(len(dataset.y_train))[: settings["points"]]
    groups = dataset.source_train if sets else dataset.y_train
    points = embedded(dataset.x_train[rows].reshape(len(rows), -1), seed)
    found = {
        "names": list(dataset.source_names if sets else CLASSES),
        "groups": groups[rows].tolist(),
        "points": points,
    }
    return {
        **found,
        **(_clients(dataset, data, settings["rank"], seed) if sets else _classes(dataset, settings["rank"])),
    }


def embedded(samples: NDArray[Any], seed: int) -> list[list[float]] | None:
    """Samples (n, features) as points of the plane; None where umap-learn is not installed."""
    try:
        from umap import UMAP
    except ImportError:
        return None
    plane = UMAP(random_state=seed, n_jobs=1).fit_transform(samples.astype(np.float32) / 255)
    points: list[list[float]] = np.round(plane.astype(np.float64), 2).tolist()
    return points


def _classes(dataset: Dataset, rank: int) -> dict[str, Any]:
    bases = [signature(dataset.x_train[dataset.y_train == c], rank) for c in range(dataset.n_classes)]
    return {"angles": proximity(bases).round(2).tolist(), "clusters": None, "ari": None}


def _clients(dataset: Dataset, data: Mapping[str, Any], rank: int, seed: int) -> dict[str, Any]:
    parts = partition(dataset, build_scheme(data["scheme"]), data["clients"], stream(seed, "partition"))
    clustering = cluster_clients([dataset.x_train[rows] for rows in parts.train_indices], rank)
    found = {"angles": clustering.proximity.round(2).tolist(), "clusters": int(clustering.labels.max()) + 1}
    return {
        **found,
        "ari": None if parts.true_cluster is None else adjusted_rand_index(clustering.labels, parts.true_cluster),
    }


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """What is drawn, and how many clusters the angles between clients show."""
    head = ("data", "points by UMAP", "angles between", "clusters", "ARI")
    rows = []
    for column in item.columns:
        found = outcome["pictures"].get(column)
        if found is None:
            rows.append((column, outcome["missing"].get(column, NOT_RUN), "", "", ""))
            continue
        points = NO_UMAP if found["points"] is None else str(len(found["points"]))
        whose = f"{len(found['angles'])} {'classes' if found['clusters'] is None else 'clients'}"
        ari = "-" if found["ari"] is None else f"{found['ari']:.2f}"
        rows.append((column, points, whose, str(found["clusters"] or "-"), ari))
    return [Table(item.title, head, tuple(rows))]


def figures(item: Item, outcome: Outcome, folder: Path) -> list[Path]:
    """A scatter of samples and a heat map of angles for each data set."""
    paths = []
    for column, found in outcome["pictures"].items():
        if found["points"] is not None:
            paths.append(_scatter(found, f"{item.title}: {column}", folder / f"{item.name}-{column}-umap.svg"))
        names = found["names"] if found["clusters"] is None else []
        paths.append(
            heat_map(found["angles"], names, "smallest angle (degrees)", folder / f"{item.name}-{column}-angles.svg")
        )
    return paths


def _scatter(found: Mapping[str, Any], title: str, path: Path) -> Path:
    figure = Figure(figsize=(5.4, 4.6), layout="constrained")
    axes: Any = figure.subplots()
    points, groups = np.array(found["points"]), np.array(found["groups"])
    for g, name in enumerate(found["names"]):
        own = points[groups == g]
        axes.scatter(own[:, 0], own[:, 1], s=3, label=name, rasterized=True)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=6, markerscale=3)
    return save(figure, path)
