"""The server half: rounds with whoever is there, each kept before the next begins."""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from pacfl import algorithms
from pacfl.errors import StoreError
from pacfl.experiment.config import Run
from pacfl.experiment.store import RunFolder, owned
from pacfl.experiment.summary import record
from pacfl.federation.message import ClientId
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import RoundPlan
from pacfl.flower import settings, status
from pacfl.flower.backend import Flower, by_protocol
from pacfl.flower.members import ByPartition, Members, by_key, wait_for
from pacfl.flower.site import model_of
from pacfl.learning.randomness import stream

log = logging.getLogger("pacfl")

SECONDS_FOR_THE_FORMER = 60.0


def federate(grid: Grid, context: Context) -> None:
    """Play the federation that the run asks for, or go on with it from where the last run came to."""
    asked, run = settings.read(context.run_config)
    folder = RunFolder(asked.path)
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _owned_in_time(folder), logged(folder.path / "server.log"):
        try:
            play(grid, asked, run, folder)
        except Exception as error:
            status.failed(folder.path, error)
            raise


@contextmanager
def _owned_in_time(folder: RunFolder) -> Iterator[None]:
    """The server of a run that was killed with its SuperLink takes a while to notice."""
    end = time.monotonic() + SECONDS_FOR_THE_FORMER
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(owned(folder))
                break
            except StoreError:
                if time.monotonic() > end:
                    raise
        yield


def play(grid: Grid, asked: settings.Federation, run: Run, folder: RunFolder) -> None:
    """All rounds that are still to be played."""
    before = _before(folder, run)
    algorithm, model = algorithms.build(**run.algorithm), model_of(asked.task, run)
    members = Members(dict(before.get("clients", {})))
    backend = Flower(
        grid,
        algorithm,
        model,
        before.get("federation") or secrets.token_hex(8),
        nodes=members.nodes,
        deadline=asked.deadline,
        poll=asked.poll,
        evaluate_in_training=True,
        safe=max(int(before.get("round", 0)) - 1, 0),
    )
    state = before.get("state") or algorithm.init_server(model)
    start = int(before.get("round", 0))
    backend.remember({"basis": basis} for basis in getattr(state, "bases", {}).values())
    folder.truncate_records(start)
    log.info("federation %s: round %d of %d is next", backend.federation, start, run.schedule.rounds)
    records = folder.records()
    clusters, trained = dict(state.cluster_of), sum(bool(record["sampled"]) for record in records)
    board = status.Board(folder.path, run.schedule.rounds, members, backend, clusters, trained)
    look = by_key if asked.identity == "key" else ByPartition()
    live = Live(run, members, board, lambda: look(grid), asked.minimum_clients, records)
    for played in rounds(algorithm, backend, state, live.round_plans(), start):
        kept = _record(played, backend)
        del backend.reply_errors[:-1]  # they are recorded
        folder.append(kept)
        folder.save_checkpoint(
            {
                "round": played.t + 1,
                "run": _identity(run),
                "federation": backend.federation,
                "clients": dict(members.number_of),
                "state": played.state,
            }
        )
        backend.safe = played.t  # this checkpoint may turn out to be damaged, and then the one before counts
        members.introduced(played.t, set(played.plan.joining), set(played.state.cluster_of))
        board.played(played.t, dict(played.state.cluster_of), kept)
    board.finished()


@dataclass(eq=False)
class Live:
    """A schedule that is made as it goes, of those who are there."""

    run: Run
    members: Members
    board: status.Board
    look: Callable[[], dict[str, int]]
    minimum: int
    before: Sequence[Mapping[str, Any]]  # records of the rounds that earlier runs played

    def round_plans(self) -> Iterator[RoundPlan]:
        """As many trainings as the run asks for, less those of before, and a round in which all present are judged."""
        yield from (RoundPlan() for _ in self.before)
        had_ended = bool(self.before) and not self.before[-1]["sampled"]
        trainings = max(self.run.schedule.rounds - self.board.trained, 0)
        if had_ended and not trainings:
            return
        start = len(self.before)
        for t in range(start, start + trainings + 1):
            present = wait_for(self.members, self.look, t, self.minimum, self.board.waiting)
            joining = tuple(c for c in present if c not in self.board.cluster_of)
            self.board.playing()
            if t < start + trainings:
                yield RoundPlan(joining=joining, sampled=self._drawn(t, present))
            else:
                yield RoundPlan(joining=joining, evaluated=tuple(present), personal=True)

    def _drawn(self, t: int, present: list[ClientId]) -> tuple[ClientId, ...]:
        """As many as the schedule asks for, drawn by the seed and the round."""
        n = max(round(self.run.schedule.participation * len(present)), 1)
        return tuple(sorted(stream(self.run.seed, "sample", t).choice(present, n, replace=False).tolist()))


def _before(folder: RunFolder, run: Run) -> dict[str, Any]:
    before = folder.load_checkpoint() or {}
    if before and before["run"] != _identity(run):
        raise StoreError(
            f"{folder.path} holds a federation with other settings; give federation.folder another name, "
            "or the settings of before"
        )
    return before


def _identity(run: Run) -> dict[str, Any]:
    """What may not change while a federation goes on; the number of rounds may."""
    content = run.content()
    content["schedule"] = {key: value for key, value in content["schedule"].items() if key != "rounds"}
    return content


def _record(played: Round, backend: Flower) -> dict[str, Any]:
    """What is kept of a round: scores of the models as sent down piggybacked in with the uploads."""
    piggybacked: dict[ClientId, Any] = {} if played.scores else backend.piggybacked
    scored = Round(
        played.t,
        played.plan,
        played.state,
        played.scores or by_protocol(piggybacked),
        played.bytes_down,
        played.bytes_up,
    )
    reply_errors = [{"client": x.client, "what": x.what} for x in backend.reply_errors if x.round == played.t]
    return {**record(scored, None), "at": round(time.time(), 3), "reply_errors": reply_errors}


class logged:  # noqa: N801 - used as a word
    """Lines of the log also go into a file, with the time."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._handlers: list[logging.Handler] = [logging.FileHandler(path), logging.StreamHandler()]
        for handler in self._handlers:
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def __enter__(self) -> None:
        log.setLevel(logging.INFO)
        for handler in self._handlers:
            log.addHandler(handler)

    def __exit__(self, *_: object) -> None:
        for handler in self._handlers:
            log.removeHandler(handler)
            handler.close()
