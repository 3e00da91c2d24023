"""What a report wants to know of a run beside its rounds: who the clients are, and why they were grouped so."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.data import Dataset, Partition
from pacfl.federation.membership import PACFLState
from pacfl.subspace.hierarchy import dendrogram


def clients(dataset: Dataset, parts: Partition) -> dict[str, Any]:
    """Every client's samples, labels, data set and true group, as plain values."""
    return {
        "data": dataset.name,
        "digest": dataset.digest,
        "shape": list(dataset.shape),
        "classes": dataset.n_classes,
        "sets": list(dataset.source_names),
        "clients": [_client(dataset, parts, c) for c in range(parts.n_clients)],
    }


def _client(dataset: Dataset, parts: Partition, client: int) -> dict[str, Any]:
    rows = parts.train_indices[client]
    sets = np.unique(dataset.source_train[rows])
    return {
        "train": len(rows),
        "test": len(parts.test_indices[client]),
        "labels": np.bincount(dataset.y_train[rows], minlength=dataset.n_classes).tolist(),
        "set": dataset.source_names[sets[0]] if len(sets) == 1 else None,  # None: samples of several
        "true_cluster": None if parts.true_cluster is None else int(parts.true_cluster[client]),
    }


def clustering(state: PACFLState) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """How PACFL grouped its clients: what was decided and why, and the matrices behind it. None before anybody came."""
    group = state.clustering
    if group is None:
        return None
    distances = group.distances()
    told = {
        "measure": group.measure,
        "linkage": group.linkage,
        "threshold": group.threshold,
        "reference_scale": group.reference_scale,
        "evidence": group.evidence,
    }
    arrays = {
        "clients": np.array(list(state.bases), dtype=np.int64),
        "labels": group.labels,
        "proximity": group.proximity,
        "noise_scale": group.noise_scale,
        "distances": distances,
        "merges": dendrogram(distances, group.linkage),
    }
    return told, arrays
