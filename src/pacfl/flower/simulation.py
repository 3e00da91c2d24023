"""Experiments on Flower's simulation: the same runs as on the local backend, through real messages and Ray."""

import logging
import pickle
import queue
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, final

from flwr.app import Context
from flwr.app import Message as Envelope
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from pacfl import plugins
from pacfl.errors import ConfigError, NoReplyError
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.federation.message import ClientId, Message
from pacfl.flower.backend import FlowerBackend
from pacfl.flower.batches import BATCH, BatchingGrid, batch_app, packed
from pacfl.flower.client_handlers import ClientLoader
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.inbox import collect_replies
from pacfl.learning.model import Vector

SECONDS_TO_START = 300.0
SIDE = "side.pickle"
MESSAGES_PER_WORKER = 4  # in each phase of a round: clients take differently long


@final
@dataclass(eq=False)
class Simulated(FlowerBackend):
    """All clients reply, or the experiment stops. Their memory is on this machine and can be checkpointed."""

    folder: Path = Path()
    n_clients: int = 0

    @property
    def memory(self) -> dict[ClientId, Message]:
        """The memory of clients."""
        stored = {c: m.before(END)[0] for c, m in self._memories().items()}
        return {c: memory for c, memory in stored.items() if memory is not None}

    @memory.setter
    def memory(self, memory: Mapping[ClientId, Message]) -> None:
        for c, own in memory.items():
            self._memories()[c].save(0, own, None, 0)

    @property
    def last_trained(self) -> dict[ClientId, Vector]:
        """The weights that clients last trained."""
        stored = {c: m.before(END)[1] for c, m in self._memories().items()}
        return {c: last for c, last in stored.items() if last is not None}

    @last_trained.setter
    def last_trained(self, last: Mapping[ClientId, Vector]) -> None:
        for c, trained in last.items():
            stored = self._memories()[c]
            stored.save(0, stored.before(END)[0] or {}, trained, 0)

    def forget(self, clients: Iterable[ClientId]) -> None:
        """Delete the memory of clients that have left for good."""
        for c in clients:
            shutil.rmtree(self.folder / self.federation / str(c), ignore_errors=True)

    def _memories(self) -> dict[ClientId, ClientMemory]:
        return {c: ClientMemory(self.folder / self.federation / str(c)) for c in range(self.n_clients)}

    def no_sum(self, t: int, clients: Sequence[ClientId], why: str) -> None:
        """Replies are lost on purpose only: all others have raised already."""

    def _fail(self, t: int, client: ClientId, what: str) -> None:
        raise NoReplyError(f"round {t + 1}, client {client}: {what}")


END = 2**62  # after every round


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated nodes, and the folder that they share with this process."""

    grid: Grid
    folder: Path

    @contextmanager
    def connect(self, setup: Setup) -> Iterator[Simulated]:
        """The clients of a setup, until the block is left."""
        import ray.cloudpickle

        if setup.pool.swap is not None:
            raise ConfigError(
                "drift: a node of Flower holds the data of one client for the whole run; use --backend local"
            )
        n_clients = len(setup.pool.client_indices)
        federation = secrets.token_hex(8)
        folder = self.folder / federation
        folder.mkdir(mode=0o700)
        with (folder / SIDE).open("wb") as file:
            pickle.dump(sys.path, file)  # plug-ins may be beside an experiment
            ray.cloudpickle.dump(setup, file)  # type: ignore[no-untyped-call]  # models are built by local functions
        nodes = {c: c + 1 for c in range(n_clients)}  # the grid sends to other ones
        yield Simulated(
            self.grid,
            setup.algorithm,
            setup.model,
            federation,
            nodes,
            metrics=setup.metrics,
            folder=self.folder,
            n_clients=n_clients,
        )


@contextmanager
def simulation(workers: int = 1) -> Iterator[Simulation]:
    """Flower's simulation with one process for each worker, until the block is left; for any number of clients."""
    logging.getLogger("flwr").setLevel(logging.ERROR)  # it warns of its own deprecations
    grids: queue.Queue[Grid | BaseException] = queue.Queue()
    over = threading.Event()
    server = ServerApp()

    def hand_over(grid: Grid, context: Context) -> None:  # noqa: ARG001 - the signature that Flower calls
        grids.put(grid)
        over.wait()

    server.main()(hand_over)
    with tempfile.TemporaryDirectory(prefix="pacfl-") as name:
        app, n_nodes = batch_app(_client_loader(Path(name))), MESSAGES_PER_WORKER * workers
        resources: Any = {"init_args": {"num_cpus": workers}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}

        def run() -> None:
            try:
                run_simulation(server, app, n_nodes, backend_config=resources)
            except BaseException as error:
                grids.put(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            grid = grids.get(timeout=SECONDS_TO_START)
            if isinstance(grid, BaseException):
                raise NoReplyError(f"Flower's simulation did not start: {grid}") from grid
            yield Simulation(cast(Grid, BatchingGrid(grid, _nodes(grid, n_nodes))), Path(name))
        finally:
            over.set()
            thread.join()


def _client_loader(folder: Path) -> ClientLoader:
    def load(context: Context, federation: str, client: ClientId) -> tuple[ClientSide, Path]:  # noqa: ARG001
        return _side(folder / federation / SIDE), folder

    return load


@lru_cache(maxsize=2)
def _side(path: Path) -> ClientSide:
    """Read once in every process. The file was written by this program."""
    with path.open("rb") as file:
        for folder in pickle.load(file):
            plugins.search_in(folder)
        return ClientSide(pickle.load(file))


def _nodes(grid: Grid, n: int) -> list[int]:
    """The nodes of the simulation, once its processes reply."""
    nodes: list[int] = []
    while len(nodes) < n:
        nodes = list(grid.get_node_ids())
    (sent,) = grid.push_messages([Envelope(packed([], {}), nodes[0], BATCH, ttl=SECONDS_TO_START)])
    reply = collect_replies(grid, {sent}, SECONDS_TO_START, 0.05).get(sent, f"no reply within {SECONDS_TO_START:g} s")
    if isinstance(reply, str):
        raise NoReplyError(f"Flower's simulation does not reply: {reply}")
    return nodes
