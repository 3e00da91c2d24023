"""`pacfl run --backend flower`: the same results as without."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pacfl

pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'pacfl[flower]'")

EXPERIMENT = """
engine = "eager"
[data]
name = "digits"
clients = 4
scheme = { kind = "by-set", counts = [1, 1, 1, 1], size = 40 }
[learning]
epochs = 1
[schedule]
rounds = 2
sample = 1.0
[[algorithm]]
name = ["pacfl", "scaffold"]
"""


def results(folder: Path, backend: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "pacfl.cli", "run", "e.toml", "--json", "--workers", "1", "--runs", backend]
    environment = {**os.environ, "PYTHONPATH": str(Path(pacfl.__file__).resolve().parents[1])}
    done = subprocess.run(
        [*command, "--backend", backend], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [{key: value for key, value in result.items() if key != "seconds"} for result in told]


def test_the_backend_does_not_change_the_results(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    here = results(tmp_path, "local")
    assert [result["algorithm"] for result in here] == ["pacfl", "scaffold"]
    assert results(tmp_path, "flower") == here
