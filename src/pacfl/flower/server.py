"""The server side: rounds with the clients that are connected, each stored before the next starts."""

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from pacfl.errors import StoreError
from pacfl.experiment.config import Run
from pacfl.experiment.store import RunFolder, owned
from pacfl.experiment.summary import record, trained
from pacfl.federation.label_prior import settled
from pacfl.federation.message import ClientId
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import RoundPlan
from pacfl.flower import delivery, model_identity, settings, status
from pacfl.flower.attendance import Attendance
from pacfl.flower.backend import FlowerBackend, by_protocol
from pacfl.flower.client_registry import ClientRegistry, Node, NodesByPartition, nodes_by_key, wait_for_clients
from pacfl.flower.event_log import info, log_to, warning
from pacfl.flower.pauses import Pauses
from pacfl.flower.site import load_model
from pacfl.learning.evaluation import Metrics
from pacfl.learning.losses import find_loss
from pacfl.learning.model import Model
from pacfl.learning.randomness import stream

SECONDS_FOR_FORMER_RUN = 60.0
LONGEST_PAUSE = 60.0  # seconds between two rounds without an update, or deliveries to a client that does not reply


def federate(grid: Grid, context: Context) -> None:
    """Run the federation of a Flower run, or resume it after the last round of the former run."""
    deployment, run = settings.read(context.run_config)
    folder = RunFolder(deployment.path)
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _own_folder(folder), log_to(folder.path / "server.log", deployment.log):
        try:
            run_federation(grid, deployment, run, folder)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            status.ended(folder.path, error)
            raise


def run_federation(grid: Grid, deployment: settings.DeploymentSettings, run: Run, folder: RunFolder) -> None:
    """Run all remaining rounds."""
    checkpoint = _load_checkpoint(folder, run)
    start = int(checkpoint.get("round", 0))
    model, required = load_model(deployment.task, run), run.algorithm.get("label_prior") is True
    _check_model(folder, checkpoint, model)
    algorithm, note = settled(run.build_algorithm(), model, run.learning.loss, required=required)
    if note:
        warning(note, "label-prior")
    metrics = Metrics(find_loss(run.learning.loss).targets, run.metrics)
    registry = ClientRegistry.restored(checkpoint.get("clients", {}), Path.cwd())
    backend = FlowerBackend(
        grid,
        algorithm,
        model,
        checkpoint.get("federation") or secrets.token_hex(8),
        nodes=registry.nodes,
        names=registry.names,
        key_of=registry.key_of,
        paused=registry.paused,
        deadline=deployment.deadline,
        poll=deployment.poll,
        evaluate_in_training=True,
        metrics=run.metrics,
        safe=max(start - 1, 0),
    )
    state = algorithm.planned(checkpoint.get("state") or algorithm.init_server(model), run.schedule.rounds)
    folder.truncate_records(start)
    message = f"federation {backend.federation}: round {start + 1} of {run.schedule.rounds} is next"
    info(message, "started", federation=backend.federation, round=start + 1, rounds=run.schedule.rounds)
    former = folder.records()
    n_trained = sum(map(trained, former))
    file = status.StatusFile(
        *(folder.path, run.schedule.rounds, registry, backend, dict(state.cluster_of), n_trained, metrics.primary),
        attendance=Attendance.of(former),
    )
    find_nodes = nodes_by_key if deployment.identity == "key" else NodesByPartition()
    pauses = Pauses(grid, registry)

    def connected() -> dict[str, Node]:
        pauses.look()
        return find_nodes(grid)

    schedule = LiveSchedule(folder.path, deployment, run, registry, file, connected, former)
    with file.beating():
        for done in rounds(algorithm, backend, state, schedule.round_plans(), start):
            recorded = _record(done, backend, metrics, registry)
            del backend.reply_failures[:-1]  # they are recorded
            folder.append(recorded)
            folder.save_checkpoint(
                {
                    "round": done.t + 1,
                    "run": _settings(run),
                    "task": deployment.task,
                    "model": model_identity.shapes(model),
                    "federation": backend.federation,
                    "clients": registry.described(),
                    "state": done.state,
                }
            )
            backend.safe = done.t  # should this checkpoint turn out to be damaged, the previous one is used
            registry.joined(done.t, set(done.plan.joining), set(done.state.cluster_of))
            registry.replied(done.t, set(done.plan.sampled), backend.silent)
            schedule.note(recorded, frozenset(backend.answered))
            file.round_finished(done.t, dict(done.state.cluster_of), recorded)
    file.finished(schedule.undelivered)


@dataclass(eq=False)
class LiveSchedule:
    """A schedule that is made round by round, of the clients that are connected."""

    folder: Path
    deployment: settings.DeploymentSettings
    run: Run
    registry: ClientRegistry
    status: status.StatusFile
    find_nodes: Callable[[], dict[str, Node]]
    former: Sequence[Mapping[str, Any]]  # records of rounds of former runs
    delivered: set[ClientId] = field(default_factory=set)  # who has stored its models since the last training

    def __post_init__(self) -> None:
        for one in self.former:
            self.note(one)

    def note(self, record: Mapping[str, Any], answered: Set[ClientId] = frozenset()) -> None:
        """Take a stored round into account; answered: who was evaluated in it, with its models stored or not."""
        self.delivered = set() if trained(record) else self.delivered | set(record.get("delivered", ())) | answered

    def round_plans(self) -> Iterator[RoundPlan]:
        """The remaining rounds of training, one in which all available clients are evaluated, and late deliveries."""
        yield from (RoundPlan() for _ in self.former)
        t = count(len(self.former))
        had_finished = bool(self.former) and "delivered" in self.former[-1]
        remaining = max(self.run.schedule.rounds - self.status.trained, 0)
        yield from self._training(t)
        if remaining or not had_finished:
            _, available, joining = yield from self._wait(t)
            yield RoundPlan(joining=joining, evaluated=tuple(available), personal=True)
            delivery.requested(self.folder, take=True)  # everybody has just got them
        yield from self._requested(t)
        yield from self._late(t)

    def _training(self, t: Iterator[int]) -> Iterator[RoundPlan]:
        """Rounds of training, until enough of them had an update; after one without there is a pause, ever longer."""
        pause = 1.0
        while (before := self.status.trained) < self.run.schedule.rounds:
            yield from self._requested(t)
            now, available, joining = yield from self._wait(t)
            yield RoundPlan(joining=joining, sampled=self._sample(now, available))
            if self.status.trained > before:
                pause = 1.0
            else:
                message = f"round {now + 1} had no update and does not count; the next is in {pause:g} s"
                warning(message, "round-without-update", round=now + 1, pause=pause)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    @property
    def undelivered(self) -> list[ClientId]:
        """Clients that have not stored the present models, without those that were removed."""
        return sorted(self.status.cluster_of.keys() - self.delivered - self.registry.removed)

    def _wait(
        self, rounds: Iterator[int]
    ) -> Generator[RoundPlan, None, tuple[int, list[ClientId], tuple[ClientId, ...]]]:
        """The next round, the clients for it once there are enough of them, and those of them that are new.

        Newcomers that have failed to join, and without whom there are too few, are asked to join apart from it: a round
        of training is not spent on them.
        """
        while True:
            t, minimum = next(rounds), self.deployment.awaited(first=not self.status.cluster_of)
            available, due = wait_for_clients(self.registry, self.find_nodes, t, minimum, self.status.waiting)
            newcomers = tuple(c for c in due if c not in self.status.cluster_of)
            if not newcomers:
                break
            yield RoundPlan(joining=newcomers)
        self.status.running()
        chosen = sorted({*available, *due})
        return t, chosen, tuple(c for c in chosen if c not in self.status.cluster_of)

    def _requested(self, t: Iterator[int]) -> Iterator[RoundPlan]:
        """An evaluation of everybody, which delivers models, if the operator has asked for one."""
        if delivery.requested(self.folder):
            _, available, joining = yield from self._wait(t)
            self.delivered = set()
            yield RoundPlan(joining=joining, evaluated=tuple(available), personal=True)
            delivery.requested(self.folder, take=True)

    def _late(self, t: Iterator[int]) -> Iterator[RoundPlan]:
        """Evaluations that deliver models to clients that were away at the end, when they return."""
        end, pause = time.monotonic() + self.deployment.delivery, 1.0
        while (missing := self.undelivered) and time.monotonic() < end:
            self.registry.update(self.find_nodes())
            here = tuple(c for c in missing if c in self.registry.nodes.keys() - self.registry.paused)
            if here:
                next(t)
                yield RoundPlan(evaluated=here, personal=True)
                if not self.delivered & set(here):
                    pause = min(2 * pause, LONGEST_PAUSE)  # connected, but without a valid reply
            if self.undelivered:
                self.status.delivering()
                time.sleep(min(pause, max(end - time.monotonic(), 0.0)))

    def _sample(self, t: int, available: list[ClientId]) -> tuple[ClientId, ...]:
        """The scheduled share of clients, drawn by the seed and the round."""
        n = max(round(self.run.schedule.participation * len(available)), 1)
        return tuple(sorted(stream(self.run.seed, "sample", t).choice(available, n, replace=False).tolist()))


def _load_checkpoint(folder: RunFolder, run: Run) -> dict[str, Any]:
    checkpoint = folder.load_checkpoint() or {}
    if not all(isinstance(about, Mapping) for about in checkpoint.get("clients", {}).values()):
        raise StoreError(f"{folder.path} is of a pacfl whose sites had no names; choose another federation.folder")
    if checkpoint and checkpoint["run"] != _settings(run):
        raise StoreError(
            f"{folder.path} has a federation with other settings; choose another federation.folder, "
            "or restore its settings"
        )
    return checkpoint


def _check_model(folder: RunFolder, checkpoint: Mapping[str, Any], model: Model) -> None:
    """Refuse to continue with another model, of which no client could use the weights."""
    here = model_identity.shapes(model)
    if found := model_identity.differences(checkpoint.get("model", here), here):
        raise StoreError(
            f"{folder.path} has a federation of another model: {found}; restore build_model as it was, or choose "
            "another federation.folder"
        )


def _settings(run: Run) -> dict[str, Any]:
    """The settings that may not change while a federation runs; the number of rounds may."""
    content = run.content()
    content["schedule"] = {key: value for key, value in content["schedule"].items() if key != "rounds"}
    return content


def _record(done: Round, backend: FlowerBackend, metrics: Metrics, registry: ClientRegistry) -> dict[str, Any]:
    """The record of a round; scores of the received models come with the uploads."""
    scored = replace(done, scores=done.scores or (by_protocol(backend.piggybacked) if done.updates else {}))
    failures = [{"client": x.client, "what": x.what} for x in backend.reply_failures if x.round == done.t]
    delivered = {"delivered": sorted(backend.delivered)} if done.plan.personal else {}
    recorded = record(scored, None, metrics)
    missing = {"reply_failures": failures, "away": registry.away(), "paused": sorted(registry.paused)}
    at = {"updates": done.updates, "at": round(time.time(), 3)}
    return {**recorded, **at, **missing, **delivered}


@contextmanager
def _own_folder(folder: RunFolder) -> Iterator[None]:
    """Own the folder; the server of a run that was killed with its SuperLink takes a while to end."""
    end = time.monotonic() + SECONDS_FOR_FORMER_RUN
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(owned(folder))
                break
            except StoreError:
                if time.monotonic() > end:
                    raise
        yield
