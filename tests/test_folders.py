"""Every command says what a folder is, and either takes it or names the commands that do."""

import json
from pathlib import Path

import pytest

from pacfl.errors import StoreError
from pacfl.folders import COMMANDS, WORDS, Kind, recognise, required
from tests.conftest import Run
from tests.report.folders import write_federation, write_run


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def folders(tmp_path: Path) -> dict[Kind, Path]:
    """One of each kind; those of a server and of a deployment without a round."""
    run = write_run(tmp_path / "runs", {"name": "fedavg"}, 0, 4)
    deployment = tmp_path / "deployment"
    (deployment / "server" / "federation").mkdir(parents=True)
    (deployment / "deploy.json").write_text("{}")
    (deployment / "server" / "register.sh").touch()
    (deployment / "server" / "federation" / "status.json").write_text("{}")
    return {
        "clusters": write_federation(tmp_path / "clusters", ["a", "b", "c"]),
        "server": deployment / "server" / "federation",
        "deployment": deployment,
        "run": run.path,
        "runs": tmp_path / "runs",
    }


def test_each_kind_is_recognised(folders: dict[Kind, Path], tmp_path: Path) -> None:
    for kind, path in folders.items():
        found = recognise(path)
        assert found is not None
        assert (found.kind, str(found)) == (kind, f"{path}, {WORDS[kind]}")
    for other in (tmp_path, tmp_path / "nothing"):
        assert recognise(other) is None
        with pytest.raises(StoreError, match="'pacfl show' needs the folder of a run"):
            required(other, "show", "run")


def test_a_server_is_found_by_any_of_its_folders_and_has_the_name_of_its_deployment(
    folders: dict[Kind, Path],
) -> None:
    federation = folders["server"]
    for path in (federation, federation.parent, folders["deployment"]):
        found = recognise(path)
        assert found is not None
        assert (found.federation, found.name) == (federation, "deployment")
    apart = federation.parent.parent.rename(federation.parents[2] / "study") / "server"
    (apart.parent / "deploy.json").unlink()  # on the server there is only a part of it
    found = recognise(apart)
    assert found is not None
    assert (found.kind, found.federation, found.name) == ("server", apart / "federation", "server")


REFUSED: list[tuple[str, Kind, tuple[str, ...]]] = [
    *[("join", kind, ("x.sig",)) for kind in ("server", "deployment", "run", "runs")],
    *[("leave", kind, ("a",)) for kind in ("server", "deployment", "run", "runs")],
    *[("replace", kind, ("a.sig",)) for kind in ("server", "deployment", "run", "runs")],
    *[("explain", kind, ("a", "b")) for kind in ("run", "runs")],
    *[("status", kind, ()) for kind in ("clusters", "run", "runs")],
    *[("export", kind, ("-o", "export")) for kind in ("clusters", "runs")],
    ("show", "runs", ()),
    *[("deploy status", kind, ()) for kind in ("clusters", "server", "run", "runs")],
    *[("deploy up", kind, ()) for kind in ("clusters", "server", "run", "runs")],
]


@pytest.mark.parametrize(("command", "kind", "more"), REFUSED, ids=lambda value: "".join(value))
def test_a_command_that_has_no_use_for_a_folder_says_what_it_is_and_which_commands_have(
    command: str, kind: Kind, more: tuple[str, ...], folders: dict[Kind, Path], run: Run, tmp_path: Path
) -> None:
    if command.startswith("deploy"):
        pytest.importorskip("flwr", reason="Flower is not installed: pip install 'pacfl[flower]'")
    before = sorted(tmp_path.rglob("*"))
    code, _, err = run(*command.split(), folders[kind], *more)
    assert code == 1
    assert f"{folders[kind]}: is {WORDS[kind]}, and 'pacfl {command.split()[0]}' needs" in flat(err)
    assert flat(err).endswith(f"commands for it are {COMMANDS[kind]}")
    assert sorted(tmp_path.rglob("*")) == before


def test_no_refusal_names_a_command_that_refuses() -> None:
    assert not [(command, kind) for command, kind, _ in REFUSED if command in COMMANDS[kind].split(", ")]


def test_a_run_is_shown_by_its_folder_and_json_has_the_kind(folders: dict[Kind, Path], run: Run) -> None:
    path = folders["run"]
    by_folder = run("show", path, "--json")[1]
    assert by_folder == run("show", path.name, "--runs", path.parent, "--json")[1]
    assert json.loads(by_folder)["kind"] == "run"
    assert json.loads(run("show", folders["clusters"], "--json")[1])["kind"] == "clusters"
    assert json.loads(run("explain", folders["clusters"], "a", "b", "--json")[1])["folder"] == {
        "path": str(folders["clusters"]),
        "kind": "clusters",
    }


def test_ls_lists_folders_of_runs_only(folders: dict[Kind, Path], run: Run, tmp_path: Path) -> None:
    assert run("ls", "--runs", tmp_path / "new")[0] == 0
    assert f"is {WORDS['clusters']}" in flat(run("ls", "--runs", folders["clusters"])[2])
