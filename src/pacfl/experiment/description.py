"""What is stored about a run beside its rounds: its clients, their clustering, and what it ran with."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import squareform

from pacfl import __version__
from pacfl.data import Dataset, Partition
from pacfl.experiment.store import RunFolder, RunStore
from pacfl.subspace import Clustering

FACTS: Final = ("measure", "linkage", "threshold", "reference_scale", "evidence")  # of a clustering, beside arrays


def environment() -> dict[str, str]:
    """The versions that compute a run."""
    return {
        "pacfl": __version__,
        "python": platform.python_version(),
        **{library: version(library) for library in ("numpy", "scipy", "torch")},
    }


def clients(dataset: Dataset, divided: Partition, digest: str, names: Sequence[object] | None = None) -> dict[str, Any]:
    """Every client's samples, labels, data set and true cluster, as plain values; names: if the user gave any.

    Of clients that swap their data, also whose they have then, and in which true cluster they are.
    """
    described = [_client(dataset, divided, c) for c in range(divided.n_clients)]
    if names is not None:
        described = [{"name": name, **client} for name, client in zip(names, described, strict=True)]
    return {
        "data": dataset.name,
        "digest": digest,
        "shape": list(dataset.shape),
        "targets": dataset.targets,
        "classes": dataset.n_classes,
        "sets": list(dataset.source_names),
        "clients": described,
        **({} if (swap := divided.swap) is None else {"drift": {"round": swap.round, "clients": _drifted(divided)}}),
    }


def _drifted(divided: Partition) -> dict[str, Any]:
    """By client that drifts: whose data it has then, and its true cluster then."""
    swap = divided.swap
    assert swap is not None  # or nobody drifts
    after = divided.true_cluster_in(swap.round)
    return {
        str(c): {"data_of": int(swap.source[c]), "true_cluster": None if after is None else int(after[c])}
        for c in swap.clients
    }


def _client(dataset: Dataset, divided: Partition, client: int) -> dict[str, Any]:
    rows = divided.train_indices[client]
    sets = np.unique(dataset.source_train[rows])
    return {
        "train": len(rows),
        "test": len(divided.test_indices[client]),
        **(
            {"tests": {kind: len(of[client]) for kind, of in others.items()}} if (others := divided.other_tests) else {}
        ),
        "labels": _label_counts(dataset, rows),
        "set": dataset.source_names[sets[0]] if len(sets) == 1 else None,  # None: samples of several
        "true_cluster": None if divided.true_cluster is None else int(divided.true_cluster[client]),
        **({} if divided.transforms is None else {"transform": divided.transforms[client]}),
    }


def _label_counts(dataset: Dataset, rows: NDArray[np.intp]) -> list[int]:
    """How many of the training samples have each class or label; nothing for values."""
    y = dataset.y_train[rows]
    if dataset.targets == "values":
        return []
    counts = np.bincount(y, minlength=dataset.n_classes) if dataset.targets == "classes" else y.sum(axis=0)
    return [int(n) for n in counts]


@dataclass(frozen=True, eq=False)
class StoredClustering:
    """How PACFL clustered the clients of a run."""

    clients: NDArray[np.int64]  # in the order of the clustering
    clustering: Clustering
    merges: NDArray[np.float64]  # the dendrogram, in scipy's form


def save_clustering(folder: RunStore, clients: Sequence[int], clustering: Clustering) -> None:
    """Store the decision and its evidence, and the matrices behind them.

    Only the upper triangle of the distances is stored, in float32: 10,000 clients take 200 MB. Where classes were
    compared, these are the distances between classes; else the angles as measured.
    """
    by_classes = clustering.classes is not None
    facts = {name: getattr(clustering, name) for name in FACTS}
    distances = clustering.distances() if by_classes else clustering.proximity
    folder.describe(
        "clustering",
        {**facts, "reference_scale": None if by_classes else clustering.reference_scale},
        clients=np.array(clients, dtype=np.int64),
        labels=clustering.labels,
        proximity=squareform(distances, checks=False).astype(np.float32),
        noise_scale=clustering.noise_scale,
        merges=clustering.merges(),
    )


def load_clustering(folder: RunFolder) -> StoredClustering | None:
    """What `save_clustering` stored; None if nothing."""
    facts = folder.description("clustering")
    if facts is None:
        return None
    with np.load(folder.path / "clustering.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in ("clients", "labels", "proximity", "noise_scale", "merges")}
    clustering = Clustering(
        proximity=squareform(arrays["proximity"].astype(np.float64)) if len(arrays["labels"]) > 1 else np.zeros((1, 1)),
        noise_scale=arrays["noise_scale"],
        labels=arrays["labels"],
        **{name: facts[name] for name in FACTS},
    )
    return StoredClustering(arrays["clients"], clustering, arrays["merges"])
