"""The federation in the folder of a server, as the checkpoint after its last round has it: names, clusters, signatures.

It is only read: the server may be running.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl import algorithms
from pacfl.errors import StoreError
from pacfl.experiment.checkpoint import peek
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import label, metric_of, scores, trained
from pacfl.features import encoders
from pacfl.federation.message import ClientId
from pacfl.folders import Folder
from pacfl.signatures import Federation
from pacfl.signatures import folder as folders
from pacfl.signatures.explaining import Description
from pacfl.signatures.federation import relabelled
from pacfl.signatures.sigfile import NOT_LABELLED, NOT_PRIVATE, SignatureSettings

# A server does not know which of them a site's data needed
PRIVATE: Final = "private, reduced by means of cells or a projection, where there were many features"


@dataclass(frozen=True, eq=False)
class ServerFederation:
    """What a server has stored after a round."""

    folder: Folder
    id: str
    settings: Mapping[str, Any]  # of the run
    names: Mapping[ClientId, str]
    state: Any

    @property
    def path(self) -> Path:
        """Where it is stored."""
        return self.folder.federation

    @property
    def cluster_of(self) -> Mapping[ClientId, int]:
        """The cluster of every site that has joined."""
        found: Mapping[ClientId, int] = self.state.cluster_of
        return found

    @property
    def planned(self) -> int:
        """Rounds of training in all, as far as the server has said."""
        said = (RunFolder(self.path).description("status") or {}).get("rounds")
        return int(said) if isinstance(said, int) else sum(map(trained, self.records()))

    def records(self) -> list[dict[str, Any]]:
        """One record for each round so far."""
        return RunFolder(self.path).records()

    def clusters(self) -> list[list[str]]:
        """Names by cluster; nobody in a cluster that all have left."""
        found: list[list[str]] = [[] for _ in range(1 + max(self.cluster_of.values(), default=-1))]
        for client, k in sorted(self.cluster_of.items()):
            found[k].append(self.name(client))
        return found

    def summary(self) -> dict[str, Any]:
        """What `pacfl show --json` prints: with signatures, what it prints of clusters, too."""
        records = self.records()
        evaluated: Mapping[str, Any] = next((one for one in reversed(records) if scores(one)), {})
        return {
            "kind": self.folder.kind,
            "name": self.folder.name,
            "algorithm": label(self.settings["algorithm"], self.settings.get("aggregation", {})),
            "rounds": {"done": sum(map(trained, records)), "planned": self.planned},
            "metric": metric_of(evaluated),
            "score": scores(evaluated)["received"]["mean"] if "received" in scores(evaluated) else None,
            **({"clusters": self.clusters()} if self.signatures is None else self.signatures.summary()),
        }

    def name(self, client: ClientId) -> str:
        """The name of a site."""
        return self.names.get(client, str(client))

    @cached_property
    def signatures(self) -> Federation | None:
        """The signatures of its sites, and their clusters: those that share a model. None without signatures."""
        state = self.state
        if getattr(state, "clustering", None) is None:
            return None
        clients, tables = list(state.bases), state.tables or {}
        in_clusters = relabelled(state.clustering, range(len(clients)), [state.cluster_of[c] for c in clients])
        return Federation(
            names=tuple(self.name(c) for c in clients),
            bases=tuple(state.bases.values()),
            settings=self._made(),
            clustering=in_clusters,
            classes=tuple(state.classes.get(c) for c in clients),
            descriptions=tuple(Description(table=tables.get(c)) for c in clients),
        )

    def _made(self) -> SignatureSettings:
        """How the sites made their signatures."""
        built, (basis, *_) = algorithms.build(**self.settings["algorithm"]), self.state.bases.values()
        assert isinstance(built, algorithms.PACFL)  # nobody else has a clustering
        return SignatureSettings(
            features=len(basis),
            rank=int(np.shape(basis)[1]) if built.rank == "auto" else built.rank,
            per_class=built.per_class,
            preprocess="raw",
            protection=NOT_PRIVATE if built.signature_epsilon is None else PRIVATE,
            labels="plain names" if self.state.classes else NOT_LABELLED,
            encoder=None if built.encoder is None else encoders.digest(built.encoder),
            directions=self.state.key,
        )


def server_federation(folder: Folder) -> ServerFederation:
    """The federation of a server's folder, or of a deployment."""
    checkpoint = peek(folder.federation)
    if checkpoint is None or "state" not in checkpoint:
        raise StoreError(
            f"{folder.path}: has no finished round, so there are no clusters yet; 'pacfl status {folder.path}' says "
            "what it waits for"
        )
    clients = checkpoint.get("clients", {})
    names = {int(c): str(about["name"]) for c, about in clients.items() if isinstance(about, Mapping)}
    return ServerFederation(folder, checkpoint["federation"], checkpoint["run"], names, checkpoint["state"])


def federation_in(folder: Folder) -> Federation:
    """The signatures and clusters in a folder of clusters, of a server, or of a deployment."""
    if folder.kind == "clusters":
        return folders.load(folder.path)
    found = server_federation(folder)
    if found.signatures is None:
        raise StoreError(
            f"{folder.path}: its sites sent no signatures to the server, since {found.settings['algorithm']['name']} "
            "asks for none; 'pacfl show' has their clusters"
        )
    return found.signatures
