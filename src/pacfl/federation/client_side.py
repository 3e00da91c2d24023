"""What runs at a client: one object for all clients of a process, one call for one client."""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DivergedError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Score
from pacfl.learning.client_context import ClientContext, Engine, LocalTraining, Samples, SampleSubset
from pacfl.learning.model import Model, Vector

REMEMBERED_MODELS = 16
REMEMBERED_SCORES = 10_000
ASKED_AT_ONCE = 64  # test samples, of an engine that rounds otherwise in batches of other sizes


@dataclass(frozen=True, eq=False)
class ClientIndices:
    """A client's part of the data: rows of shared arrays."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pool:
    """All clients' data: each sample once, whoever uses it."""

    train: Samples
    test: Samples
    raw: NDArray[Any]  # training samples before any preparation, for signatures
    client_indices: tuple[ClientIndices, ...]


@dataclass(eq=False)
class ClientSide:
    """The client half of an algorithm, bound to data, a model and an engine."""

    algorithm: Algorithm
    model: Model
    pool: Pool
    learning: LocalTraining
    engine: Engine
    seed: int
    _told: OrderedDict[bytes, "Told"] = field(default_factory=OrderedDict)
    _scores: dict[tuple[ClientId, str], tuple[bytes, Score]] = field(default_factory=dict)
    _turns: threading.Lock = field(default_factory=threading.Lock)

    def profile(self, t: int, client: ClientId) -> Message:
        """What the client tells of its data."""
        return self.algorithm.profile(self._task(t, client))

    def train(self, t: int, client: ClientId, down: Message, memory: Message) -> tuple[Message, Message, Vector | None]:
        """Upload, memory, and the weights that the client trained."""
        recorder = Recorder(self.engine)
        up, memory = self.algorithm.train(self._task(t, client, recorder), down, memory)
        return up, memory, recorder.last

    def evaluate(
        self,
        t: int,
        client: ClientId,
        down: Message,
        memory: Message,
        last: Vector | None,
        personal: bool,
        fine_tune: int = 0,
    ) -> dict[str, Score]:
        """Scores of one client by protocol; none if it has no test samples."""
        if not len(self.pool.client_indices[client].test):
            return {}
        context = self._task(t, client)
        received = self.algorithm.receive(context, down, memory)
        judged = {"received": received, "last_trained": received if last is None else last}
        if personal:
            judged["personal"] = self.algorithm.personalise(context, down, memory)
        if fine_tune:
            judged["fine_tuned"], _ = context.sgd(received, epochs=fine_tune, purpose="personal")
        return {protocol: self._score(protocol, w, t, client) for protocol, w in judged.items()}

    def _score(self, protocol: str, w: Vector, t: int, client: ClientId) -> Score:
        """The score of a model at a client; the same as last time if it is the same model."""
        name = hashlib.blake2b(w.tobytes(), digest_size=16).digest()
        told = self._scores.get((client, protocol))
        if told is None or told[0] != name:
            told = name, self._judged(name, w, t, client)
        with self._turns:
            self._scores.pop((client, protocol), None)
            self._scores[client, protocol] = told  # the latest stands last
            if len(self._scores) > REMEMBERED_SCORES:
                del self._scores[next(iter(self._scores))]
        return told[1]

    def _judged(self, name: bytes, w: Vector, t: int, client: ClientId) -> Score:
        right, losses = self._tell(name).at(self.pool.client_indices[client].test, self.engine, w, self.pool.test)
        loss = float(losses.mean(dtype=np.float64))
        if not np.isfinite(loss):
            raise DivergedError(
                f"a model judged at client {client} diverged by round {t} (its loss is {loss}); "
                f"lower the learning rate (now {self.learning.lr}) or the momentum (now {self.learning.momentum})"
            )
        return Score(float(right.mean()), loss)

    def _tell(self, name: bytes) -> "Told":
        """Clients of one cluster share a model, and often test samples: nothing is computed twice."""
        with self._turns:
            if name not in self._told:
                self._told[name] = Told(len(self.pool.test.y))
                if len(self._told) > REMEMBERED_MODELS:
                    self._told.popitem(last=False)
            self._told.move_to_end(name)
            return self._told[name]

    def _task(self, t: int, client: ClientId, engine: Engine | None = None) -> ClientContext:
        rows = self.pool.client_indices[client].train
        samples = SampleSubset(self.pool.train, rows)
        key = (self.seed, t, client)
        return ClientContext(self.model, samples, self.learning, engine or self.engine, key, self.pool.raw, rows)


class Told:
    """What a model said of test samples so far. Two threads that ask at once may both compute it: it is the same."""

    def __init__(self, n: int) -> None:
        """Nothing yet."""
        self._known = np.zeros(n, dtype=bool)
        self._right = np.zeros(n, dtype=bool)
        self._losses = np.zeros(n, dtype=np.float32)

    def at(
        self, rows: NDArray[np.int64], engine: Engine, w: Vector, test: Samples
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Right or wrong, and the loss, of the given test samples."""
        new = rows[~self._known[rows]]
        at_once = ASKED_AT_ONCE if engine.batch_dependent else max(len(new), 1)
        for start in range(0, len(new), at_once):
            part = new[start : start + at_once]
            # Always as many at once, some of them again: batches of other sizes may round otherwise
            asked = np.resize(part, at_once)
            right, losses = engine.losses(w, SampleSubset(test, asked))
            self._right[part], self._losses[part] = right[: len(part)], losses[: len(part)]
        self._known[new] = True
        return self._right[rows], self._losses[rows]


class Recorder:
    """An engine that remembers the last weights it trained."""

    def __init__(self, engine: Engine) -> None:
        """Wrap an engine."""
        self._engine = engine
        self.batch_dependent = engine.batch_dependent
        self.last: Vector | None = None

    def sgd(self, *args: Any) -> Vector:
        """Train, and remember."""
        self.last = self._engine.sgd(*args)
        return self.last

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """As the engine."""
        return self._engine.gradient(w, samples)

    def losses(self, w: Vector, samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """As the engine."""
        return self._engine.losses(w, samples)
