"""What runs is shown while it runs: in JSON, in metrics, and on a page that can only be read, from this machine."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pacfl.errors import ConfigError, StoreError
from pacfl.experiment.store import RunFolder
from pacfl.folders import recognise
from pacfl.report.gather import gather
from pacfl.report.progress import Cluster, RunProgress, Site, State, seconds_left
from pacfl.report.prometheus import metrics
from pacfl.report.serving import serving
from pacfl.report.summary import ReportData
from pacfl.report.watching import WatchedClusters, WatchedRuns, serving_runs, watched
from tests.conftest import Run
from tests.report.browser import drawn, slide, until
from tests.report.folders import write_federation, write_run
from tests.report.test_report_page import EVIL


class Growing:
    """A run that ends its rounds when a test says so."""

    def __init__(self, folder: Path, **options: Any) -> None:
        whole = write_run(folder / "whole", {"name": "pacfl"}, 0, 12, **options)
        self.records, self.result = whole.records(), whole.result()
        self.folder = RunFolder(folder / "runs" / whole.path.name)
        shutil.copytree(whole.path, self.folder.path)
        for name in ("rounds.jsonl", "result.json"):
            (self.folder.path / name).unlink()
        self.at = 0

    def grow(self, rounds: int, at: float | None = None) -> None:
        for record in self.records[self.at : self.at + rounds]:
            self.folder.append(record)
        self.at += rounds
        if at is not None:
            os.utime(self.folder.path / "rounds.jsonl", (at, at))

    def end(self) -> None:
        self.grow(len(self.records) - self.at)
        self.folder.finish(self.result or {})


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return str(reply.read().decode())


# How far it is


def test_a_run_is_waiting_running_stalled_and_finished(growing: Growing) -> None:
    now = [1000.0]
    shown = WatchedRuns(lambda: [growing.folder], "study", "run", clock=lambda: now[0])
    assert (shown.state().phase, shown.state().done, shown.state().planned) == ("waiting", 0, 50)
    growing.grow(5, at=1000.0)
    state = shown.state()
    assert (state.phase, state.done, state.updated, state.eta) == ("running", 5, 1000.0, None)
    received = growing.records[4]["accuracy"]["received"]["mean"]
    assert (state.metric, state.score) == ("accuracy", received)
    assert state.bytes_up == sum(record["bytes_up"] for record in growing.records[:5])
    assert [one.clients for one in state.clusters] == [
        ("0", "4", "8"),
        ("1", "5", "9"),
        ("2", "6", "10"),
        ("3", "7", "11"),
    ]
    growing.grow(1, at=1030.0)  # in 30 s
    assert shown.state().eta == pytest.approx(44 * 30)
    now[0] = 1030 + 299.0
    assert shown.state().phase == "running", "ten rounds are not too long a pause"
    now[0] = 1030 + 301.0
    state = shown.state()
    assert (state.phase, state.eta) == ("stalled", None)
    assert "no round has ended for 301 s" in state.problems[0]
    growing.end()
    state = shown.state()
    assert (state.phase, state.done, state.problems) == ("finished", 50, ())


def test_the_version_changes_when_there_is_more_to_report_and_only_then(growing: Growing) -> None:
    shown = WatchedRuns(lambda: [growing.folder], "study")
    seen = [shown.state().version, shown.state().version]
    for _ in range(2):
        growing.grow(1)
        seen += [shown.state().version, shown.state().version]
    growing.end()
    seen += [shown.state().version, shown.state().version]
    assert seen[::2] == seen[1::2]
    assert len(set(seen)) == 4


def test_several_runs_are_shown_together(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "runs", {"name": "fedavg"}, seed, 4)
    last = write_run(tmp_path / "runs", {"name": "fedavg"}, 2, 4)
    (last.path / "result.json").unlink()
    last.truncate_records(10)
    folder = recognise(tmp_path / "runs")
    assert folder is not None
    state = watched(folder).state()
    assert (state.kind, state.phase, state.done, state.planned) == ("runs", "running", 110, 150)
    assert sorted((run.seed, run.phase, run.done) for run in state.runs) == [
        (0, "finished", 50),
        (1, "finished", 50),
        (2, "running", 10),
    ]


def test_clusters_without_training_are_shown_too(tmp_path: Path) -> None:
    path = write_federation(tmp_path / "hospitals", ["a", "b", "c"])
    folder = recognise(path)
    assert folder is not None
    state = WatchedClusters(folder).state()
    assert (state.kind, state.planned, state.clusters) == (
        "clusters",
        0,
        tuple(Cluster(k, (name,)) for k, name in enumerate("abc")),
    )


def test_the_report_has_runs_that_are_not_finished_and_marks_none_of_them_as_best(tmp_path: Path) -> None:
    for method, skill in (("fedavg", 0.5), ("pacfl", 0.9), ("ifca", 0.95)):
        for seed in range(3):
            folder = write_run(tmp_path / "runs", {"name": method}, seed, 8, skill=skill)
            if method == "ifca":
                (folder.path / "result.json").unlink()
                folder.truncate_records(40)
    from pacfl.report.experiments import experiments

    found = recognise(tmp_path / "runs")
    assert found is not None
    (experiment,) = experiments(watched(found).report().runs)
    shown = {row.algorithm: (row.progress, row.scores["received"].best) for row in experiment.rows}
    assert shown == {"fedavg": ("", False), "pacfl": ("", True), "ifca": ("round 40 of 50", False)}
    assert set(gather([str(tmp_path / "runs")], tmp_path).unfinished.values()) == {40}, "a report only names them"


@pytest.mark.parametrize(("pauses", "left", "seconds"), [([], 3, None), ([2.0], 0, 0.0), ([2.0], 3, 6.0)])
def test_the_time_left_is_that_of_the_rounds_seen(pauses: list[float], left: int, seconds: float | None) -> None:
    assert seconds_left(pauses, left) == seconds


# What is served

STATE = State(
    kind="server",
    name='a "study"\\\n',
    phase="running",
    done=3,
    planned=10,
    eta=12.5,
    metric="accuracy",
    score=0.75,
    bytes_down=1000,
    bytes_up=2000,
    updated=time.time() - 5,
    version="v1",
    clusters=(Cluster(0, ("lyon", "graz")), Cluster(1, ("oslo",))),
    sites=(
        Site("lyon", 0, True, 1_700_000_000.0),
        Site("graz", 0, True, None),
        Site("oslo", 1, False, 1_700_000_000.0, 3, "no reply"),
    ),
    errors=("round 3 client oslo: no reply",),
    problems=("site oslo missed the last 3 rounds",),
)


class Still:
    """Something that does not change, with nothing to report."""

    def __init__(self, state: State = STATE) -> None:
        self.now = state

    def state(self) -> State:
        return self.now

    def report(self) -> ReportData:
        raise StoreError("has no finished round")


def reply(url: str, method: str = "GET", path: str = "/", **headers: str) -> http.client.HTTPResponse:
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request(method, path, headers={name.title(): value for name, value in headers.items()})
    return connection.getresponse()


def test_only_this_machine_is_served_by_its_own_names_and_nothing_can_be_changed() -> None:
    with serving(Still()) as url:
        port = url.rstrip("/").rpartition(":")[2]
        assert url == f"http://127.0.0.1:{port}/"
        for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert reply(url, host=host, path="/state.json").status == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{int(port) - 1}", ""):
            answer = reply(url, host=host, path="/state.json")
            assert answer.status == 421
            assert b"lyon" not in answer.read()
        for method in ("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            answer = reply(url, method)
            assert (answer.status, answer.headers["Allow"]) == (405, "GET")
        assert reply(url, path="/../../etc/passwd").status == 404
        with socket.socket() as other:  # an address of this machine that is not 127.0.0.1
            assert other.connect_ex(("127.0.0.2", int(port))) != 0
    with pytest.raises(ConnectionRefusedError):
        reply(url)


def test_the_page_may_load_and_ask_nothing_but_its_server() -> None:
    with serving(Still()) as url:
        answer = reply(url)
        policy, page = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page.partition('<script type="module">')[0])
    assert (answer.headers["X-Content-Type-Options"], answer.headers["Cache-Control"]) == ("nosniff", "no-store")


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with (
        serving(Still()) as url,
        pytest.raises(ConfigError, match="cannot be used"),
        serving(Still(), int(url.rstrip("/").rpartition(":")[2])),
    ):
        pass


def test_the_state_is_json_with_what_a_program_needs() -> None:
    with serving(Still()) as url:
        state = json.loads(fetched(f"{url}state.json"))
    assert (state["kind"], state["phase"], state["rounds"]) == ("server", "running", {"done": 3, "planned": 10})
    assert (state["score"], state["eta"], state["shares"]) == (0.75, 12.5, ["accuracy"])
    assert 5 <= state["seconds_since_update"] <= time.time() - STATE.updated
    assert state["clusters"][0] == {"cluster": 0, "clients": ["lyon", "graz"]}
    assert state["sites"][2] == {
        "name": "oslo",
        "cluster": 1,
        "alive": False,
        "last_seen": 1_700_000_000.0,
        "missed": 3,
        "failure": "no reply",
    }
    assert state["errors"] == list(STATE.errors)


def test_what_cannot_be_read_now_is_said_and_the_server_goes_on() -> None:
    class Broken(Still):
        def state(self) -> State:
            raise StoreError("status.json is damaged")

    with serving(Broken()) as url:
        for _ in range(2):
            answer = reply(url, path="/state.json")
            assert (answer.status, answer.read()) == (503, b"status.json is damaged\n")


SAMPLE = re.compile(r'pacfl_([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+-]+)')


def test_metrics_are_in_the_format_of_prometheus_and_only_where_asked() -> None:
    with serving(Still()) as url:
        assert reply(url, path="/metrics").status == 404
    with serving(Still(), with_metrics=True) as url:
        answer = reply(url, path="/metrics")
        text = answer.read().decode()
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines, samples = text.splitlines(), {}
    for line in lines:
        if not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found, line
            samples[found[1], found[2].partition('\\n",')[2]] = float(found[3])
    described = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(described) == len(set(described))
    assert {f"pacfl_{name}" for name, _ in samples} == set(described)
    assert samples["rounds_done", ""] == 3
    assert samples["rounds_planned", ""] == 10
    assert samples["score", 'metric="accuracy"'] == 0.75
    assert samples["bytes_total", 'direction="up"'] == 2000
    assert (samples["clients", ""], samples["clients_alive", ""], samples["clusters", ""]) == (3, 2, 2)
    assert samples["rounds_missed", 'site="oslo"'] == 3
    assert samples["problems", ""] == 1
    assert samples["seconds_since_update", ""] >= 5
    phases = {labels: value for (name, labels), value in samples.items() if name == "phase"}
    assert [labels for labels, value in phases.items() if value] == ['phase="running"']
    assert len(phases) > 5


def test_metrics_of_several_runs_name_each_and_leave_out_what_is_not_known() -> None:
    run = RunProgress("abc", "pacfl", 1, "running", 2, 5, None, "mae", None, 0, 0)
    text = metrics(replace(STATE, runs=(run,), eta=None, score=None, sites=(), clusters=()), time.time())
    assert 'pacfl_run_rounds_done{run="abc",algorithm="pacfl",seed="1"} 2\n' in text
    for unknown in ("pacfl_score", "pacfl_run_score", "pacfl_eta", "pacfl_clients", "None", "nan"):
        assert unknown not in text


def test_what_is_not_known_yet_is_read_again() -> None:
    """While there is nothing to report, the page is there nevertheless."""
    with serving(Still()) as url:
        assert 'data-version=""' in fetched(url)


# The page


@pytest.fixture
def followed(browser: Any) -> Callable[[str], Any]:
    def open_page(url: str) -> Any:
        browser.get(url)
        until(lambda: browser.execute_script("return document.documentElement.dataset.live"), "a page that has asked")
        return browser

    return open_page


def text_of(page: Any, element: str) -> str:
    return str(page.execute_script("return document.getElementById(arguments[0])?.innerText ?? ''", element))


def test_a_page_follows_its_run_from_before_the_first_round_to_the_end(
    growing: Growing, followed: Callable[[str], Any]
) -> None:
    """Tables and figures follow without loading the page again: what the reader chose stays."""
    with serving(WatchedRuns(lambda: [growing.folder], "study", "run")) as url:
        page = followed(url)
        assert "waiting, round 0 of 50" in text_of(page, "live-words")
        assert page.execute_script("return document.getElementById('report').hidden")
        growing.grow(10)
        until(lambda: "round 10 of 50" in text_of(page, "live-words"), "the rounds")
        until(lambda: page.execute_script("return document.querySelector('.results td') !== null"), "a report")
        row = "return document.querySelector('.results tbody tr').innerText"
        assert "(round 10 of 50)" in page.execute_script(row)
        drawn(page, "clusters")
        beta = 5.0  # within the clusters, which are about 3 degrees wide and 12 apart
        count = slide(page, beta)
        page.execute_script("window.marked = true; document.querySelector('.results a.hash').focus()")
        page.execute_script("document.querySelector('details').open = true")
        scroll = page.execute_script("return scrollY")
        growing.grow(10)
        until(lambda: "(round 20 of 50)" in page.execute_script(row), "the next rounds")
        assert page.execute_script("return window.marked"), "the page was not loaded again"
        assert page.execute_script("return document.getElementById('beta').valueAsNumber") == pytest.approx(
            beta, abs=0.01
        )
        assert int(page.execute_script("return document.getElementById('count').dataset.clusters")) == count
        assert page.execute_script("return document.activeElement.className") == "hash"
        assert page.execute_script("return document.querySelector('details').open")
        assert abs(page.execute_script("return scrollY") - scroll) < 200
        growing.end()
        until(lambda: text_of(page, "live-words").startswith("finished, round 50 of 50"), "the end")
        until(lambda: "(round" not in page.execute_script(row), "the result")
        assert page.execute_script("return document.getElementById('live-progress').value") == 50
        assert [entry["message"] for entry in page.get_log("browser")] == []
    until(lambda: "does not answer" in text_of(page, "live-words"), "the end of the dashboard")
    page.get_log("browser")  # which has that nobody answered


def test_the_page_shows_sites_errors_and_problems_whatever_their_names_are(followed: Callable[[str], Any]) -> None:
    state = replace(STATE, name=EVIL, sites=(*STATE.sites, Site(EVIL, None, False, None)), errors=(EVIL,))
    with serving(Still(state)) as url:
        page = followed(url)
        tables = text_of(page, "live-tables")
        for words in ("lyon", "graz", "oslo", "3: no reply", EVIL):
            assert words in tables
        assert text_of(page, "live-words") == (
            "running, round 3 of 10, accuracy of the models as received 75.0 %, about 13 s left"
        )
        assert text_of(page, "live-problems") == "site oslo missed the last 3 rounds"
        assert text_of(page, "live-errors") == EVIL
        assert EVIL in page.title
        assert [entry["message"] for entry in page.get_log("browser")] == []


def test_the_page_is_read_by_keyboard_screen_reader_and_phone(followed: Callable[[str], Any], browser: Any) -> None:
    """Landmarks have names, tables captions and headings, and what scrolls can be reached and is no wider than it."""
    metrics_of = {"width": 375, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics_of)
    try:
        with serving(Still()) as url:
            page = followed(url)
            assert page.execute_script("return document.documentElement.scrollWidth") <= 375
            unnamed = """return [...document.querySelectorAll('#live table')].filter(
                (t) => !t.caption?.innerText || [...t.tHead.rows[0].cells].some((c) => c.scope !== 'col')
                       || [...t.tBodies[0].rows].some((r) => r.cells[0].scope !== 'row')).length"""
            assert page.execute_script(unnamed) == 0
            assert page.execute_script("return document.getElementById('live-words').getAttribute('role')") == "status"
            assert page.execute_script("return document.querySelectorAll('h1').length") == 1
            page.execute_script("document.getElementById('live-tables').focus()")
            assert page.execute_script("return document.activeElement.id") == "live-tables"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# The commands


def test_the_command_serves_until_it_is_interrupted(growing: Growing) -> None:
    growing.grow(3)
    words = [sys.executable, "-m", "pacfl.cli", "dashboard", str(growing.folder.path), "--prometheus", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert (said["kind"], said["metrics"]) == ("run", f"{said['url']}metrics")
        assert json.loads(fetched(f"{said['url']}state.json"))["rounds"]["done"] == 3
        assert "pacfl_rounds_done" in fetched(said["metrics"])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_command_refuses_what_is_nothing_to_watch(tmp_path: Path, run: Run) -> None:
    code, _, err = run("dashboard", tmp_path)
    assert code == 1
    assert "'pacfl dashboard' needs the folder in which a server stores its federation" in " ".join(err.split())


def test_runs_are_served_by_a_process_of_their_own_that_ends_with_them(growing: Growing) -> None:
    growing.grow(2)
    with serving_runs([growing.folder.path], "exp") as url:
        state = json.loads(fetched(f"{url}state.json"))
        assert (state["name"], state["rounds"]["done"]) == ("exp", 2)
    with pytest.raises(OSError, match="refused"):
        fetched(url)
