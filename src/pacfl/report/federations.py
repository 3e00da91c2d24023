"""A folder that `pacfl cluster` wrote -> plain data."""

import hashlib
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from pacfl.errors import DataError
from pacfl.report.summary import ClientClustering, Clients, SignatureFederation
from pacfl.signatures import folder as folders
from pacfl.signatures.explaining import explanations
from pacfl.subspace.diagnosis import cluster_pairs, evidence_on

MOST_PAIRS: Final = 66  # of clusters that are all explained; of more, each cluster with its nearest other
MOST_EXPLAINED: Final = 200


def read(folder: Path) -> SignatureFederation:
    """What `pacfl cluster` wrote."""
    stored = folders.load(folder)
    clustering, n = stored.clustering, len(stored.names)
    if n < 2:
        raise DataError(f"{folder}: has one client, so there is nothing to cluster; let others join first")
    pairs = cluster_pairs(evidence_on(stored.clients(), clustering), MOST_PAIRS)
    return SignatureFederation(
        name=folder.resolve().name,
        hash=hashlib.blake2b((folder / folders.STATE).read_bytes(), digest_size=8).hexdigest(),
        clients=Clients.named(stored.names, [one.samples for one in stored.descriptions]),
        clustering=ClientClustering(np.arange(n), clustering, clustering.merges()),
        diagnosis=stored.diagnosis,
        explanations=tuple(explanations(stored, islice(pairs, MOST_EXPLAINED))),
    )
