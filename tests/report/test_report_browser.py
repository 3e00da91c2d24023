"""The page in a real browser. Debian: apt-get install chromium chromium-driver."""

import base64
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from pacfl.report.gather import gather
from pacfl.report.page import write
from tests.report.folders import METHODS, write_federation, write_run, write_runs
from tests.report.test_report_page import EVIL

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser here: apt-get install chromium chromium-driver"
)
Open = Callable[[Path], Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens the page of a folder of runs; afterwards, the browser must have had nothing to complain of."""

    def open_page(runs: Path) -> Any:
        path = runs.with_suffix(".html")
        if not path.exists():
            write(gather([str(runs)], runs), path)
        browser.get(path.as_uri())
        until(lambda: browser.execute_script("return document.documentElement.dataset.ready"), "a page that is ready")
        return browser

    yield open_page
    assert [entry["message"] for entry in browser.get_log("browser")] == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(
        tmp_path_factory.mktemp("small") / "runs", ("solo", "fedavg", "pacfl"), seeds=(0, 1, 2), n=24, newcomers=4
    )


def until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"never came: {what}")


def drawn(page: Any, figure: str) -> None:
    """Bring a figure into sight and wait until it is there."""
    box = f"document.querySelector('[data-figure=\"{figure}\"] .drawing')"
    page.execute_script(f"{box}.scrollIntoView({{block: 'center'}})")
    until(lambda: page.execute_script(f"return !!{box}.querySelector('svg, canvas')"), figure)


def slide(page: Any, beta: float) -> int:
    """Move the slider as a hand does; how many clusters the page then counts."""
    page.execute_script(
        "const s = document.getElementById('beta'); s.value = arguments[0]; s.dispatchEvent(new Event('input'));", beta
    )
    return int(page.execute_script("return document.getElementById('count').dataset.clusters"))


def choose(page: Any, select: str, value: str) -> None:
    page.execute_script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))",
        *(select, value),
    )


def betas(merges: np.ndarray) -> list[float]:
    heights = np.unique(merges[:, 2])
    return [0.0, *((heights[1:] + heights[:-1]) / 2).tolist(), heights[-1] * 1.03]


def test_the_slider_gives_scipys_clusters_at_every_beta(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
    page = opened(small)
    counts = {}
    for beta in betas(run.grouped.merges):
        expected = fcluster(run.grouped.merges, beta, "distance")
        assert slide(page, beta) == len(set(expected)), beta
        members = page.execute_script(
            "return [...document.querySelectorAll('#cluster-list tbody tr')].map(r => r.cells[3].textContent)"
        )
        ours = {frozenset(map(int, text.split(", "))) for text in members}
        theirs = {frozenset(run.grouped.clients[expected == k].tolist()) for k in set(expected)}
        assert ours == theirs, beta
        counts[beta] = len(theirs)
    assert (min(counts.values()), max(counts.values())) == (1, 24)


def test_the_chosen_beta_is_where_it_starts_and_comes_back_to(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
    page = opened(small)
    shown = "return Number(document.getElementById('beta-number').value)"
    assert page.execute_script(shown) == pytest.approx(run.grouped.threshold)
    assert page.execute_script("return document.getElementById('count').textContent") == "4 clusters"
    page.execute_script("document.getElementById('fewer').click()")
    assert page.execute_script("return document.getElementById('count').textContent") == "3 clusters"
    for _ in range(3):
        page.execute_script("document.getElementById('more').click()")
    assert page.execute_script("return document.getElementById('count').textContent") == "6 clusters"
    page.execute_script("document.getElementById('chosen').click()")
    assert page.execute_script(shown) == pytest.approx(run.grouped.threshold)
    assert (
        page.execute_script("return document.getElementById('reasons').textContent") == run.grouped.evidence["reasons"]
    )


def test_clusters_are_coloured_and_those_that_are_not_split_keep_their_colour(opened: Open, small: Path) -> None:
    page = opened(small)
    drawn(page, "clusters")
    chips = "return [...document.querySelectorAll('#cluster-list .chip')].map(c => c.style.background)"
    before = page.execute_script(chips)
    assert len(set(before)) == 4
    page.execute_script("document.getElementById('more').click()")
    after = page.execute_script(chips)
    assert len(after) == 5
    assert set(before) < set(after)
    strips = page.execute_script(
        "return [...document.querySelectorAll('[data-figure=clusters] svg g path')].map(p => p.getAttribute('stroke'))"
    )
    assert set(strips) - {None, "currentColor"}


def test_hovering_tells_client_cluster_size_and_angle(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
    page = opened(small)
    drawn(page, "clusters")
    text = page.execute_script("""
        const image = document.querySelector('[data-figure=clusters] image').getBoundingClientRect();
        const cell = image.width / 24;
        const at = {clientX: image.left + 2.5 * cell, clientY: image.top + 20.5 * cell, bubbles: true};
        document.querySelector('[data-figure=clusters] svg').dispatchEvent(new PointerEvent('pointermove', at));
        return document.getElementById('tip').textContent""")
    first, second, angle = text.split("\n")
    a, b = (int(line.split(":")[0].removeprefix("client ")) for line in (first, second))
    assert "of 6 clients" in first
    assert f"{run.clients.train[a]} samples" in first
    assert float(angle.split("°")[0]) == pytest.approx(run.grouped.proximity[a, b], abs=0.01)


def test_newcomers_and_their_panel_are_shown(opened: Open, small: Path) -> None:
    page = opened(small)
    drawn(page, "clusters")
    assert page.execute_script("return document.querySelector('[data-newcomers]').dataset.newcomers") == "4"
    assert "4 came later" in page.execute_script("return document.getElementById('bridges').textContent")
    choose(page, "client", "23")
    assert "newcomer" in page.execute_script("return document.getElementById('client-facts').textContent")
    drawn(page, "labels")


def test_a_bridge_is_told(opened: Open, tmp_path: Path) -> None:
    """Clients 0, 1 | 2, 3 stand 20 degrees apart; newcomer 4 is 5 from the first, 6 from the others; cut at 8."""
    square = np.array([[0, 1, 20, 20, 5], [1, 0, 20, 20, 5], [20, 20, 0, 1, 6], [20, 20, 1, 0, 6], [5, 5, 6, 6, 0.0]])
    write_run(tmp_path / "runs", {"name": "pacfl"}, 0, 5, newcomers=1, square=square, threshold=8.0)
    page = opened(tmp_path / "runs")
    told = page.execute_script("return document.querySelector('#bridges li').textContent")
    assert told == "client 4 is 5.00° from cluster 0 and 6.00° from cluster 1 of the run"


def test_a_clicked_client_is_the_one_of_the_panel(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
    page = opened(small)
    drawn(page, "clusters")
    page.execute_script("""
        const image = document.querySelector('[data-figure=clusters] image').getBoundingClientRect();
        const at = {clientX: image.left + 10.5 * image.width / 24, clientY: image.top + 5, bubbles: true};
        document.querySelector('[data-figure=clusters] svg').dispatchEvent(new MouseEvent('click', at));""")
    client = int(page.execute_script("return document.getElementById('client').value"))
    nearest = page.execute_script("return document.querySelector('#neighbours tbody tr').textContent")
    others = np.where(np.arange(24) == client, np.inf, run.grouped.proximity[client])
    assert f"client {others.argmin()}" in nearest
    assert f"{others.min():.2f}" in nearest
    shown = page.execute_script("""return [...document.querySelectorAll('#under-each tbody tr')]
        .map(r => [r.cells[0].textContent, r.cells[1].textContent])""")
    runs = {run.algorithm: run for run in gather([str(small)], small).runs if run.seed == 0}
    assert {name for name, _ in shown} == set(runs)
    for name, accuracy in shown:
        expected = runs[name].accuracy["received"][client]
        assert accuracy == ("\u2013" if np.isnan(expected) else f"{100 * np.float32(expected):.1f}")


def saved(page: Any, figure: str, kind: str) -> bytes:
    """What a save button hands to the browser."""
    page.execute_script(f"""
        window.kept = null;
        window.makeUrl ??= URL.createObjectURL;
        URL.createObjectURL = (blob) => {{ const r = new FileReader(); r.onload = () => window.kept = r.result;
                                           r.readAsDataURL(blob); return window.makeUrl.call(URL, blob); }};
        document.querySelector('[data-figure="{figure}"] [data-save="{kind}"]').click();""")
    url = until(lambda: page.execute_script("return window.kept"), f"{kind} of {figure}")
    return base64.b64decode(url.partition(",")[2])


@pytest.mark.parametrize("figure", ["clusters", "stability", "labels", "curves", "personal", "spread", "cost"])
def test_every_figure_is_drawn_and_saved_as_svg_png_and_csv(opened: Open, small: Path, figure: str) -> None:
    page = opened(small)
    drawn(page, figure)
    svg = saved(page, figure, "SVG")
    assert svg.startswith(b"<svg")
    assert b'xmlns="http://www.w3.org/2000/svg"' in svg
    assert saved(page, figure, "PNG").startswith(b"\x89PNG")
    table = saved(page, figure, "CSV" if figure != "clusters" else "CSV of clusters").decode().splitlines()
    columns = table[0].split(",")
    assert columns[-1] == "run"
    hashes = {run.hash for run in gather([str(small)], small).runs}
    assert len(table) > 2
    assert {line.split(",")[-1] for line in table[1:]} <= hashes


@pytest.mark.parametrize("what", ["accuracy", "loss"])
@pytest.mark.parametrize("against", ["rounds", "megabits"])
def test_curves_show_what_is_asked(opened: Open, small: Path, what: str, against: str) -> None:
    page = opened(small)
    drawn(page, "curves")
    choose(page, "what", what)
    choose(page, "against", against)
    titles = """const text = document.querySelector('[data-figure=curves] svg')?.textContent ?? '';
        return text.includes(arguments[0] + ' (received)') || text.includes(arguments[0] + ', % (received)')
            ? text.includes(arguments[1]) : false"""
    until(lambda: page.execute_script(titles, what, against), f"{what} against {against}")


def test_names_that_are_scripts_stay_names(opened: Open, tmp_path: Path) -> None:
    for name in ("fedavg", "pacfl"):
        write_run(tmp_path / "runs", {"name": name, "note": EVIL}, 0, 4, dataset=EVIL, names=(EVIL, "'", '"', "=1+1"))
    page = opened(tmp_path / "runs")
    for figure in ("clusters", "labels", "curves", "personal", "spread", "cost"):
        drawn(page, figure)
    assert page.title.startswith("pacfl report: </script>")
    assert page.execute_script("return document.images.length") == 0
    assert EVIL in page.execute_script("return document.getElementById('client-facts').textContent")
    assert "'=1+1" in saved(page, "clusters", "CSV of clusters").decode()


def test_several_experiments_are_chosen_between(opened: Open, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", ("fedavg", "pacfl"), seeds=(0, 1), n=8)
    write_runs(tmp_path / "runs", ("fedavg",), seeds=(5,), n=6, dataset="other")
    page = opened(tmp_path / "runs")
    texts = page.execute_script("return [...document.getElementById('experiment').options].map(o => o.textContent)")
    other = next(i for i, text in enumerate(texts) if text.startswith("other"))
    choose(page, "experiment", str(other))
    assert page.execute_script("return document.getElementById('seed').value") == "5"
    assert page.execute_script("return document.getElementById('grouping').hidden")
    drawn(page, "curves")


def test_evidence_comes_and_goes_with_the_grouping_that_has_it(opened: Open, tmp_path: Path) -> None:
    chosen = write_run(tmp_path / "runs", {"name": "pacfl"}, 0, 12)
    given = write_run(tmp_path / "runs", {"name": "pacfl", "threshold": 9.0}, 0, 12, threshold=9.0)
    page = opened(tmp_path / "runs")
    figure = "return document.querySelector('[data-figure=stability]')"
    for folder, shown in ((given, False), (chosen, True), (given, False), (chosen, True)):
        choose(page, "grouping-run", folder.path.name)
        page.execute_script(f"{figure}.parentElement.scrollIntoView()".removeprefix("return "))
        condition = f"{figure}.querySelector('svg') !== null && !{figure[7:]}.hidden" if shown else f"{figure}.hidden"
        until(lambda condition=condition: page.execute_script(condition), f"stability {'shown' if shown else 'hidden'}")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(opened: Open, small: Path, width: int, browser: Any) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page = opened(small)
    for figure in ("clusters", "stability", "labels", "curves", "personal", "spread", "cost"):
        drawn(page, figure)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_paper_has_every_figure(opened: Open, small: Path) -> None:
    page = opened(small)
    page.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    missing = (
        "return [...document.querySelectorAll('[data-figure]:not([hidden])')].filter(f => !f.querySelector('svg'))"
    )
    until(lambda: page.execute_script(f"{missing}.length === 0"), "all figures")
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")


def test_a_hundred_clients_and_thirty_runs_open_within_two_seconds(opened: Open, tmp_path: Path) -> None:
    page = opened(write_runs(tmp_path / "runs", METHODS, seeds=(0, 1, 2), n=100))
    assert int(page.execute_script("return document.documentElement.dataset.ready")) < 2000


def test_two_thousand_clients_are_explored_without_waiting(opened: Open, tmp_path: Path) -> None:
    page = opened(write_runs(tmp_path / "runs", ("pacfl",), seeds=(0,), n=2000))
    assert int(page.execute_script("return document.documentElement.dataset.ready")) < 2000
    drawn(page, "clusters")
    spent = page.execute_script("""
        const slider = document.getElementById('beta'), spent = [];
        for (let i = 0; i <= 20; i++) {
            const start = performance.now();
            slider.value = slider.max * i / 20;
            slider.dispatchEvent(new Event('input'));
            spent.push(performance.now() - start);
        }
        return spent""")
    assert np.median(spent) < 100


def test_a_federation_that_learnt_nothing_shows_who_is_alike(opened: Open, tmp_path: Path) -> None:
    names = [f"hospital {i}" for i in range(8)] + [EVIL]
    page = opened(write_federation(tmp_path / "hospitals", names))
    drawn(page, "clusters")
    assert page.execute_script("return document.getElementById('count').textContent") == "3 clusters"
    assert slide(page, 0.0) == 9
    for part in ("learning", "fairness", "communication", "under-each"):
        assert not page.execute_script("return document.getElementById(arguments[0]).checkVisibility()", part), part
    choose(page, "client", "8")
    assert page.execute_script("return document.getElementById('client-facts').textContent").startswith(EVIL)
    assert page.title == "pacfl report: hospitals"
    told = page.execute_script("return document.getElementById('grouping').textContent")
    assert "Hash of the federation" in told
    assert "run " not in told.lower()


def test_runs_and_a_federation_on_one_page_are_chosen_at_the_top(browser: Any, small: Path, tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", [f"hospital {i}" for i in range(9)])
    path = tmp_path / "both.html"
    write(gather([str(small), str(folder)], small), path)
    browser.get(path.as_uri())
    until(lambda: browser.execute_script("return document.documentElement.dataset.ready"), "a page that is ready")
    visible = "return document.getElementById('learning').checkVisibility()"
    assert browser.execute_script(visible)
    choose(browser, "experiment", "1")
    assert not browser.execute_script(visible)
    assert browser.execute_script("return document.getElementById('count').textContent") == "3 clusters"
    choose(browser, "experiment", "0")
    assert browser.execute_script(visible)
    drawn(browser, "curves")
    assert [entry["message"] for entry in browser.get_log("browser")] == []
