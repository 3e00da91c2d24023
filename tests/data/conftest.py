from pathlib import Path

import numpy as np
import pytest

from pacfl.data import Dataset, from_arrays


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data sets, if there is one."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    scenarios = pytest.importorskip("studies.scenarios", reason="the studies are not beside the tests")
    folder: Path = scenarios.data_folder()
    if not folder.is_dir():
        pytest.skip("no folder of real data sets here: name one with PACFL_DATA")
    return folder


@pytest.fixture
def balanced() -> Dataset:
    """600 training and 100 test samples of 10 classes."""
    y_train, y_test = np.arange(600) % 10, np.arange(100) % 10
    x = np.random.default_rng(0).random((700, 4), dtype=np.float32)
    return from_arrays(x[:600], y_train, x[600:], y_test)
