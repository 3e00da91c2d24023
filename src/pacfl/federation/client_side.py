"""What runs at a client: one object for all clients of a process, one call for one client."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data import DataSwap
from pacfl.errors import ConfigError, DivergedError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.label_prior import corrected, counted
from pacfl.federation.local_layers import LocalLayers
from pacfl.federation.message import ClientId, Message
from pacfl.federation.private import private_upload
from pacfl.federation.rounds import Score, score_name
from pacfl.federation.secure_sums import Layout, Words, words_of
from pacfl.learning.client_context import ClientContext, Engine, LocalTraining, Samples, SampleSubset
from pacfl.learning.eager import Eager
from pacfl.learning.engines import WithLocalSteps, build_engine
from pacfl.learning.evaluation import Metrics
from pacfl.learning.losses import find_loss
from pacfl.learning.mixture import Mixture, Weights, each, losses, mixed, mixture, models_of
from pacfl.learning.model import Model, Vector

CACHED_MODELS: Final = 16
CACHED_BYTES: Final = 2**28  # of their outputs: fewer models are cached where these are large
CACHED_SCORES: Final = 10_000
EVALUATED_AT_ONCE: Final = 64  # test samples, by an engine whose rounding depends on the batch


@dataclass(frozen=True, eq=False)
class ClientIndices:
    """A client's part of the data: rows of shared arrays."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    other_tests: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # by kind, evaluated beside the first

    @property
    def tests(self) -> dict[str | None, NDArray[np.int64]]:
        """The test samples of each kind that the client has any of; None: the primary kind."""
        named: list[tuple[str | None, NDArray[np.int64]]] = [(None, self.test), *self.other_tests.items()]
        return {kind: rows for kind, rows in named if len(rows)}


@dataclass(frozen=True, eq=False)
class Pool:
    """All clients' data: each sample once, whoever uses it."""

    train: Samples
    test: Samples
    raw: NDArray[Any]  # training samples before any preprocessing, for signatures
    client_indices: tuple[ClientIndices, ...]
    groups: NDArray[Any] | None = None  # (n,) of training samples that depend on each other, for signatures
    is_table: bool = False  # whether raw samples are rows of tables that a schema encoded
    swap: DataSwap | None = None  # of the data of some clients, in mid-run

    def indices(self, client: ClientId, t: int) -> ClientIndices:
        """The part of a client in round t, counted from 0."""
        return self.client_indices[client if self.swap is None else self.swap.source_of(client, t + 1)]


@dataclass(frozen=True, eq=False)
class Setup:
    """What clients need to train: an algorithm, a model, data, and how to train."""

    algorithm: Algorithm
    model: Model
    pool: Pool
    learning: LocalTraining
    seed: int
    device: str = "cpu"
    engine: str = "eager"
    metrics: tuple[str, ...] = ()  # beside the primary one

    @property
    def scored_by(self) -> Metrics:
        """The metrics of the loss's targets."""
        return Metrics(find_loss(self.learning.loss).targets, self.metrics)


class ClientSide:
    """The client half of an algorithm, bound to data, a model and an engine."""

    def __init__(self, setup: Setup) -> None:
        """Build the engine."""
        self.algorithm, self.model, self.pool = setup.algorithm, setup.model, setup.pool
        self.learning, self.seed, self.metrics = setup.learning, setup.seed, setup.scored_by
        self._loss = find_loss(setup.learning.loss)
        setup.algorithm.check_training(setup.learning)
        shared = setup.model.statistics & ~setup.model.local & (not setup.algorithm.local_normalisation)
        if setup.algorithm.aggregation.noise_multiplier and shared.any():
            raise ConfigError(
                "noise-multiplier adds noise to running variances, which may then be negative; leave normalisation at "
                'the clients ([model] batch-norm = "local"), or use nn.GroupNorm'
            )
        if setup.algorithm.server_optimiser is not None and shared.any():
            raise ConfigError(
                "a server optimiser takes steps with running variances, which may then be negative; leave "
                'normalisation at the clients ([model] batch-norm = "local"), or use nn.GroupNorm'
            )
        x = setup.pool.train.x
        self.engine = build_engine(
            setup.engine, setup.model, x.shape[1:], setup.device, setup.learning, integers=x.dtype.kind == "i"
        )
        self._trainer: Engine = self.engine
        if setup.engine == "auto" and not isinstance(self.engine, Eager):
            self._trainer = WithLocalSteps(self.engine, self._eager)
        self._device = setup.device
        self._predictions: OrderedDict[bytes, PredictionCache] = OrderedDict()
        self._scores: dict[tuple[ClientId, str], tuple[bytes, ClientIndices, Score]] = {}
        self._lock = threading.Lock()

    @property
    def native_seconds(self) -> float:
        """Processor seconds inside the native engine so far."""
        return float(getattr(self.engine, "seconds", 0.0))

    def _eager(self) -> Engine:
        return build_engine("eager", self.model, self.pool.train.x.shape[1:], self._device, self.learning)

    def profile(self, t: int, client: ClientId) -> Message:
        """What the client reports about its data."""
        return self.algorithm.profile(self._context(t, client))

    def train(self, t: int, client: ClientId, down: Message, memory: Message) -> tuple[Message, Message, Vector | None]:
        """Upload, memory, and the weights that the client trained: (d,), or (k, d) of a mixture's k models."""
        recorder = Recorder(self._trainer)
        layers = LocalLayers(recorder, self.model, memory)
        context = self._context(t, client, layers)
        up, after = self.algorithm.train(context, down, layers.memory)
        aggregation = self.algorithm.aggregation
        if aggregation.clip_norm is not None and not aggregation.secure:  # in a sum, words have the noise
            start, public = self.algorithm.upload_start(down), self.algorithm.public_uploads
            up = private_upload(context, up, start, public, aggregation)
        if self.algorithm.label_prior:
            up = {**up, **counted(context)}
        return up, layers.remembered(after), recorder.trained(self.algorithm.mixes)

    def words(self, t: int, client: ClientId, down: Message, up: Message, n_clients: int) -> Words:
        """The client's part of a secure sum of up to `n_clients` clients, as words that can be masked."""
        layout = Layout.of(self.algorithm, self.model, down)
        samples = len(self.pool.indices(client, t).train)
        return words_of(self.algorithm, layout, down, up, samples, n_clients, (self.seed, t, client))

    def received(self, t: int, client: ClientId, down: Message, memory: Message) -> Weights:
        """The model as the client receives it, its label prior corrected where that is asked for."""
        layers = LocalLayers(self._trainer, self.model, memory)
        context = self._context(t, client, layers)
        down = corrected(self.algorithm, context, down)
        return each(layers.complete, self.algorithm.receive(context, down, layers.memory))

    def personal(self, t: int, client: ClientId, down: Message, memory: Message) -> Weights:
        """The model after the algorithm's own personalisation, which starts from the received model."""
        layers = LocalLayers(self._trainer, self.model, memory)
        context = self._context(t, client, layers)
        down = corrected(self.algorithm, context, down)
        return each(layers.complete, self.algorithm.personalise(context, down, layers.memory))

    def evaluate(
        self,
        t: int,
        client: ClientId,
        down: Message,
        memory: Message,
        last_trained: Vector | None,
        personal: bool,
        fine_tune: int = 0,
    ) -> dict[str, Score]:
        """Scores of one client by protocol and kind of test samples; none if it has no test samples.

        Each model is trained once, and evaluated once on samples that several kinds have in common.
        """
        tests = self.pool.indices(client, t).tests
        if not tests:
            return {}
        received = self.received(t, client, down, memory)
        last: Weights | None = last_trained
        if last_trained is not None and last_trained.ndim == 2:
            last = mixture(last_trained, memory["weights"])
        models = {"received": received, "last_trained": received if last is None else last}
        if personal:
            models["personal"] = self.personal(t, client, down, memory)
        if fine_tune:
            context = self._context(t, client)
            models["fine_tuned"] = each(lambda w: context.sgd(w, epochs=fine_tune, purpose="personal")[0], received)
        return {
            score_name(protocol, kind): self._score(protocol, w, t, client, kind)
            for protocol, w in models.items()
            for kind in tests
        }

    def _score(self, protocol: str, w: Weights, t: int, client: ClientId, kind: str | None = None) -> Score:
        """The score of a model on some test samples of a client; cached for as long as the model stays the same."""
        name = score_name(protocol, kind)
        own, digest = self.pool.indices(client, t), _digest_of(w)
        cached = self._scores.get((client, name))
        if cached is None or cached[0] != digest or cached[1] is not own:
            cached = digest, own, self._evaluate(w, t, client, kind)
        with self._lock:
            self._scores.pop((client, name), None)
            self._scores[client, name] = cached  # the latest is last
            if len(self._scores) > CACHED_SCORES:
                del self._scores[next(iter(self._scores))]
        return cached[2]

    def _evaluate(self, w: Weights, t: int, client: ClientId, kind: str | None) -> Score:
        rows = self.pool.indices(client, t).tests[kind]
        outputs, by_sample = self._predictions_of(w, rows)
        loss = float(by_sample.mean(dtype=np.float64))
        if not np.isfinite(loss):
            raise DivergedError(
                f"a model evaluated at client {client} diverged by round {t + 1} (its loss is {loss}); "
                f"lower the learning rate (now {self.learning.lr}) or the momentum (now {self.learning.momentum})"
            )
        primary, others = self.metrics.evaluate(outputs, self.pool.test.y[rows])
        return Score(primary, loss, others)

    def _predictions_of(self, w: Weights, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Outputs and losses of test samples. Mixtures of different weights share what their models predicted."""
        test = self.pool.test
        predicted = [self._cache(_digest_of(own)).predictions(rows, self.engine, own, test) for own in models_of(w)]
        if not isinstance(w, Mixture):
            return predicted[0]
        outputs = mixed([own for own, _ in predicted], w.weights, self._loss.targets)
        return outputs, losses(outputs, test.y[rows], self._loss)

    def _cache(self, digest: bytes) -> "PredictionCache":
        """Clients of one cluster share a model, and often test samples: nothing is computed twice."""
        with self._lock:
            if digest not in self._predictions:
                self._predictions[digest] = PredictionCache(len(self.pool.test.y))
                while len(self._predictions) > CACHED_MODELS or self._cached_bytes() > CACHED_BYTES:
                    self._predictions.popitem(last=False)
            self._predictions.move_to_end(digest)
            return self._predictions[digest]

    def _cached_bytes(self) -> int:
        return sum(cache.nbytes for cache in self._predictions.values())

    def _context(self, t: int, client: ClientId, engine: Engine | None = None) -> ClientContext:
        rows = self.pool.indices(client, t).train
        samples = SampleSubset(self.pool.train, rows)
        key = (self.seed, t, client)
        learning = self.learning.in_round(t)
        pool = self.pool
        about = key, pool.raw, rows, pool.groups, pool.is_table
        return ClientContext(self.model, samples, learning, engine or self._trainer, *about)


def _digest_of(w: Weights) -> bytes:
    """Of the weights of a model, or of all models of a mixture and its own."""
    parts = [w.models, w.weights] if isinstance(w, Mixture) else [w]
    return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()


class PredictionCache:
    """What a model predicted for test samples so far. Two threads that ask at once may both compute it."""

    def __init__(self, n: int) -> None:
        """Nothing yet."""
        self._computed = np.zeros(n, dtype=bool)
        self._outputs: NDArray[np.float32] | None = None  # (n, outputs), as wide as the model's first ones
        self._losses = np.zeros(n, dtype=np.float32)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Of the outputs."""
        return 0 if self._outputs is None else self._outputs.nbytes

    def predictions(
        self, rows: NDArray[np.int64], engine: Engine, w: Vector, test: Samples
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The outputs of the model for the given test samples, and their losses."""
        new = rows[~self._computed[rows]]
        at_once = EVALUATED_AT_ONCE if engine.batch_dependent else max(len(new), 1)
        for start in range(0, len(new), at_once):
            part = new[start : start + at_once]
            # Batches of one size, filled up by repeating samples: other sizes may round differently
            batch = np.resize(part, at_once)
            outputs, losses = engine.evaluate(w, SampleSubset(test, batch))
            with self._lock:  # two threads may be the first
                if self._outputs is None:
                    self._outputs = np.zeros((len(self._losses), *outputs.shape[1:]), dtype=np.float32)
            self._outputs[part], self._losses[part] = outputs[: len(part)], losses[: len(part)]
        self._computed[new] = True
        assert self._outputs is not None  # rows are never empty
        return self._outputs[rows], self._losses[rows]


class Recorder:
    """An engine that remembers the weights that it trained."""

    def __init__(self, engine: Engine) -> None:
        """Wrap an engine."""
        self._engine = engine
        self.batch_dependent = engine.batch_dependent
        self._trained: list[Vector] = []

    def sgd(self, *args: Any) -> Vector:
        """Train, and remember."""
        self._trained.append(self._engine.sgd(*args))
        return self._trained[-1]

    def trained(self, mixes: bool) -> Vector | None:
        """The last weights (d,); of an algorithm that mixes models and trained several, those of all (k, d)."""
        if mixes and len(self._trained) > 1:
            return np.stack(self._trained)
        return self._trained[-1] if self._trained else None

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """As the engine."""
        return self._engine.gradient(w, samples)

    def evaluate(self, w: Vector, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """As the engine."""
        return self._engine.evaluate(w, samples)
