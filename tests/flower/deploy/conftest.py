import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pacfl.flower  # noqa: F401 - says before anything of Flower is imported that nothing is reported

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'pacfl[flower]'")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Sockets want short paths."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"pacfl-e2e-{os.getpid()}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
