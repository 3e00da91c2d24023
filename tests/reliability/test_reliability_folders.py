"""Two processes on one folder, read-only folders and full disks, as the command line reports them."""

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
from tests.reliability.small_runs import files_of, run_as_command

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
    """A folder that other users may read, with an experiment."""
    with tempfile.TemporaryDirectory(prefix="pacfl-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "experiment.toml").write_text(EXPERIMENT)
        yield Path(name)


@pytest.fixture
def pacfl(run: Run, place: Path) -> Command:
    """Exit code and standard error of `pacfl run`."""

    def command() -> tuple[int, str]:
        code, _, stderr = run("run", place / "experiment.toml", "--runs", place / "runs", "--workers", 1, "--json")
        return code, stderr

    return command


def the_run(place: Path) -> "store.Run":
    (run,) = expand(read_table(place / "experiment.toml", ()))
    return run


def test_a_second_process_is_refused_and_the_first_continues(
    pacfl: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.3)
    run = the_run(place)
    first = run_as_command(run, place / "runs")
    next(first)
    code, stderr = pacfl()
    assert code == 1
    assert f"{place / 'runs' / run.hash}: another process is working on this run; wait for it or stop it" in stderr
    assert [record["round"] for record in first if "round" in record] == [2, 3]
    list(run_as_command(run, place / "undisturbed"))
    assert files_of(run, place / "runs") == files_of(run, place / "undisturbed")


def test_a_second_process_that_waited_returns_the_result_of_the_first(pacfl: Command, place: Path) -> None:
    run = the_run(place)
    holding = threading.Event()

    def first() -> None:
        with owned(folder_of(run, place / "runs")):
            holding.set()
            time.sleep(0.5)
            list(run_as_command(run, place / "elsewhere"))
            shutil.copy(place / "elsewhere" / run.hash / "rounds.jsonl", place / "runs" / run.hash)
            shutil.copy(place / "elsewhere" / run.hash / "result.json", place / "runs" / run.hash)

    thread = threading.Thread(target=first)
    thread.start()
    holding.wait()
    assert pacfl() == (0, "")
    thread.join()


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user without root's right to write everywhere."""
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
    """Make a folder and everything below it read-only."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with without_rights():
            yield
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_read_only_folder_of_runs_is_named(pacfl: Command, place: Path) -> None:
    (place / "runs").mkdir()
    with read_only(place / "runs"):
        code, stderr = pacfl()
    assert code == 1
    assert stderr == f"error: [Errno 13] Permission denied: '{place / 'runs' / the_run(place).hash}'\n"


def test_a_read_only_run_is_named_and_resumes_when_writable(pacfl: Command, place: Path) -> None:
    run = the_run(place)
    first = run_as_command(run, place / "runs")
    next(first)
    first.close()  # type: ignore[attr-defined]  # it is a generator
    with read_only(place / "runs"):
        code, stderr = pacfl()
    assert code == 1
    assert stderr.startswith(f"error: [Errno 13] Permission denied: '{place / 'runs' / run.hash}")
    assert pacfl()[0] == 0
    list(run_as_command(run, place / "undisturbed"))
    assert files_of(run, place / "runs") == files_of(run, place / "undisturbed")


def test_a_finished_read_only_run_can_be_read(pacfl: Command, place: Path) -> None:
    assert pacfl() == (0, "")
    with read_only(place / "runs"):
        assert pacfl() == (0, "")


@pytest.mark.parametrize("at", [3, 40])
def test_a_full_disk_is_reported_with_what_to_do(at: int, pacfl: Command, place: Path) -> None:
    with faulty(Disk(place / "runs", at, full=True)):
        code, stderr = pacfl()
    assert code == 1
    assert stderr.startswith(f"error: [Errno 28] No space left on device: '{place / 'runs' / the_run(place).hash}")
    assert stderr.endswith("; nothing is half written: make room, and give the same command again\n")
    assert pacfl() == (0, "")
