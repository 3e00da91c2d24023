"""A folder that `pacfl cluster` wrote -> plain data."""

import hashlib
from pathlib import Path

import numpy as np

from pacfl.errors import DataError
from pacfl.report.summary import ClientClustering, Clients, SignatureFederation
from pacfl.signatures import federation


def is_federation(folder: Path) -> bool:
    """Whether `pacfl cluster` wrote the folder."""
    return (folder / federation.STATE).exists()


def read(folder: Path) -> SignatureFederation:
    """What `pacfl cluster` wrote."""
    stored = federation.load(folder)
    clustering, n = stored.clustering, len(stored.names)
    if n < 2:
        raise DataError(f"{folder}: has one client, so there is nothing to cluster; let others join first")
    return SignatureFederation(
        name=folder.resolve().name,
        hash=hashlib.blake2b((folder / federation.STATE).read_bytes(), digest_size=8).hexdigest(),
        clients=Clients.named(stored.names),
        clustering=ClientClustering(np.arange(n), clustering, clustering.merges()),
    )
