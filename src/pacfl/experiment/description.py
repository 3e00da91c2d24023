"""What is stored about a run beside its rounds: its clients, their clustering, and what it ran with."""

import platform
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import squareform

from pacfl import __version__
from pacfl.data import Dataset, Partition
from pacfl.experiment.store import RunFolder
from pacfl.subspace import rescale_by_noise
from pacfl.subspace.hierarchy import dendrogram


def environment() -> dict[str, str]:
    """The versions that compute a run."""
    return {
        "pacfl": __version__,
        "python": platform.python_version(),
        **{library: version(library) for library in ("numpy", "scipy", "torch")},
    }


def clients(dataset: Dataset, divided: Partition, digest: str) -> dict[str, Any]:
    """Every client's samples, labels, data set and true cluster, as plain values."""
    return {
        "data": dataset.name,
        "digest": digest,
        "shape": list(dataset.shape),
        "classes": dataset.n_classes,
        "sets": list(dataset.source_names),
        "clients": [_client(dataset, divided, c) for c in range(divided.n_clients)],
    }


def _client(dataset: Dataset, divided: Partition, client: int) -> dict[str, Any]:
    rows = divided.train_indices[client]
    sets = np.unique(dataset.source_train[rows])
    return {
        "train": len(rows),
        "test": len(divided.test_indices[client]),
        "labels": np.bincount(dataset.y_train[rows], minlength=dataset.n_classes).tolist(),
        "set": dataset.source_names[sets[0]] if len(sets) == 1 else None,  # None: samples of several
        "true_cluster": None if divided.true_cluster is None else int(divided.true_cluster[client]),
    }


def save_clustering(folder: RunFolder, state: Any) -> None:
    """How PACFL clustered its clients: the decision and its evidence, and the matrices behind them.

    Only the upper triangle of the proximity is stored, in float32: 10,000 clients take 200 MB.
    """
    clustering = getattr(state, "clustering", None)
    if clustering is None:
        return
    facts = {
        "measure": clustering.measure,
        "linkage": clustering.linkage,
        "threshold": clustering.threshold,
        "reference_scale": clustering.reference_scale,
        "evidence": clustering.evidence,
    }
    folder.describe(
        "clustering",
        facts,
        clients=np.array(list(state.bases), dtype=np.int64),
        labels=clustering.labels,
        proximity=squareform(clustering.proximity, checks=False).astype(np.float32),
        noise_scale=clustering.noise_scale,
        merges=dendrogram(clustering.distances(), clustering.linkage),
    )


def load_clustering(folder: RunFolder) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """What `save_clustering` stored, with the square proximity and the distances that were cut; None if nothing."""
    facts = folder.description("clustering")
    if facts is None:
        return None
    with np.load(folder.path / "clustering.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["proximity"] = squareform(arrays["proximity"].astype(np.float64))
    scale = facts["reference_scale"]
    proximity, noise = arrays["proximity"], arrays["noise_scale"]
    arrays["distances"] = proximity if scale is None else rescale_by_noise(proximity, noise, scale)
    return facts, arrays
