"""A page in a browser: what a user does and sees there."""

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Open = Callable[[Path], Any]


def until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"did not happen: {what}")


def drawn(page: Any, figure: str) -> None:
    """Scroll to a figure and wait until it is drawn."""
    box = f"document.querySelector('[data-figure=\"{figure}\"] .drawing')"
    page.execute_script(f"{box}.scrollIntoView({{block: 'center'}})")
    until(lambda: page.execute_script(f"return !!{box}.querySelector('svg, canvas')"), figure)


def slide(page: Any, beta: float) -> int:
    """Move the slider; the number of clusters that the page then shows."""
    page.execute_script(
        "const s = document.getElementById('beta'); s.value = arguments[0]; s.dispatchEvent(new Event('input'));",
        beta,
    )
    return int(page.execute_script("return document.getElementById('count').dataset.clusters"))


def choose(page: Any, select: str, value: str) -> None:
    page.execute_script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))",
        *(select, value),
    )


def saved(page: Any, figure: str, kind: str) -> bytes:
    """The file that a save button of a figure makes."""
    return file_of(page, f'[data-figure="{figure}"] [data-save="{kind}"]')


def file_of(page: Any, button: str) -> bytes:
    """The file that a save button makes, by its selector."""
    page.execute_script(f"""
        window.savedFile = null;
        window.makeUrl ??= URL.createObjectURL;
        URL.createObjectURL = (blob) => {{ const r = new FileReader(); r.onload = () => window.savedFile = r.result;
                                           r.readAsDataURL(blob); return window.makeUrl.call(URL, blob); }};
        document.querySelector('{button}').click();""")
    url = until(lambda: page.execute_script("return window.savedFile"), button)
    return base64.b64decode(url.partition(",")[2])
