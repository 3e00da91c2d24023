"""Faces split by attribute: do signatures find the clients with the same attribute? Nothing is trained."""

from pathlib import Path
from typing import Any

import numpy as np

from pacfl.data import Dataset, Partition, build_scheme, load_dataset, partition
from pacfl.learning.randomness import stream
from pacfl.reproduce.angles import cluster_clients
from pacfl.reproduce.figures import Figure, save
from pacfl.reproduce.items import Item, missing
from pacfl.reproduce.making import Request, asked_columns
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import NOT_RUN, Table, counted, over_seeds
from pacfl.subspace import adjusted_rand_index

FACES_SHOWN = 8  # of each cluster


def make(item: Item, request: Request) -> Outcome:
    """Clusters of clients, found automatically and as many as there are attributes."""
    lacking = missing(item, request.scale, request.data)
    columns = [column for column in asked_columns(item, request) if column not in lacking]
    table = item.table(None, request.scale)
    found = [_clusters(item, column, seed, request) for column in columns for seed in table["seeds"][: request.n_seeds]]
    common = {"item": item.name, "scale": request.scale, "missing": lacking, "runs": [], "tuning": []}
    return {**common, "attributes": table["data"]["scheme"]["attributes"], "clusters": found}


def _clusters(item: Item, column: str, seed: int, request: Request) -> dict[str, Any]:
    dataset, parts = _split(item, column, seed, request)
    rank = item.settings(request.scale)["rank"]
    samples = [dataset.x_train[rows] for rows in parts.train_indices]
    assert parts.true_cluster is not None  # split by attribute
    clustered: dict[str, Any] = {"column": column, "seed": seed, "true_cluster": parts.true_cluster.tolist()}
    for name, k in (("automatic", None), ("given", len(set(clustered["true_cluster"])))):
        labels = cluster_clients(samples, rank, k).labels
        clustered[name] = {"labels": labels.tolist(), "ari": adjusted_rand_index(labels, parts.true_cluster)}
    clustered["faces"] = _faces(dataset, parts, clustered["given"]["labels"], seed)
    return clustered


def _split(item: Item, column: str, seed: int, request: Request) -> tuple[Dataset, Partition]:
    data = item.table(column, request.scale)["data"]
    dataset = load_dataset(data["name"], request.data, n_train=data["samples"], n_test=1)
    scheme = build_scheme(data["scheme"])
    return dataset, partition(dataset, scheme, data["clients"], stream(seed, "partition"))


def _faces(dataset: Dataset, parts: Partition, labels: list[int], seed: int) -> list[list[Any]]:
    """A few faces of every cluster, each of another client as long as there are others."""
    rng = stream(seed, "faces")
    shown = []
    for k in range(max(labels) + 1):
        members = rng.permutation([c for c, label in enumerate(labels) if label == k])
        chosen = np.resize(members, FACES_SHOWN)
        shown.append([dataset.x_train[rng.choice(parts.train_indices[c])].tolist() for c in chosen])
    return shown


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """How many clusters, and how well they agree with the attributes."""
    head = ("data", "clusters", "how many", "ARI with the attributes", "seeds")
    rows = []
    for column in item.columns:
        own = [one for one in outcome["clusters"] if one["column"] == column]
        if not own:
            rows.append((column, outcome["missing"].get(column, NOT_RUN), "", "", ""))
        for name in ("automatic", "given") if own else ():
            counts = [len(set(one[name]["labels"])) for one in own]
            aris = [one[name]["ari"] for one in own]
            seeds = " ".join(str(one["seed"]) for one in own)
            rows.append((column, name, counted(counts), over_seeds(aris), seeds))
    note = f"Attributes: {', '.join(outcome['attributes'])}. The paper shows faces and gives no number."
    return [Table(item.title, head, tuple(rows), (note,))]


def figures(item: Item, outcome: Outcome, folder: Path) -> list[Path]:
    """Faces of every cluster, as the paper shows them."""
    return [_figure(item, one, folder) for one in outcome["clusters"][:1]]


def _figure(item: Item, clustered: dict[str, Any], folder: Path) -> Path:
    faces = clustered["faces"]
    figure = Figure(figsize=(FACES_SHOWN, 1.2 * len(faces)), layout="constrained")
    grid = np.atleast_2d(figure.subplots(len(faces), FACES_SHOWN))
    for k, (row, images) in enumerate(zip(grid, faces, strict=True), 1):
        row[0].set_ylabel(f"cluster {k}", fontsize=8)
        for axes, image in zip(row, images, strict=True):
            axes.imshow(np.array(image, dtype=np.uint8))
            axes.set_xticks([])
            axes.set_yticks([])
    return save(figure, folder / f"{item.name}.svg")
