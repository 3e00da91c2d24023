import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.learning.evaluation import Metrics
from pacfl.report.experiments import experiments
from pacfl.report.gather import gather
from pacfl.report.page import embedded, page
from pacfl.report.payload import packed, payload
from tests.conftest import Run
from tests.report.folders import write_federation, write_run, write_runs
from tests.without import run_without

EVIL = """</script><script>document.title='pwned'</script>"><img src=x onerror="document.title='pwned'">'{{7*7}}<!--"""


class Reader(HTMLParser):
    """The elements of a page, and the text of its scripts and data."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") or tag

    def handle_endtag(self, _tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        self.text[self._inside] = self.text.get(self._inside, "") + data


def parsed(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    folder = tmp_path_factory.mktemp("page")
    write_runs(folder, ("solo", "fedavg", "pacfl"), seeds=(0, 1, 2), n=12, newcomers=2)
    report = gather([str(folder)], folder)
    return report, page(report)


def test_a_page_needs_nothing_but_itself(made: tuple[Any, str]) -> None:
    reader = parsed(made[1])
    for tag, attributes in reader.tags:
        assert tag not in ("link", "iframe", "object", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(a["content"] for tag, a in reader.tags if tag == "meta" and "content" in a and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_every_number_of_the_tables_names_its_runs(made: tuple[Any, str]) -> None:
    report, html = made
    hashes = {run.hash for run in report.runs}
    tables = re.findall(r"<table class=\"(?:results|fairness)\">.*?</table>", html, re.DOTALL)
    assert len(tables) == 2
    cells = [cell for table in tables for cell in re.findall(r"<td[^>]*>[^<]*\d[^<]*</td>", table)]
    assert len(cells) > 30
    for cell in cells:
        named = re.search(r'title="runs ([^"]*)"', cell)
        assert named, cell
        assert set(named[1].split(", ")) <= hashes
    for run in hashes:
        assert f'id="run-{run}"' in html
        assert f'href="#run-{run}"' in html


def test_protocols_and_the_test_over_seeds_are_named(made: tuple[Any, str]) -> None:
    for part in (
        ">received</th>",
        ">personal</th>",
        ">last-trained</th>",
        ">newcomers, fine-tuned</th>",
        "t-test over the common seeds",
    ):
        assert part in made[1]


def test_what_comes_from_files_stays_text(tmp_path: Path) -> None:
    for name in ("fedavg", "pacfl"):
        write_run(tmp_path, {"name": name, "note": EVIL}, 0, 4, dataset=EVIL, names=(EVIL, "'", '"', "&amp;"))
    ordinary = parsed(page(gather([str(write_runs(tmp_path / "o", ("fedavg", "pacfl"), (0,), n=4))], tmp_path)))
    evil = parsed(page(gather([str(path) for path in tmp_path.glob("*/") if path.name != "o"], tmp_path)))
    count = {tag: sum(t == tag for t, _ in evil.tags) for tag in ("script", "img", "style")}
    assert count == {tag: sum(t == tag for t, _ in ordinary.tags) for tag in ("script", "img", "style")}
    assert count["img"] == 0
    data = json.loads(evil.text["data"])
    assert data["experiments"][0]["clients"]["0"]["names"] == [EVIL, "'", '"', "&amp;"]
    assert EVIL in data["experiments"][0]["title"]
    assert EVIL in evil.text["title"]
    assert "49" not in evil.text["title"]


def test_data_in_a_script_cannot_end_it() -> None:
    value = {EVIL: ["<!--", "]]>", "\u2028", EVIL]}
    text = embedded(value)
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


@pytest.mark.parametrize("kind", ["uint16", "uint32", "int32", "float32"])
def test_a_packed_array_is_that_array(kind: str) -> None:
    import base64

    array = np.array([[0, 1, 2], [3, 500, 40000]])
    text = packed(array, kind)
    again = np.frombuffer(base64.b64decode(text["bytes"]), dtype=f"<{np.dtype(kind).str[1:]}").reshape(text["shape"])
    assert (again == array).all()


def test_heights_travel_exactly_and_angles_within_a_hundredth_of_a_degree(made: tuple[Any, str]) -> None:
    run = next(run for run in made[0].runs if run.clustering)
    data = json.loads(json.dumps(payload(experiments(made[0].runs))))
    sent = next(r["clustering"] for e in data["experiments"] for r in e["runs"] if r["hash"] == run.hash)
    assert sorted(sent["tops"]) == sorted(sent["walls"]) == sorted(run.clustering.compared.merges[:, 2].tolist())
    assert sent["perStep"] < 0.01


def test_the_command_writes_a_page_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    write_runs(Path("runs"), ("fedavg",), seeds=(0, 1), n=4)
    code, printed, _ = run("report", "runs", "-o", "mine.html")
    assert (code, printed[: len("mine.html: 2 runs")]) == (0, "mine.html: 2 runs")
    assert Path("mine.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("report")[0] == 0
    assert Path("report.html").exists()
    code, _, printed = run("report", "elsewhere")
    assert code == 1
    assert "elsewhere: is no folder" in printed


def test_the_command_shows_what_cluster_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    write_federation(Path("hospitals"), [f"site {i}" for i in range(6)])
    code, printed, _ = run("report", "hospitals", "-o", "clusters.html")
    assert (code, printed[: len("clusters.html: the federation hospitals")]) == (
        0,
        "clusters.html: the federation hospitals",
    )
    assert "6 clients in 3 clusters" in Path("clusters.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["runs", "federation"])
def test_a_report_needs_no_torch(tmp_path: Path, what: str) -> None:
    if what == "runs":
        write_runs(tmp_path / what, ("solo", "pacfl"), seeds=(0, 1), n=6)
    else:
        write_federation(tmp_path / what, ["a", "b", "c"])
    done = run_without("torch", "report", tmp_path / what, "-o", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").exists()


def test_the_page_names_the_metric_and_shows_errors_as_they_are(tmp_path: Path) -> None:
    for method in ("solo", "fedavg"):
        write_run(tmp_path / "runs", {"name": method}, 0, 8, metrics=Metrics("values", ("r2", "rmse")))
    text = page(gather([str(tmp_path / "runs")], tmp_path))
    assert '<p class="soft">Mae: mean over clients' in text
    assert "% of clients with a worse mae than with local training only" in text
    assert "<th>r2</th><th>rmse</th>" in text
    assert "ccuracy" not in text.partition("<script")[0]
