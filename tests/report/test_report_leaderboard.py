"""The page of the benchmark: what is in it, and what a user does with it in a browser."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.benchmark.leaders import leaders
from pacfl.benchmark.outcome import save
from pacfl.errors import StoreError
from pacfl.report.leaderboard import page, payload, write
from tests.conftest import Run
from tests.report.browser import choose, file_of, until
from tests.report.test_report_page import EVIL

SHIFTS = ("iid", "label-skew-20", "rotations", "label-maps", "drift", "styles", "rotations/500")
METHODS = {"pacfl": 0.9, "fedavg-ft": 0.85, "fedavg": 0.6, "ifca": 0.88, "solo": 0.7, EVIL: 0.5}


def summaries(seeds: tuple[int, ...] = (0, 1, 2), data_set: str = "fmnist") -> list[dict[str, Any]]:
    """Runs of all methods on all shifts: each method has its skill, less in later shifts, and some noise."""
    rng = np.random.default_rng(0)
    return [
        {
            "data_set": data_set,
            "column": shift,
            "clients": 100,
            "method": name,
            "given": name == "ifca",
            "seed": seed,
            "hash": f"{rng.integers(2**60):016x}",
            "algorithm": {"name": name},
            "lr": 0.1,
            "scores": {kind: scores(skill - 0.01 * i, rng) for kind in ("proportional", "owned")},
            "below_local": {kind: {"received": 0.2, "personal": 0.1} for kind in ("proportional", "owned")},
            "clusters": 4,
            "true_clusters": 4,
            "ari": 0.5,
            "megabytes": 10 * skill,
            "seconds": 20 * skill,
            "processor": {"all": 10.0, "native": 8.0},
            "rounds_to_target": 5.0,
            "beside": [None, None],
        }
        for name, skill in METHODS.items()
        for i, shift in enumerate(SHIFTS)
        for seed in seeds
    ]


def scores(mean: float, rng: np.random.Generator) -> dict[str, Any]:
    drawn = mean + rng.normal(scale=0.002, size=2)
    return {
        p: {"mean": m, "std": 0.1, "worst_tenth": m / 2} for p, m in zip(("received", "personal"), drawn, strict=True)
    }


def outcome(runs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"scale": "full", "tuning": [], "runs": summaries() if runs is None else runs}


def without(run: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A run without scores, and why."""
    return {key: run[key] for key in ("data_set", "column", "clients", "method", "given", "seed", "hash")} | facts


def test_values_are_means_over_seeds_and_every_one_names_its_runs() -> None:
    runs = summaries()
    found = payload(outcome(runs))
    assert [one["name"] for one in found["methods"]] == list(METHODS)
    own = [run for run in runs if (run["method"], run["column"]) == ("ifca", "rotations")]
    values = found["values"]["accuracy|owned|personal"][3][2]
    assert values == pytest.approx(np.mean([run["scores"]["owned"]["personal"]["mean"] for run in own]), abs=1e-5)
    assert found["values"]["megabytes"][3][2] == pytest.approx(8.8)
    assert found["runs"][3][2].split() == [run["hash"][:8] for run in own]
    assert found["cells"][6] == {"set": "fmnist", "shift": "rotations/500", "title": "four rotations"}


def test_ranks_and_tests_are_of_the_methods_that_are_chosen() -> None:
    runs = summaries()
    found = payload(outcome(runs))["leaders"]
    assert sorted(found) == sorted(
        f"|{chosen}|{kind}|{protocol}"
        for chosen in ("all", "free", "given")
        for kind in ("proportional", "owned")
        for protocol in ("received", "personal")
    )
    free = found["|free|owned|received"]["rows"]
    expected = leaders([run for run in runs if not run["given"]], "owned", "received")
    assert [(row["method"], row["rank"]) for row in free] == [(row.method, row.rank) for row in expected]
    assert {row["method"] for row in found["|given|owned|received"]["rows"]} == {"ifca", "pacfl", "fedavg-ft"}
    assert found["|all|owned|received"]["cells"] == [7, 7]
    assert found["|all|owned|received"]["rows"][0]["native"] == pytest.approx(0.8)


def test_data_sets_are_ranked_together_and_alone() -> None:
    found = payload(outcome([*summaries(), *summaries(data_set="digits")]))["leaders"]
    assert found["|all|owned|received"]["cells"] == [14, 14]
    assert found["digits|all|owned|received"]["cells"] == [7, 7]


def test_a_diverged_run_counts_as_nothing_learnt_and_a_refused_one_has_no_value() -> None:
    runs = summaries(seeds=(0, 1))
    runs[0] = without(runs[0], diverged="a loss is nan", round=3)
    runs[-1] = without(runs[-1], refused="no BatchNorm")
    found = payload(outcome(runs))
    assert found["status"][0][0] == "diverged"
    assert found["values"]["accuracy|owned|received"][0][0] == pytest.approx(
        runs[1]["scores"]["owned"]["received"]["mean"] / 2, abs=1e-5
    )
    assert found["status"][-1][-1] == "refused"
    text = page(outcome(runs))
    assert "pacfl diverged in fmnist iid" in text
    assert EVIL not in text


def test_a_part_of_the_grid_has_a_page_and_none_has_none() -> None:
    runs = [run for run in summaries(seeds=(0,)) if run["method"] != "fedavg-ft" or run["column"] == "iid"]
    found = payload(outcome(runs))
    assert found["leaders"]["|all|owned|received"]["cells"] == [1, 7]
    assert found["status"][1][1] == "not run"
    with pytest.raises(StoreError, match="has no runs"):
        page(outcome([]))


def test_the_command_writes_the_page(tmp_path: Path, run: Run) -> None:
    save(outcome(), tmp_path)
    words = ("benchmark", "--scale", "full", "--from", tmp_path, "--page", tmp_path / "board.html")
    code, text, error = run(*words, "--methods", "pacfl,ifca", "--json")
    assert code == 0, error
    assert {row["method"] for row in json.loads(text)["leaders"]["received"]} == {"pacfl", "ifca"}
    assert (tmp_path / "board.html").read_text().startswith("<!doctype html>")


# In a browser

Board = Callable[..., Any]


@pytest.fixture
def board(browser: Any, tmp_path: Path) -> Iterator[Board]:
    """Opens the page of an outcome; afterwards, the browser's log must be empty."""

    def open_page(found: dict[str, Any] | None = None) -> Any:
        write(found or outcome(), tmp_path / "board.html")
        browser.get((tmp_path / "board.html").as_uri())
        until(lambda: browser.execute_script("return document.documentElement.dataset.ready"), "a page that is ready")
        return browser

    yield open_page
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def column(page: Any, table: str, place: int) -> list[str]:
    """The texts of a column of a table."""
    script = (
        "return [...document.getElementById(arguments[0]).tBodies[0].rows].map(r => r.cells[arguments[1]].textContent)"
    )
    return list(page.execute_script(script, table, place))


def test_tables_are_sorted_by_the_keyboard_and_say_so(board: Board) -> None:
    from selenium.webdriver.common.keys import Keys

    page = board()
    assert column(page, "heat", 0)[:3] == ["pacfl", "ifca k", "fedavg-ft"]
    assert page.execute_script("return document.querySelector('#heat caption').textContent").startswith("accuracy, %")
    for expected in ("descending", "ascending"):
        page.execute_script("document.querySelector('#heat [data-column=\"fmnist|drift\"]').focus()")
        page.switch_to.active_element.send_keys(Keys.ENTER)
        sorted_by = (
            "return [...document.querySelectorAll('#heat [aria-sort]')].map(th => [th.textContent, th.ariaSort])"
        )
        assert page.execute_script(sorted_by) == [["drift", expected]]
        assert page.execute_script("return document.activeElement.dataset.column") == "fmnist|drift", "it has the focus"
        assert page.execute_script("return document.getElementById('sorted').textContent").endswith(f"{expected}.")
        values = [float(text.split()[0]) for text in column(page, "heat", 6)]
        assert values == sorted(values, reverse=expected == "descending")


def test_views_filters_and_protocols_change_what_is_shown(board: Board) -> None:
    found = payload(outcome())
    page = board()
    assert column(page, "heat", 2)[0].endswith("★")
    choose(page, "view", "best")
    assert column(page, "heat", 2)[0] == "0.0 ★"
    assert column(page, "heat", 2)[1].startswith("\N{MINUS SIGN}")
    choose(page, "view", "tuned")
    accuracy, fine = (found["values"][f"accuracy|proportional|{p}"] for p in ("received", "personal"))
    assert column(page, "heat", 2)[0] == f"{100 * (accuracy[0][0] - fine[1][0]):+.1f} ★"
    choose(page, "measure", "below_local")
    choose(page, "view", "value")
    assert column(page, "heat", 2)[0].split()[0] == "20"
    choose(page, "protocol", "personal")
    assert column(page, "heat", 2)[0].split()[0] == "10"
    for chosen, expected in (("free", 5), ("given", 3), ("all", 6)):
        choose(page, "chosen", chosen)
        assert len(column(page, "heat", 0)) == len(column(page, "ranks", 0)) == expected
    assert EVIL in column(page, "ranks", 0)
    assert page.execute_script("return document.images.length") == 0


def test_colours_are_not_the_only_sign_and_everything_has_a_name(board: Board) -> None:
    page = board()
    assert all(text.strip() for text in column(page, "heat", 3))
    unnamed = "return [...document.querySelectorAll('select')].filter(s => !s.labels.length).length"
    assert page.execute_script(unnamed) == 0
    assert page.execute_script("return [...document.querySelectorAll('table')].every(t => t.caption?.textContent)")
    labels = page.execute_script("return [...document.querySelectorAll('svg')].map(s => s.ariaLabel)")
    assert labels == [
        "Points by which pacfl is ahead of 5 methods",
        "Accuracy against megabytes of 6 methods",
        "Accuracy against seconds of 6 methods",
    ]


def test_costs_are_drawn_saved_and_a_method_is_highlighted(board: Board) -> None:
    page = board()
    choose(page, "highlight", "ifca")
    picked = page.execute_script("return [...document.querySelectorAll('svg .picked')].map(m => m.dataset.method)")
    assert picked.count("ifca") == 3
    assert page.execute_script("return document.querySelectorAll('tr.picked').length") == 2
    table = file_of(page, '[data-figure="megabytes"] [data-save="CSV"]').decode().splitlines()
    assert table[0] == "method,accuracy,megabytes"
    assert len(table) == 1 + len(METHODS)
    assert file_of(page, '[data-figure="gains"] [data-save="SVG"]').startswith(b"<svg")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_leaderboard_fits_the_screen(board: Board, browser: Any, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page = board(outcome([*summaries(), *summaries(data_set="digits")]))
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
