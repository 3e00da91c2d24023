"""Work of more than two seconds shows a progress bar, on standard error only."""

import inspect
import io
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pacfl.cli import experiments, export, report, schema, signature_display, signatures
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


def test_work_that_reports_no_steps_shows_a_bar_too(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands on signatures run inside of these bars; the next test sees to it."""
    monkeypatch.setattr(signature_display, "SHOWN_AFTER", 0.1)
    with progress_bars():
        time.sleep(0.5)
    assert "working" in terminal.getvalue()


@pytest.mark.parametrize(
    "command",
    [
        *(getattr(signatures, name) for name in ("sign", "cluster", "join", "leave", "replace", "explain")),
        *(getattr(schema, name) for name in ("describe", "init")),
        *(export.export, export.predict, report.report, experiments.list_data, experiments._show_federation),
    ],
)
def test_a_command_that_may_take_long_shows_bars(command: Callable[..., None]) -> None:
    assert "progress_bars()" in inspect.getsource(command)


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
