"""Signature files: how clients' data are signed, compared, clustered and stored.

`sign_file` writes one client's signature, `cluster_files` finds the clusters of many, `load_federation` shows them,
`join_files` adds newcomers, `leave_federation` removes clients, `replace_file` takes a new signature of one and says
whether it drifted, `explain_pair` says why two of them differ. `add_to_store` puts very many signatures into one
folder, `cluster_store` finds their clusters, `join_store` adds newcomers. `write_key`
makes a key that hides directions, or names of classes, from whoever does not have it.
"""

from pacfl.features.reading import Reading
from pacfl.signatures.commands import (
    FewSamplesWarning,
    cluster_files,
    explain_pair,
    join_files,
    leave_federation,
    load_federation,
    replace_file,
    sign_file,
)
from pacfl.signatures.federation import Federation, Joined
from pacfl.signatures.keys import write_key
from pacfl.signatures.lifecycle import Replaced
from pacfl.signatures.placement import Drift, Newcomer
from pacfl.signatures.sigfile import SignatureFile, SignatureSettings
from pacfl.signatures.store import SignatureStore
from pacfl.signatures.store_clusters import StoreClusters, cluster_store, join_store
from pacfl.signatures.store_files import add_to_store
from pacfl.subspace import DependenceWarning

__all__ = [
    "DependenceWarning",
    "Drift",
    "Federation",
    "FewSamplesWarning",
    "Joined",
    "Newcomer",
    "Reading",
    "Replaced",
    "SignatureFile",
    "SignatureSettings",
    "SignatureStore",
    "StoreClusters",
    "add_to_store",
    "cluster_files",
    "cluster_store",
    "explain_pair",
    "join_files",
    "join_store",
    "leave_federation",
    "load_federation",
    "replace_file",
    "sign_file",
    "write_key",
]
