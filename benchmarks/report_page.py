"""How fast the page of a large federation opens, and answers the mouse and the slider, in a real browser.

python -m benchmarks.report_page --clients 2000 --clusters 5

It needs selenium, Chromium and its driver. Milliseconds of the clock, which other work on the machine lengthens.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.timing import busy
from pacfl.report.gather import gather
from pacfl.report.page import write
from pacfl.signatures import folder as folders
from pacfl.signatures.federation import federate
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import signature, split_half_angles

OPENINGS, MOVES = 10, 60
READY = "return document.documentElement.dataset.ready"
FIGURE = "document.querySelector('[data-figure=clusters] .drawing')"
SLIDE = """const s = document.getElementById('beta'), spent = [];
for (let i = 0; i <= 20; i++) { const start = performance.now(); s.value = s.max * i / 20;
  s.dispatchEvent(new Event('input')); spent.push(performance.now() - start); } return spent"""


def write_page(folder: Path, n: int, clusters: int) -> Path:
    """The page of n clients of some kinds, in turn."""
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(60, 20)) + 3 * np.eye(20)[i % clusters] for i in range(n)]
    noise = [split_half_angles(x, 2) for x in data[:clusters]]  # of one client of each kind: for all, it takes long
    clients = {
        f"client {i}": SignatureFile(signature(x, 2).astype(np.float32), 2, False, "raw", 60, noise[i % clusters])
        for i, x in enumerate(data)
    }
    (folder / "federation").mkdir()
    folders.save(federate(clients, clusters=clusters), folder / "federation")
    print(f"{write(gather([str(folder / 'federation')], folder), folder / 'page.html') / 1e6:.1f} MB")
    return folder / "page.html"


def browser() -> Any:
    """Chromium without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def milliseconds_to_open(page: Any, path: Path) -> int:
    """From the navigation until the page can be used."""
    page.get(path.as_uri())
    return int(WebDriverWait(page, 60, 0.05).until(lambda page: page.execute_script(READY)))


def long_tasks_of_moves(page: Any) -> list[float]:
    """Milliseconds of what kept the page from answering for more than 50 ms, while the mouse moves over the figure."""
    page.execute_script(f"{FIGURE}.scrollIntoView({{block: 'center'}})")
    WebDriverWait(page, 60, 0.05).until(
        lambda page: page.execute_script(f"return {FIGURE}.querySelector('svg, canvas')")
    )
    box = page.execute_script(f"""const r = {FIGURE}.getBoundingClientRect(); window.tasks = [];
        new PerformanceObserver(list => list.getEntries().forEach(entry => window.tasks.push(entry.duration)))
            .observe({{entryTypes: ['longtask']}});
        return [r.left, r.top, r.width, r.height]""")
    for i in range(MOVES):
        x, y = (box[k] + box[2 + k] * (0.1 + 0.8 * (i * (1 + 6 * k) % MOVES) / MOVES) for k in (0, 1))
        page.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
    found: list[float] = page.execute_script("return window.tasks")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--clusters", type=int, default=5)
    given = parser.parse_args()
    print(busy())
    with tempfile.TemporaryDirectory() as folder:
        path, page = write_page(Path(folder), given.clients, given.clusters), browser()
        try:
            print("opened in", sorted(milliseconds_to_open(page, path) for _ in range(OPENINGS)), "ms")
            print(f"{MOVES} moves of the mouse, tasks above 50 ms:", long_tasks_of_moves(page))
            print("slider", sorted(round(ms) for ms in page.execute_script(SLIDE)), "ms")
        finally:
            page.quit()
