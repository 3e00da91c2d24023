"""The life of a federation on the command line: show, join, leave, replace."""

import json
from pathlib import Path

import pytest

from pacfl.signatures import SignatureFile, leave_federation, load_federation, replace_file, sigfile
from pacfl.signatures import folder as folders
from tests.conftest import Run
from tests.signatures.test_federation import client
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
    assert shown == {"kind": "clusters", **json.loads((folder / folders.SUMMARY).read_text())}
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


def written(folder: Path, name: str, signature: SignatureFile) -> Path:
    path = folder / f"{name}.sig"
    sigfile.write(path, signature)
    return path


def test_join_says_how_sure_it_is_and_show_remembers(run: Run, folder: Path, tmp_path: Path) -> None:
    files = [written(tmp_path, "late", client(1, 70)), written(tmp_path, "twin", client(0, 2))]
    code, out, _ = run("join", folder, *files)
    assert code == 0
    for text in (out, run("show", folder)[1]):
        assert "late joins cluster 1, " in flat(text)
        assert "times the noise from it; the nearest other is cluster" in flat(text)
        assert "warning: twin: its signature is nearer to that of g0-2 than" in flat(text)
    assert "12 clients clustered; 2 joined since." in flat(run("show", folder)[1])
    shown = json.loads(run("show", folder, "--json")[1])["newcomers"]
    assert set(shown) == {"late", "twin"}
    assert set(shown["late"]) == {
        *("cluster", "opened", "distance", "runner_up", "runner_up_distance"),
        *("merge", "copy_of", "too_small", "warnings"),
    }
    assert (shown["twin"]["copy_of"], shown["late"]["copy_of"]) == ("g0-2", None)
    assert shown["late"]["distance"] < shown["late"]["runner_up_distance"]


def test_replace_says_whether_a_client_drifted_and_where_it_fits(run: Run, folder: Path, tmp_path: Path) -> None:
    code, out, _ = run("replace", folder, written(tmp_path, "g1-2", client(1, 70)))
    assert code == 0
    assert "g1-2: has not drifted: its new signature is" in flat(out)
    file = written(tmp_path, "g1-2", client(2, 70))
    out = run("replace", folder, file)[1]
    assert "g1-2: drifted: its new signature is" in flat(out)
    assert "g1-2 stays in cluster 1; now it fits cluster 2; --move moves it there" in flat(out)
    assert "now it fits cluster 2" in flat(run("show", folder)[1])
    answer = json.loads(run("replace", folder, file, "--move", "--json")[1])
    assert (answer["replaced"], answer["before"], answer["cluster"], answer["moved"]) == ("g1-2", 1, 2, True)
    assert set(answer["drift"]) == {"compared", "size", "limit", "drifted", "fits", "obstacle", "column"}
    assert "g1-2" in load_federation(folder).clusters()[2]
    assert load_federation(folder).drifted == {}


def test_the_same_signature_does_not_touch_the_folder(run: Run, folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    code, out, _ = run("replace", folder, written(tmp_path, "g1-2", client(1, 2)))
    assert (code, "g1-2: this is the signature that it had" in flat(out)) == (0, True)
    assert {p.name: p.stat().st_mtime_ns for p in folder.iterdir() if p.name != ".lock"} == before


def test_replace_refuses_strangers_and_data(run: Run, folder: Path, tmp_path: Path) -> None:
    code, _, err = run("replace", folder, written(tmp_path, "stranger", client(1, 2)))
    assert (code, "stranger: not in the federation" in err) == (1, True)
    (tmp_path / "g1-2.npy").write_bytes(b"")
    code, _, err = run("replace", folder, tmp_path / "g1-2.npy")
    assert code == 1
    assert "is no signature file; sign the data first" in err


def test_python_replaces_as_the_command_does(run: Run, folder: Path, tmp_path: Path) -> None:
    twin, file = tmp_path / "twin", written(tmp_path, "g1-2", client(2, 70))
    twin.mkdir()
    folders.save(three_groups(), twin)
    run("replace", folder, file, "--move")
    assert replace_file(twin, file, move=True).federation.summary() == load_federation(folder).summary()


def test_names_that_are_formulas_or_foreign_letters_are_drawn_and_controls_are_refused(
    run: Run, tmp_path: Path
) -> None:
    names = ["a$b_{$", "\u65e5\u672c", "[bold]x", "-y"]
    files = [written(tmp_path, name, client(i % 2, i)) for i, name in enumerate(names)]
    code, out, err = run("cluster", *files, "-o", tmp_path / "federation")
    assert (code, err) == (0, "")
    assert all(name in out for name in names)
    code, out, err = run("leave", tmp_path / "federation", "--", "-y")
    assert (code, err) == (0, "")
    code, _, err = run("join", tmp_path / "federation", written(tmp_path, "two\nlines", client(0, 9)))
    assert code == 1
    assert r"'two\nlines' cannot be printed; rename the file" in err


def test_what_is_no_federation_is_said_with_the_remedy(run: Run, folder: Path, tmp_path: Path) -> None:
    assert f"{tmp_path}: is no folder of a federation or of a run, and 0 runs" in flat(run("show", tmp_path)[2])
    err = run("join", folder, written(tmp_path, "g0-0", client(0, 0)))[2]
    assert "g0-0: already in the federation, nothing was changed; a new signature of a client is for" in flat(err)


def test_the_evidence_is_of_those_who_were_clustered(run: Run, folder: Path) -> None:
    run("leave", folder, "g0-0")
    assert "12 clients clustered; 1 left since. The evidence is that of the clustering:" in flat(run("show", folder)[1])
