"""Units of systemd and files of Docker Compose, as far as can be seen without running them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pacfl.flower.deploy import layout, services

yaml = pytest.importorskip("yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    layout.make(tmp_path / "d", ["Heidelberg", "lyon"])
    return tmp_path / "d"


def compose(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((folder / services.COMPOSE).read_text())
    return read


def test_every_folder_has_the_services_that_run_there(folder: Path) -> None:
    assert set(compose(folder / "server")["services"]) == {"server", "supervisor"}
    for name in ("Heidelberg", "lyon"):
        assert set(compose(folder / "sites" / name)["services"]) == {f"site-{name.lower()}"}
    here = compose(folder)["include"]
    assert here == [f"{where}/compose.yaml" for where in ("server", "sites/Heidelberg", "sites/lyon")]
    assert all((folder / where).exists() for where in here)


def test_a_deployment_on_many_machines_has_no_file_for_all(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["lyon"], ["fl.example.org"])
    assert not (tmp_path / "d" / services.COMPOSE).exists()
    unit = (tmp_path / "d" / "server" / services.SERVER).read_text()
    assert f"PATH={services.ELSEWHERE}:" in unit
    assert str(Path(sys.executable).parent) not in unit


def test_what_is_started_is_there(folder: Path) -> None:
    for where in ("server", "sites/lyon"):
        for service in compose(folder / where)["services"].values():
            inside = dict(volume.split(":")[1::-1] for volume in service["volumes"])
            assert (folder / where / inside[service["working_dir"]]).resolve() == (folder / where).resolve()
            first = service["command"][0]
            assert first == "pacfl" or (folder / where / first).stat().st_mode & 0o100


def test_no_key_is_sent_to_whoever_builds_an_image(folder: Path) -> None:
    for where in ("server", "sites/lyon"):
        assert (folder / where / ".dockerignore").read_text() == "*\n"
        for service in compose(folder / where)["services"].values():
            assert "COPY" not in service["build"]["dockerfile_inline"]
            assert service["user"] != "root"


def test_a_compose_file_follows_the_sites_of_a_deployment(folder: Path) -> None:
    known = layout.load(folder)
    layout.save(folder, layout.Deployment(("lyon",), known.hosts, known.port, known.site_ports[1:], known.bind))
    assert compose(folder)["include"] == ["server/compose.yaml", "sites/lyon/compose.yaml"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(
    ("where", "unit"),
    [("server", services.SERVER), ("server", services.SUPERVISOR), ("sites/lyon", services.SITE)],
)
def test_units_are_valid(where: str, unit: str, folder: Path, tmp_path: Path) -> None:
    """Units of a folder, by its path. systemd only warns of keys that it does not know."""
    for one in (services.SERVER, services.SUPERVISOR):
        shutil.copyfile(folder / "server" / one, tmp_path / one.replace("@", "@srv-study-server"))
    instance = tmp_path / unit.replace("@", "@srv-study-server")
    shutil.copyfile(folder / where / unit, instance)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(instance)], capture_output=True, text=True, check=False
    )
    if "Failed to initialize manager" in done.stderr:
        pytest.skip("systemd cannot be asked here")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_service_is_started_again_whatever_ended_it(folder: Path) -> None:
    for where, unit in (("server", services.SERVER), ("server", services.SUPERVISOR), ("sites/lyon", services.SITE)):
        assert "\nRestart=always\n" in (folder / where / unit).read_text()
    for where in ("server", "sites/lyon"):
        assert {service["restart"] for service in compose(folder / where)["services"].values()} == {"unless-stopped"}


def test_a_compose_file_is_json_below_its_comments(folder: Path) -> None:
    lines = (folder / "server" / services.COMPOSE).read_text().splitlines()
    assert json.loads("\n".join(line for line in lines if not line.startswith("#"))) == compose(folder / "server")
