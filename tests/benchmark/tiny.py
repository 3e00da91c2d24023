"""A grid that takes seconds: two rounds of eight clients, tuned by one-round trials."""

import copy
from pathlib import Path
from typing import Any

import pytest

from pacfl.benchmark import grid
from pacfl.benchmark.making import Request

TUNING = {"rounds": 2, "validation": 0.2, "lr": [0.1, 0.01], "lr-beside": [0.1]}


def shrink(monkeypatch: pytest.MonkeyPatch, tuning: bool = False) -> None:
    """Make the quick scale tiny."""
    table: dict[str, Any] = copy.deepcopy(dict(grid.grid()))
    quick = table["scales"]["quick"]
    quick["data"]["clients"] = 8
    quick["learning"]["epochs"] = 1
    quick["schedule"] |= {"rounds": 2, "evaluate-every": 1}
    if tuning:
        quick["tuning"] = TUNING
    monkeypatch.setattr(grid, "grid", lambda: table)


def request_of(runs: Path, methods: tuple[str, ...], shifts: tuple[str, ...], **options: Any) -> Request:
    return Request(grid.methods(methods), grid.columns("quick", None, shifts), runs=runs, **options)
