"""A folder that `pacfl cluster` made -> plain data."""

import hashlib
from pathlib import Path

import numpy as np

from pacfl.errors import DataError
from pacfl.report.facts import Alike, Clients, Grouped
from pacfl.signatures import federation
from pacfl.subspace.hierarchy import dendrogram


def is_there(folder: Path) -> bool:
    """Whether the folder is one."""
    return (folder / federation.STATE).exists()


def read(folder: Path) -> Alike:
    """What `pacfl cluster` made."""
    found = federation.load(folder)
    group, n = found.clustering, len(found.names)
    if n < 2:
        raise DataError(f"{folder}: has one client, which is in no group; let others join first")
    distances = group.distances()
    return Alike(
        name=folder.resolve().name,
        hash=hashlib.blake2b((folder / federation.STATE).read_bytes(), digest_size=8).hexdigest(),
        clients=Clients.named(found.names),
        grouped=Grouped(
            clients=np.arange(n),
            proximity=group.proximity,
            distances=distances,
            merges=dendrogram(distances, group.linkage),
            labels=group.labels,
            measure=group.measure,
            linkage=group.linkage,
            threshold=group.threshold,
            reference_scale=group.reference_scale,
            evidence=group.evidence,
        ),
    )
