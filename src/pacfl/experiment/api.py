"""Experiments from Python: the user's own data, module and algorithm."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec

from torch import nn

from pacfl.data import Normalise
from pacfl.errors import ConfigError, ModelError, StoreError
from pacfl.experiment import description
from pacfl.experiment.callbacks import Callback, EarlyStopping, watching
from pacfl.experiment.execution import Record, execute
from pacfl.experiment.models import LoadedModels, read_models
from pacfl.experiment.own_data import Channels, Clients, NamedClients, gather
from pacfl.experiment.own_run import OwnRun, divided_digest
from pacfl.experiment.records import Client, RoundRecord, read_record
from pacfl.experiment.result import Result, read_result
from pacfl.experiment.run import assemble
from pacfl.experiment.store import RunFolder, RunMemory, folder_of, owned
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.local import LocalBackend
from pacfl.federation.schedule import Schedule
from pacfl.learning.model import BatchNorm
from pacfl.learning.settings import LocalTraining

ByRound = Mapping[int, Sequence[Client]] | None  # clients named in a round, counted from 1
Callbacks = Sequence[Callback | EarlyStopping]
P = ParamSpec("P")


def rounds(
    clients: Clients,
    module: Callable[[], nn.Module],
    algorithm: Algorithm,
    training: LocalTraining | None = None,
    *,
    rounds: int = 50,
    participation: float = 0.1,
    evaluate_every: int = 0,
    personal_every: int = 0,
    newcomers: int = 0,
    fine_tune: int = 5,
    client_dropout: float = 0.0,
    joins: ByRound = None,
    leaves: ByRound = None,
    reprofile: ByRound = None,
    final_personal: bool = True,
    seed: int = 0,
    workers: int = 1,
    engine: str = "auto",
    device: str = "cpu",
    channels: Channels | None = None,
    normalise: Normalise = "auto",
    batch_norm: BatchNorm = "averaged",
    metrics: Sequence[str] = (),
    runs: str | Path | None = None,
    callbacks: Callbacks = (),
) -> Iterator[RoundRecord | Result]:
    """Train as `federate` does, with the same arguments, round by round: an iterator.

    Returns
    -------
    A `RoundRecord` for each round, for the final evaluation and for that of newcomers; last, the `Result`.

    >>> import numpy as np, torch, pacfl
    >>> x, y = np.eye(4), np.arange(4) % 2
    >>> steps = pacfl.rounds([(x, y, x, y)] * 3, lambda: torch.nn.Linear(4, 2), pacfl.FedAvg(), rounds=2)
    >>> [step.round for step in steps if isinstance(step, pacfl.RoundRecord)]
    [1, 2, 3]

    """
    data = gather(clients, channels)
    named = {"joins": joins, "leaves": leaves, "reprofile": reprofile}
    schedule = Schedule(
        rounds=rounds,
        participation=participation,
        evaluate_every=evaluate_every,
        personal_every=personal_every,
        newcomers=newcomers,
        fine_tune=fine_tune,
        client_dropout=client_dropout,
        final_personal=final_personal,
        **{name: data.numbers(name, by_round or {}) for name, by_round in named.items()},
    )
    if isinstance(module, nn.Module):
        raise ModelError("module must be a function that builds it, got a module; write lambda: nn.Sequential(...)")
    stopping = tuple(own for own in callbacks if isinstance(own, EarlyStopping))
    if stopping and not evaluate_every:
        raise ConfigError("EarlyStopping looks at evaluations; set evaluate_every to the rounds between them")
    experiment = assemble(
        data.dataset,
        data.partition,
        lambda _: module(),
        algorithm,
        training or LocalTraining(),
        schedule,
        seed,
        device=device,
        engine=engine,
        metrics=tuple(metrics),
        normalise=normalise,
        batch_norm=batch_norm,
    )
    run = OwnRun(experiment, stopping, stored=runs is not None)
    return _run(run, data, workers, runs, callbacks)


def _run(
    run: OwnRun,
    data: NamedClients,
    workers: int,
    runs: str | Path | None,
    callbacks: Sequence[Callback | EarlyStopping],
) -> Iterator[RoundRecord | Result]:
    """The rounds that are missing, then the result; of a finished run the result alone."""
    experiment, backend = run.experiment, LocalBackend(workers)
    n_rounds = experiment.schedule.rounds
    look = watching(callbacks, stored=runs is not None)
    ended: list[int] = []  # the round after which a callback ended training

    def read(record: Record) -> RoundRecord:
        return read_record(record, data.names, ended[0] if ended else n_rounds)

    def watch(record: Record) -> bool:
        ends = look(read(record))
        if ends and not ended:
            ended.append(record["round"])
        return ends

    def missing(store: RunFolder | RunMemory) -> Iterator[RoundRecord]:
        store.describe("environment", description.environment())
        digest = divided_digest(data.dataset, data.partition)
        names = None if data.names == tuple(range(len(data.names))) else data.names
        store.describe("clients", description.clients(data.dataset, data.partition, digest, names))
        for record in execute(experiment, store, run.identity(), backend, watch=watch):
            if "round" in record:
                yield read(record)

    if runs is None:
        memory = RunMemory()
        yield from missing(memory)
        yield _result(run, data, memory)
        return
    folder = folder_of(run, Path(runs))
    if not folder.is_tidy:
        with owned(folder):
            if folder.result() is None:
                yield from missing(folder)
            folder.tidy()
    yield _result(run, data, folder)


def _result(run: OwnRun, data: NamedClients, store: RunFolder | RunMemory) -> Result:
    setup = run.experiment.setup

    def models() -> LoadedModels:
        content = store.load_models()
        if content is None:
            raise StoreError("the stored run has no models; delete its folder to run it again")
        return LoadedModels(read_models(content, "the run"), setup.model, setup)

    return read_result(store, run.content(), models, data.names)


def _to_the_end(run: Callable[P, Iterator[RoundRecord | Result]]) -> Callable[P, Result]:
    """A function with the arguments of `rounds` that returns its last item."""

    def federate(*args: P.args, **options: P.kwargs) -> Result:  # noqa: D417 - those of rounds
        """Train a federation; the result has its rounds, its clusters and its models.

        Parameters
        ----------
        clients : a mapping from names to data, or a list; clients of a list are named 0, 1, ... The data of a client
            are (x_train, y_train, x_test, y_test), (x, y) without test data, a torch `Dataset` of (sample, target),
            or two, for training and for testing. Or all data at once: a `pacfl.Dataset` and a `pacfl.partition` of it.
            A client without test data is trained with, and not evaluated.
        module : a class or function that builds the `nn.Module` when it is called without arguments. The module takes
            (n, features), or images as (n, channels, h, w), and returns one logit for each class.
        algorithm : such as `pacfl.PACFL()` or `pacfl.FedAvg()`.
        training : how clients train, a `pacfl.LocalTraining`.
        rounds : rounds of training.
        participation : the share of the clients present that train in a round.
        evaluate_every : rounds between evaluations; 0 evaluates at the end only.
        personal_every : the same for evaluations after personalisation.
        final_personal : whether the evaluation at the end is also after personalisation.
        newcomers : clients, drawn by the seed, that join after the last round.
        fine_tune : epochs for which newcomers fine-tune the model that they receive.
        client_dropout : the probability that a reply is lost.
        joins, leaves, reprofile : for a round, counted from 1: the clients that join, that leave before it, and whose
            data have drifted, so that they send a new profile.
        seed : decides everything that is random. The same seed gives the same bits.
        workers : clients that train at once; results do not depend on it.
        engine : "auto", "native" (compiled) or "eager" (torch).
        device : where clients train, such as "cpu".
        channels : where images have their channels, "first" or "last". By default last in arrays, and first in the
            samples of a torch `Dataset`. Nothing is guessed from sizes.
        normalise : what is normalised to mean 0 and standard deviation 1 over all training samples: "channel",
            "feature", or "none", for example for tokens; "auto" is channels of images and columns of tables.
        batch_norm : whether layers with running statistics are "averaged" as others, or "local": at every client.
        metrics : metrics beside the primary one, such as "balanced-accuracy".
        runs : a folder in which the run is stored. The same call resumes an interrupted run, and returns the stored
            result of a finished one. `pacfl ls`, `pacfl show` and `pacfl report` show it.
        callbacks : functions of a `RoundRecord`, called after every round, such as `print`. One that returns
            `pacfl.STOP` ends training; so does `pacfl.EarlyStopping`. The end is evaluated as usual. A run that is
            resumed shows them its stored rounds first.

        Returns
        -------
        A `Result`.

        >>> import numpy as np, torch, pacfl
        >>> def client(i):
        ...     x = np.random.default_rng(i).normal(size=(60, 8)) + 4 * np.eye(8)[i % 2]
        ...     return x[:40], x[:40, 4:6].argmax(axis=1), x[40:], x[40:, 4:6].argmax(axis=1)
        >>> clients = {name: client(i) for i, name in enumerate("abcdef")}
        >>> result = pacfl.federate(clients, lambda: torch.nn.Linear(8, 2), pacfl.PACFL(clusters=2), rounds=5)
        >>> dict(result.clusters)
        {'a': 0, 'b': 1, 'c': 0, 'd': 1, 'e': 0, 'f': 1}
        >>> result.module("a")
        Linear(in_features=8, out_features=2, bias=True)

        """
        *_, result = run(*args, **options)
        assert isinstance(result, Result)  # the last item always is
        return result

    federate.__qualname__ = "federate"
    federate.__signature__ = inspect.signature(run).replace(return_annotation=Result)  # type: ignore[attr-defined]
    return federate


federate = _to_the_end(rounds)
