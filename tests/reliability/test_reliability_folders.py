"""Two processes on one folder, folders that cannot be written to, and full disks, as the command line tells of them."""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pacfl.experiment import store
from pacfl.experiment.config import expand, read_table
from pacfl.experiment.store import folder_of, owned
from tests.conftest import Run
from tests.reliability.faults import Disk, faulty
from tests.reliability.small_runs import commanded, left_by

EXPERIMENT = """
engine = "eager"
[data]
name = "digits"
clients = 4
scheme = { kind = "by-set", counts = [1, 1, 1, 1], size = 20 }
[model]
name = "logistic"
[learning]
epochs = 1
[schedule]
rounds = 2
participation = 0.5
[[algorithm]]
name = "fedavg"
"""
NOBODY = 65534

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may read too, with an experiment."""
    with tempfile.TemporaryDirectory(prefix="pacfl-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "experiment.toml").write_text(EXPERIMENT)
        yield Path(name)


@pytest.fixture
def pacfl(run: Run, place: Path) -> Command:
    """Exit code and standard error of `pacfl run`."""

    def command() -> tuple[int, str]:
        code, _, told = run("run", place / "experiment.toml", "--runs", place / "runs", "--workers", 1, "--json")
        return code, told

    return command


def the_run(place: Path) -> "store.Run":
    (run,) = expand(read_table(place / "experiment.toml", ()))
    return run


def test_a_second_process_is_told_of_the_first_which_goes_on_undisturbed(
    pacfl: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.3)
    run = the_run(place)
    first = commanded(run, place / "runs")
    next(first)
    code, said = pacfl()
    assert code == 1
    assert f"{place / 'runs' / run.hash}: another process is working on this run; wait for it or stop it" in said
    assert [record["round"] for record in first if "round" in record] == [1, 2]
    list(commanded(run, place / "alone"))
    assert left_by(run, place / "runs") == left_by(run, place / "alone")


def test_a_second_process_that_waited_takes_the_result_of_the_first(pacfl: Command, place: Path) -> None:
    run = the_run(place)
    holding = threading.Event()

    def first() -> None:
        with owned(folder_of(run, place / "runs")):
            holding.set()
            time.sleep(0.5)
            list(commanded(run, place / "elsewhere"))
            shutil.copy(place / "elsewhere" / run.hash / "rounds.jsonl", place / "runs" / run.hash)
            shutil.copy(place / "elsewhere" / run.hash / "result.json", place / "runs" / run.hash)

    thread = threading.Thread(target=first)
    thread.start()
    holding.wait()
    assert pacfl() == (0, "")
    thread.join()


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who may not write everywhere, which root may."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder, and all in it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with without_rights():
            yield
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_folder_of_runs_that_cannot_be_written_to_is_named(pacfl: Command, place: Path) -> None:
    (place / "runs").mkdir()
    with read_only(place / "runs"):
        code, said = pacfl()
    assert code == 1
    assert said == f"error: [Errno 13] Permission denied: '{place / 'runs' / the_run(place).hash}'\n"


def test_a_run_that_cannot_be_written_to_is_named_and_goes_on_when_it_can(pacfl: Command, place: Path) -> None:
    run = the_run(place)
    first = commanded(run, place / "runs")
    next(first)
    first.close()  # type: ignore[attr-defined]  # it is a generator
    with read_only(place / "runs"):
        code, said = pacfl()
    assert code == 1
    assert said.startswith(f"error: [Errno 13] Permission denied: '{place / 'runs' / run.hash}")
    assert pacfl()[0] == 0
    list(commanded(run, place / "alone"))
    assert left_by(run, place / "runs") == left_by(run, place / "alone")


def test_a_finished_run_that_cannot_be_written_to_can_still_be_read(pacfl: Command, place: Path) -> None:
    assert pacfl() == (0, "")
    with read_only(place / "runs"):
        assert pacfl() == (0, "")


@pytest.mark.parametrize("at", [3, 40])
def test_a_full_disk_is_told_with_what_to_do(at: int, pacfl: Command, place: Path) -> None:
    with faulty(Disk(place / "runs", at, full=True)):
        code, said = pacfl()
    assert code == 1
    assert said.startswith(f"error: [Errno 28] No space left on device: '{place / 'runs' / the_run(place).hash}")
    assert said.endswith("; nothing is half written: make room, and give the same command again\n")
    assert pacfl() == (0, "")
