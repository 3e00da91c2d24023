from pathlib import Path

import pytest


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data sets, if there is one."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    scenarios = pytest.importorskip("studies.scenarios", reason="the studies are not beside the tests")
    folder: Path = scenarios.data_folder()
    if not folder.is_dir():
        pytest.skip("no folder of real data sets here: name one with PACFL_DATA")
    return folder
