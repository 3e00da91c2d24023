import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pacfl.cli import main

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
sample = 0.5
[[algorithm]]
name = "fedavg"
[[algorithm]]
name = "pacfl"
clusters = 4
"""


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Exit code, standard output and standard error of a command, in a folder of its own with an experiment."""
    pytest.importorskip("torch", reason="training needs torch")
    pytest.importorskip("sklearn", reason="the embedded digits need scikit-learn")
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(EXPERIMENT)

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pacfl", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return command
