"""The models of a finished run: those of the clusters, and what every client needs to build its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from pacfl.errors import StoreError
from pacfl.experiment.store import RunFolder, RunStore
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.federation.label_prior import sent
from pacfl.federation.local import one_thread
from pacfl.federation.message import ClientId, Message
from pacfl.federation.schedule import RoundPlan
from pacfl.learning.mixture import Weights
from pacfl.learning.model import Model, Vector


@dataclass(frozen=True, eq=False)
class StoredModels:
    """What a run ended with, without the data and the code that trained it."""

    models: Sequence[Vector]  # one for each cluster; only what is shared, of algorithms that share a part
    cluster_of: Mapping[ClientId, int]
    received: Mapping[ClientId, Weights]  # the model of each client as it receives it
    downloads: Mapping[ClientId, Message]  # what the server would send next
    memory: Mapping[ClientId, Message]  # of clients that have trained
    evaluated_in: Mapping[ClientId, int]  # the round, from 0, in which a client was evaluated last
    personal: Mapping[ClientId, Weights] = field(default_factory=dict)  # where they were asked for

    def save(self, folder: RunStore) -> None:
        """Store them in the folder of their run."""
        content = {f.name: getattr(self, f.name) for f in fields(self)}
        if not self.personal:
            del content["personal"]
        folder.save_models(content)


def read_models(content: Mapping[str, Any], where: str) -> StoredModels:
    """Models as they were stored."""
    try:
        return StoredModels(**content)
    except TypeError:
        raise StoreError(f"{where}: its models are of another release of pacfl; run it again (--rerun)") from None


def stored_models(folder: RunFolder) -> StoredModels:
    """The models in the folder of a finished run, verified."""
    content = folder.load_models() if folder.result() is not None else None
    if content is None:
        raise StoreError(
            f"{folder.path}: has no models; a run has them when it is finished, unless --no-models is given"
        )
    return read_models(content, str(folder.path))


def final_models(
    side: ClientSide, state: Any, memory: Mapping[ClientId, Message], plans: Iterable[RoundPlan]
) -> StoredModels:
    """The models after the last of the planned rounds, from the server's state and the clients' memory."""
    clients = sorted(state.cluster_of)
    downloads = {c: dict(sent(side.algorithm, state, c)) for c in clients}
    evaluated_in = dict.fromkeys(clients, 0)
    for t, plan in enumerate(plans):
        evaluated_in |= dict.fromkeys(plan.evaluated, t)
    memory = {c: dict(memory[c]) for c in clients if c in memory}
    initial = side.algorithm.init_client(side.model)
    return StoredModels(
        models=list(state.models),
        cluster_of={c: int(state.cluster_of[c]) for c in clients},
        received={c: side.received(evaluated_in[c], c, downloads[c], memory.get(c, initial)) for c in clients},
        downloads=downloads,
        memory=memory,
        evaluated_in={c: evaluated_in[c] for c in clients},
    )


@dataclass(frozen=True, eq=False)
class LoadedModels:
    """Stored models together with the code and the data of the run: models by client, recomputed to the same bits."""

    stored: StoredModels
    model: Model
    setup: Setup | None  # with the data; None if they are not there

    @property
    def clients(self) -> list[ClientId]:
        """The clients that the server knew at the end."""
        return list(self.stored.cluster_of)

    def cluster(self, client: ClientId) -> int:
        """The cluster of a client."""
        self._check(client)
        return self.stored.cluster_of[client]

    def received(self, client: ClientId) -> Weights:
        """The model that was evaluated as `received`: (d,), or a mixture."""
        self._check(client)
        return self.stored.received[client]

    def personal(self, client: ClientId) -> Weights:
        """The model that was evaluated as `personal`: (d,), or a mixture.

        The algorithm's own personalisation is run again.
        """
        self._check(client)
        if client in self.stored.personal:
            return self.stored.personal[client]
        algorithm, memory = self._side.algorithm, self.stored.memory.get(client)
        if memory is None:
            memory = algorithm.init_client(self.model)
        with one_thread():  # as in the run
            t, down = self.stored.evaluated_in[client], self.stored.downloads[client]
            return self._side.personal(t, client, down, memory)

    @cached_property
    def _side(self) -> ClientSide:
        if self.setup is None:
            raise StoreError(
                "personal models are trained again, which needs the data of the clients: call federate with the same "
                "arguments and runs=, or save the result with personal=True"
            )
        return ClientSide(self.setup)

    def _check(self, client: ClientId) -> None:
        if client not in self.stored.cluster_of:
            raise StoreError(f"the run ended without client {client}; it ended with {len(self.clients)} clients")
