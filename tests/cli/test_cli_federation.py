"""The life of a federation on the command line: show, leave."""

import json
from pathlib import Path

import pytest

from pacfl.signatures import folder as folders
from pacfl.signatures import leave_federation, load_federation
from tests.conftest import Run
from tests.signatures.test_lifecycle import three_groups


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three groups of four clients."""
    (tmp_path / "federation").mkdir()
    folders.save(three_groups(), tmp_path / "federation")
    return tmp_path / "federation"


def flat(text: str) -> str:
    """Without the line breaks of a terminal."""
    return " ".join(text.split())


def test_show_leads_with_the_answer_and_names_everybody(run: Run, folder: Path) -> None:
    code, out, _ = run("show", folder)
    assert code == 0
    assert flat(out).startswith("Three groups: g0-0, g0-1, g0-2, g0-3; g1-0")
    assert "times the sampling noise apart; what differs: feature" in flat(out)
    for name in three_groups().names:
        assert name in out
    assert "Diagnosis:" in out


def test_show_prints_what_the_folder_says(run: Run, folder: Path) -> None:
    shown = json.loads(run("show", folder, "--json")[1])
    assert shown == json.loads((folder / folders.SUMMARY).read_text())
    assert shown["answer"] == load_federation(folder).answer
    (folder / folders.SUMMARY).unlink()  # derived from the state
    assert json.loads(run("show", folder, "--json")[1]) == shown


def test_show_refuses_what_is_for_runs(run: Run, folder: Path) -> None:
    for option in (["--csv"], ["--target", "0.5"], ["--test", "whole"]):
        code, _, err = run("show", folder, *option)
        assert code == 1
        assert f"{option[0]}: is for runs" in err


def test_clients_leave_and_the_others_are_shown(run: Run, folder: Path) -> None:
    code, out, _ = run("leave", folder, "g1-0", "g1-1", "g1-2", "g1-3", "g0-2")
    assert code == 0
    assert "g1-0, g1-1, g1-2, g1-3, g0-2 left. Two groups: g0-0, g0-1, g0-3 and g2-0" in flat(out)
    answer = json.loads(run("leave", folder, "g2-3", "g2-3", "--json")[1])
    assert answer["left"] == ["g2-3"]
    assert answer["clusters"] == [["g0-0", "g0-1", "g0-3"], [], ["g2-0", "g2-1", "g2-2"]]
    assert json.loads((folder / folders.SUMMARY).read_text())["clusters"] == answer["clusters"]
    assert {"dendrogram.svg", "heatmap.svg"} <= {path.name for path in folder.iterdir()}


def test_one_name_that_is_not_there_changes_nothing(run: Run, folder: Path) -> None:
    before = (folder / folders.STATE).read_bytes()
    code, _, err = run("leave", folder, "g0-0", "g9")
    assert code == 1
    assert "g9: not in the federation, nothing was changed" in err
    assert (folder / folders.STATE).read_bytes() == before


def test_python_does_what_the_commands_do(run: Run, folder: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    twin.mkdir()
    folders.save(three_groups(), twin)
    run("leave", folder, "g0-0")
    assert leave_federation(twin, ["g0-0"]).summary() == load_federation(folder).summary()
