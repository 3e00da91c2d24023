"""Real processes in states that nobody wants: the status says so, and what is corrected goes on.

pytest -m slow -s tests/flower/deploy/test_deploy_wrong_states.py prints rows of a table in docs/deployment.md.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from loopback_federation import Loopback, deployed
from test_deploy_end_to_end import print_row
from test_deploy_supervision import trains_again

from pacfl.flower import health
from pacfl.flower.deploy import approval, check, layout, loopback, processes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SECONDS = 500.0  # at most, for each step
SITE = loopback.site("1")
SETTINGS: dict[str, dict[str, Any]] = {
    "federation": {"task": "wrong_states", "minimum-clients": 2, "deadline": 60.0},
    "schedule": {"rounds": 400, "participation": 1.0},
    "learning": {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
}
TASK = """
from pathlib import Path

from pacfl.flower import digits
from pacfl.learning.nets import mlp

def load_data(context):
    if not Path(context.node_config["data"]).exists():
        raise FileNotFoundError(f"there is no {context.node_config['data']}")
    return digits.load_data(context)

def build_model():
    return mlp((1, 8, 8), 10, hidden=HIDDEN)
"""


def has_app(sites: Loopback, hidden: int) -> None:
    """The operator, here of all sites, writes an app and approves it."""
    (sites.folder / "app" / "wrong_states.py").write_text(TASK.replace("HIDDEN", str(hidden)))
    layout.approve(sites.folder, approval.build(sites.folder / "app"))


@contextmanager
def with_data(folder: Path, *present: int) -> Iterator[Loopback]:
    """Two sites, of which some have the files that their settings name."""
    with deployed(folder, 2, SETTINGS) as sites:
        has_app(sites, 32)
        for i in range(2):
            (folder / "sites" / str(i) / "site.config").write_text(f'data="{folder}/data-{i}"\n')
        for i in present:
            (folder / f"data-{i}").touch()
        yield sites


def status_names(sites: Loopback, *words: str) -> Callable[[], bool]:
    """Whether one problem of the status has all of these words."""
    return lambda: any(all(word in one.what for word in words) for one in loopback.state(sites.folder)[1])


def show(sites: Loopback, what: str, word: str, seconds: float) -> None:
    problems = loopback.state(sites.folder)[1]
    sentence = next(one.what for one in problems if word in one.what)
    print_row(what, f"'pacfl status' ends with {health.exit_code(problems)}: {sentence}", seconds)


def test_what_is_wrong_at_a_site_or_in_the_app_is_named_and_can_be_corrected(short_path: Path) -> None:
    with with_data(short_path, 0) as sites:
        path_is_wrong(sites)
        app_is_refused(sites)
        model_is_changed(sites)
        assert [record["round"] for record in sites.records] == list(range(1, len(sites.records) + 1))


def path_is_wrong(sites: Loopback) -> None:
    start = time.monotonic()
    sites.start([0, 1])
    print_row("two sites", "are started, and a run", time.monotonic() - start)
    missing, start = f"there is no {sites.folder}/data-1", time.monotonic()
    sites.wait("the status names the path", status_names(sites, missing), SECONDS)
    show(sites, "a site has a wrong data path, from the start on", missing, time.monotonic() - start)
    (sites.folder / "data-1").touch()
    both = {"0", "1"}
    seconds = sites.wait("both train", lambda: set((sites.records or [{}])[-1].get("cluster_of", ())) == both, SECONDS)
    print_row("the file is there, nothing is restarted", "both sites train", seconds)


def app_is_refused(sites: Loopback) -> None:
    client, place = sites.number(1), sites.folder / "sites" / "1"
    assert client is not None
    (place / approval.LIST).write_text("")  # a site that is started again asks its list
    loopback.start_site(sites.folder, "1")
    start = time.monotonic()
    sites.wait("three rounds without it", status_names(sites, "site 1 missed", "pacfl deploy approve"), SECONDS)
    show(sites, "a site refuses the app, the other goes on", "site 1 missed", time.monotonic() - start)
    content, origin = approval.candidate(place)
    assert "sent by the server, and refused" in origin
    approval.approve(place, content)
    seconds = sites.wait("it trains again", trains_again(sites, client), SECONDS)
    print_row("its operator approves the app", "it trains again", seconds)


def model_is_changed(sites: Loopback) -> None:
    pid = sites.part(loopback.SERVER, "flwr-serverapp")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    done, start = len(sites.records), time.monotonic()
    has_app(sites, 16)
    loopback.begin(sites.folder)
    sites.wait("the run fails", status_names(sites, "the run failed"), SECONDS)
    show(sites, "`build_model` is changed, and a run is started", "the run failed", time.monotonic() - start)
    assert status_names(sites, "16x64", "32x64")(), "both sizes are named"
    assert len(sites.records) == done
    has_app(sites, 32)
    loopback.begin(sites.folder)
    print_row("it is changed back", "the run resumes, the next round is done", sites.wait_for_round(done + 1, SECONDS))


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Put a folder on a disk of its own."""
    folder.mkdir(exist_ok=True)
    aside = folder.with_name(f"{folder.name}.aside")
    shutil.copytree(folder, aside)
    options = f"size={megabytes}m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # processes may still have files open


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass
    return filler


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk of its own needs root, for mount")
def test_a_full_disk_is_noticed_and_nothing_is_lost(short_path: Path) -> None:
    with (
        with_data(short_path, 0, 1) as sites,
        small_disk(short_path / "sites" / "1", 64),
        small_disk(loopback.federation(short_path), 64),
    ):
        sites.start([0, 1])
        sites.wait_for_round(1, SECONDS)
        disk_of_a_site_is_full(sites)
        disk_of_the_server_is_full(sites)
        assert [record["round"] for record in sites.records] == list(range(1, len(sites.records) + 1))
        list(loopback.down(short_path))


def disk_of_a_site_is_full(sites: Loopback) -> None:
    client, place, start = sites.number(1), sites.folder / "sites" / "1", time.monotonic()
    assert client is not None
    filler = fill(place)
    assert [one.what for one in check._disk(place) if one.level == "problem"]
    sites.wait("three rounds without it", status_names(sites, "site 1 missed"), SECONDS)
    show(sites, "the disk of a site is full, the other site goes on", "site 1 missed", time.monotonic() - start)
    filler.unlink()
    ended = SITE not in processes.running(sites.folder)
    start = time.monotonic()
    list(loopback.up(sites.folder))
    sites.wait("it trains again", trains_again(sites, client), SECONDS)
    how = "its SuperNode had ended; after `up` it trains again" if ended else "it trains again"
    print_row("there is room again", how, time.monotonic() - start)


def disk_of_the_server_is_full(sites: Loopback) -> None:
    folder, start = loopback.federation(sites.folder), time.monotonic()
    done = len(sites.records)
    filler = fill(folder)
    sites.wait("the status names the disk", status_names(sites, "the disk of"), SECONDS)
    show(sites, "the disk of the server is full", "the disk of", time.monotonic() - start)
    sites.wait("the run ends", lambda: loopback.run_is_due(sites.folder / "server"), SECONDS)
    lost = "the server app gave" if status_names(sites, "the server app gave")() else "the run failed"
    show(sites, "", lost, time.monotonic() - start)
    assert len(sites.records) >= done
    filler.unlink()
    before, start = len(sites.records), time.monotonic()
    list(loopback.up(sites.folder))
    sites.wait_for_round(before + 1, SECONDS)
    print_row("there is room again, and `up`", "the run resumes, the next round is done", time.monotonic() - start)
