"""A torch Dataset for each client, from Python, its history plotted."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples" / "torch_datasets" / "train.py"


def test_pacfl_finds_the_cameras_that_are_upside_down_and_serves_both_kinds_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for needed in ("pandas", "matplotlib", "sklearn"):
        pytest.importorskip(needed)
    spec = importlib.util.spec_from_file_location("torch_datasets_example", FILE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main(str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    accuracy = {}
    for line in capsys.readouterr().out.splitlines():
        name, mean, _, clusters = line.split(maxsplit=3)
        accuracy[name] = float(mean)
    assert eval(clusters) == {f"hospital {i}": i % 2 for i in range(8)}
    assert max(accuracy, key=lambda name: accuracy[name]) == name == "PACFL"
