"""The page in a real browser. Debian: apt-get install chromium chromium-driver."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="some tests here train, which needs torch")
pytest.importorskip("vl_convert", reason="pages need the extra: pip install 'pacfl[report]'")
pytest.importorskip("selenium", reason="pages are tested in a browser by selenium")

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from pacfl.report.gather import gather
from pacfl.report.page import write
from tests.report.browser import Open, until
from tests.report.folders import write_runs


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and chromedriver):
        pytest.skip("no browser here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens the page of a folder of runs; afterwards, the browser's log must be empty."""

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
