"""Work of more than two seconds shows a progress bar, on standard error only."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pacfl.cli import signature_display
from pacfl.cli.signature_display import progress_bars
from pacfl.features import reading
from tests.conftest import Run

SEEN = re.compile(r"decomposing[^\n\r]*?(\d+)/(\d+)")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr(signature_display, "err", Console(file=written, force_terminal=True, width=120))
    return written


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, True), (1e9, False)])
def test_a_bar_is_shown_after_some_seconds_and_not_before(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool
) -> None:
    assert signature_display.SHOWN_AFTER == 2.0
    monkeypatch.setattr(signature_display, "SHOWN_AFTER", seconds)
    with progress_bars() as advance:
        advance("decomposing", 1, 4)
        advance("decomposing", 1, 4)
    assert bool(SEEN.search(terminal.getvalue())) == shown


def test_the_same_work_on_another_file_begins_anew(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature_display, "SHOWN_AFTER", 0.0)
    with progress_bars() as advance:
        for total in (3, 5):
            for _ in range(total):
                advance("decomposing", 1, total)
    assert SEEN.findall(terminal.getvalue())[-1] == ("5", "5")


def test_signing_a_large_file_shows_a_bar(
    run: Run, terminal: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LARGE", 10)
    monkeypatch.setattr(signature_display, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr("pacfl.subspace.stored.BLOCK", 1000)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(2, 1, (200, 30)))
    code, out, _ = run("sign", tmp_path / "x.npy", "-o", tmp_path / "x.sig", "--json")
    assert code == 0
    assert SEEN.search(terminal.getvalue())
    assert out.startswith("{")
