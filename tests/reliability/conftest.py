import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # the small federation lies beside the folders of tests


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here but in play: thousands of waits for the disk are saved."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
