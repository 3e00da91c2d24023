from pathlib import Path

import pytest

from tests.conftest import Run

EXPERIMENT = """
seeds = [0, 1]
[data]
name = "digits"
clients = 8
scheme = { kind = "by-set", counts = [2, 2, 2, 2], size = 40 }
[learning]
epochs = 1
lr = 0.05
[schedule]
rounds = 2
participation = 0.5
[[algorithm]]
name = "fedavg"
[[algorithm]]
name = "pacfl"
clusters = 4
"""


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """A command in a folder of its own, with an experiment."""
    pytest.importorskip("torch", reason="training needs torch")
    pytest.importorskip("sklearn", reason="the embedded digits need scikit-learn")
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(EXPERIMENT)
    return run
