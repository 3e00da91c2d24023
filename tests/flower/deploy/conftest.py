import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pacfl.flower  # noqa: F401 - turns telemetry off before Flower is imported

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'pacfl[flower]'")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Unix sockets need short paths."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"pacfl-e2e-{os.getpid()}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
