import os

import pytest


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip waiting for the disk: power failures are only simulated here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
