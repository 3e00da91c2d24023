"""Signatures in a folder of clusters or of a server -> plain data."""

import hashlib
from itertools import islice
from typing import Final

import numpy as np

from pacfl.errors import DataError
from pacfl.folders import CLUSTERS, Folder
from pacfl.report.summary import ClientClustering, Clients, SignatureFederation
from pacfl.signatures import Federation
from pacfl.signatures.explaining import explanations
from pacfl.subspace import MergeSuggestion
from pacfl.subspace.compared import compared
from pacfl.subspace.diagnosis import cluster_pairs, evidence_on

MOST_PAIRS: Final = 66  # of clusters that are all explained; of more, each cluster with its nearest other
MOST_EXPLAINED: Final = 200


def read(folder: Folder, stored: Federation) -> SignatureFederation:
    """The clusters of the signatures that are stored in a folder."""
    clustering, n = stored.clustering, len(stored.names)
    if n < 2:
        raise DataError(f"{folder.path}: has one client, so there is nothing to cluster; let others join first")
    pairs = cluster_pairs(evidence_on(stored.clients(), clustering), MOST_PAIRS)
    return SignatureFederation(
        name=folder.name,
        hash=_digest(stored) if folder.kind != "clusters" else _hash((folder.path / CLUSTERS).read_bytes()),
        kind=folder.kind,
        clients=Clients.named(stored.names, [one.samples for one in stored.descriptions]),
        clustering=ClientClustering(
            np.arange(n),
            clustering,
            compared(clustering, [one.table for one in stored.descriptions]),
            tuple(i for i, name in enumerate(stored.names) if name in stored.newcomers),
            tuple(_merge(stored, name) for name in stored.merge_suggestions()),
            " times the noise",
        ),
        answer=stored.answer,
        reasons=stored.reasons(),
        diagnosis=stored.diagnosis,
        explanations=tuple(explanations(stored, islice(pairs, MOST_EXPLAINED))),
        placements=tuple(f"{name} {one.words()}" for name, one in stored.newcomers.items()),
        cautions=(
            *(f"{name}: {words}" for name, one in stored.newcomers.items() for words in one.warnings()),
            *(f"{name} {one.words()}; {one.fits_now()}" for name, one in stored.drifted.items()),
        ),
    )


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _digest(stored: Federation) -> str:
    """Of the names, signatures and clusters that a server has."""
    arrays = (*stored.bases, stored.clustering.labels)
    return _hash("\n".join(stored.names).encode() + b"".join(np.ascontiguousarray(one).tobytes() for one in arrays))


def _merge(stored: Federation, name: str) -> MergeSuggestion:
    """What a newcomer that is near two clusters suggests; distances in units of noise."""
    one, clusters = stored.newcomers[name], stored.merge_suggestions()[name]
    return MergeSuggestion(stored.names.index(name), clusters, (one.distance or 0.0, one.runner_up_distance or 0.0))
