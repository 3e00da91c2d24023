import os

import pytest


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here but in play: thousands of waits for the disk are saved."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
