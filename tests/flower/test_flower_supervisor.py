"""Whatever has died is started again: the run resumes, and no round is lost or doubled."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from flwr.app import Message
from test_flower_server import NODES, config, records, state_of

from pacfl.errors import DeployError
from pacfl.flower import health
from pacfl.flower.deploy import layout, loopback, processes, supervisor
from pacfl.flower.message_types import TRAIN
from pacfl.flower.server import federate
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.small_federation import lively, same

pytestmark = pytest.mark.usefixtures("identity")


class Killed(BaseException):
    """The server app is killed: it says nothing any more."""


class Killing(FakeGrid):
    """A grid whose server app is killed when it receives replies of a round."""

    at = "2"

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = super().pull_messages(message_ids)
        if any(r.metadata.message_type == TRAIN and r.metadata.group_id == self.at for r in replies):
            raise Killed
        return replies


class OverError(Exception):
    """The supervisor has looked often enough."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the supervisor has slept; it looks thirty times."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 30:
            raise OverError

    monkeypatch.setattr(supervisor.time, "sleep", sleep)
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: sum(slept))
    return slept


def server(folder: Path, rounds: int = 4) -> Path:
    """The folder of a server whose federation has so many rounds."""
    layout.make(folder, ["0", "1"], settings={"schedule": {"rounds": rounds, "participation": 1.0}})
    return folder / "server"


def actions(folder: Path) -> Iterator[str]:
    with suppress(OverError):
        yield from supervisor.supervise(folder)


def test_a_killed_server_app_resumes_and_no_round_is_lost_or_doubled(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, load = server(tmp_path / "d"), client_loader(lively("scaffold"), tmp_path / "memory")
    begun = []

    def begin_at(folder: Path) -> str:
        begun.append(sum(clock))
        grid = Killing if len(begun) == 1 else FakeGrid
        with suppress(Killed):
            federate(grid(load, NODES), config(folder / "federation", "scaffold"))
        return str(len(begun))

    monkeypatch.setattr(loopback, "begin_at", begin_at)
    now = health.time.time()
    monkeypatch.setattr(health.time, "time", lambda: now + sum(clock))
    assert list(actions(where)) == ["started run 1", "started run 2"], "it is left alone when it has finished"
    assert begun == [0.0, 30.0], "its last sign of life was then more than 25 s ago"
    assert [record["round"] for record in records(where / "federation")] == [1, 2, 3, 4, 5]
    federate(FakeGrid(client_loader(lively("scaffold"), tmp_path / "m"), NODES), config(tmp_path / "whole", "scaffold"))
    assert same(state_of(where / "federation"), state_of(tmp_path / "whole"))


@pytest.mark.usefixtures("clock")
def test_a_run_that_ends_again_and_again_is_started_less_and_less(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses of 10, 20, 40, 80 s; a look is every 10 s."""
    begun = []

    def begin_at(_: Path) -> str:
        begun.append(sum(clock))
        raise DeployError("the server is not there")

    monkeypatch.setattr(loopback, "begin_at", begin_at)
    said = list(actions(server(tmp_path / "d")))
    assert begun == [0.0, 10.0, 30.0, 70.0, 150.0]
    assert said[1] == "run did not start, next attempt in 20 s: the server is not there"


def test_pauses_have_an_end_and_are_forgotten(clock: list[float]) -> None:
    attempts = supervisor.Attempts()
    for _ in range(20):
        attempts.note("run")
    assert attempts.pause("run") == supervisor.LONGEST
    clock.append(supervisor.LONGEST)
    attempts.note("run")
    assert attempts.pause("run") == supervisor.LOOK


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was started of a deployment of two sites, without processes."""
    done: list[str] = []

    def starts(what: str) -> Callable[..., str]:
        def start(_: Path, *more: str) -> str:
            done.append(" ".join([what, *more]))
            return done[-1]

        return start

    for name, what in (("start_server", "server"), ("join", "site"), ("begin", "run")):
        monkeypatch.setattr(loopback, name, starts(what))
    return done


@pytest.mark.parametrize(
    ("running", "phase", "expected"),
    [
        ((), None, ["server", "site 0", "site 1", "run"]),
        (("server", "site-0", "site-1"), "running", []),
        (("server", "site-0"), "running", ["site 1"]),
        (("server", "site-0", "site-1"), "failed", ["run"]),
        (("server", "site-0", "site-1"), "stopped", ["run"]),
        (("site-0", "site-1"), "running", ["server", "run"]),
        (("server", "site-0", "site-1"), "starting", []),
        (("server", "site-0", "site-1"), "finished", []),
        (("server", "site-0", "site-1"), "killed", ["run"]),
        (("server", "site-0", "site-1"), "more rounds", ["run"]),
    ],
)
def test_up_and_supervise_start_what_is_missing(
    running: tuple[str, ...],
    phase: str | None,
    expected: list[str],
    tmp_path: Path,
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = server(tmp_path / "d") / "federation"
    monkeypatch.setattr(processes, "running", lambda _: dict.fromkeys(running, 1))
    if phase is not None:
        where.mkdir()
        known = {"killed": "running", "more rounds": "finished"}.get(phase, phase)
        health.write(where, {"phase": known, "at": 0.0, "rounds": 3 if phase == "more rounds" else 4})
    if phase == "killed":
        monkeypatch.setattr(health, "LOST", -1.0)
    list(loopback.up(tmp_path / "d"))
    assert started == expected
    started.clear()
    next(actions(tmp_path / "d"), None) if expected else None
    assert started == expected[:1]


@pytest.mark.usefixtures("started")
def test_one_process_supervises_a_folder(tmp_path: Path) -> None:
    server(tmp_path / "d")
    one = supervisor.supervise(tmp_path / "d")
    next(one)
    with pytest.raises(DeployError, match="supervises it already"):
        list(supervisor.supervise(tmp_path / "d"))
    next(one)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="nothing to supervise"):
        list(actions(tmp_path))
