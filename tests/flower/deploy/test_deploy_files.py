"""The files of `pacfl deploy init`, and processes."""

import json
import os
import ssl
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from pacfl.errors import DeployError
from pacfl.flower import settings
from pacfl.flower.deploy import layout, processes


def test_nothing_is_readable_by_others(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["0", "1", "2"])
    files = [tmp_path / "d", *(tmp_path / "d").rglob("*")]
    assert len(files) > 20
    assert [path for path in files if path.stat().st_mode & 0o077] == []
    keys = [path for path in files if path.suffix == ".key"]
    assert len(keys) == 5  # the authority's, the server's and three sites'
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in keys)


def test_git_ignores_all_of_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    layout.make(tmp_path / "d", ["0"])
    done = subprocess.run(["git", "-C", str(tmp_path), "status", "--short"], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["0"])
    with pytest.raises(DeployError, match="not empty"):
        layout.make(tmp_path / "d", ["0"])


def test_the_certificate_of_the_server_has_all_its_names(tmp_path: Path) -> None:
    """Loopback among them: the SuperLink's own processes connect there, and without it no run starts."""
    layout.make(tmp_path / "d", ["0"], ["fl.example.org", "192.0.2.7"])
    server = tmp_path / "d" / "server"
    own = x509.load_pem_x509_certificate((server / "server.crt").read_bytes())
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]
    own.verify_directly_issued_by(x509.load_pem_x509_certificate((server / "ca.crt").read_bytes()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server / "server.crt", server / "server.key")


def test_only_one_folder_has_the_key_of_the_authority(tmp_path: Path) -> None:
    """The server cannot sign certificates."""
    layout.make(tmp_path / "d", ["0", "1"])
    secret = (tmp_path / "d" / "authority" / "ca.key").read_bytes()
    others = [p for p in (tmp_path / "d").rglob("*") if p.is_file() and p.parent.name != "authority"]
    assert all(secret not in path.read_bytes() for path in others)


def test_every_site_has_a_key_pair_of_its_own(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["0", "1", "2"])
    publics = set()
    for i in range(3):
        site = tmp_path / "d" / "sites" / str(i)
        private = load_ssh_private_key((site / "node.key").read_bytes(), None)
        public = load_ssh_public_key((site / "node.pub").read_bytes())
        assert private.public_key() == public
        publics.add((site / "node.pub").read_bytes())
    assert len(publics) == 3


def test_the_server_reads_the_settings_of_the_app(tmp_path: Path) -> None:
    layout.make(
        tmp_path / "d", ["0", "1"], settings={"algorithm": {"name": "fedprox"}, "federation": {"deadline": 7.0}}
    )
    app = tomllib.loads((tmp_path / "d" / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    flat = {
        f"{section}.{key}": value
        for section, values in app["config"].items()
        if isinstance(values, dict)
        for key, value in values.items()
    }
    deployment, run = settings.read({**flat, "seed": 0, "settings": ""})
    assert (deployment.deadline, deployment.identity) == (7.0, "key")
    assert deployment.folder == "federation"
    assert run.algorithm["name"] == "fedprox"


def test_a_folder_that_is_not_a_deployment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="'pacfl deploy' needs a deployment"):
        layout.load(tmp_path)


def test_scripts_are_valid_shell(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["0"])
    scripts = sorted((tmp_path / "d").rglob("*.sh"))
    assert [s.name for s in scripts] == ["register.sh", "run.sh", "start.sh", "start.sh"]
    for script in scripts:
        subprocess.run(["sh", "-n", str(script)], check=True)


def test_a_process_is_stopped_with_its_descendants_and_dropped(tmp_path: Path) -> None:
    """Also a child in a session of its own, as those of Flower are."""
    sleeper = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)"
    report = "pathlib.Path('child').write_text(str(child.pid))"
    parent = f"import pathlib, subprocess, sys\nchild = {sleeper}\n{report}\nchild.wait()"
    (tmp_path / "parent.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{parent}")
    pid = processes.start(tmp_path, "one", [sys.executable, str(tmp_path / "parent.py")], {}, tmp_path / "log")
    assert processes.running(tmp_path) == {"one": pid}
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        time.sleep(0.05)
    child = int((tmp_path / "child").read_text())
    assert [process.pid for process in processes.descendants(pid)] == [child]
    processes.stop(tmp_path, "one")
    assert processes.running(tmp_path) == {}
    assert not psutil.pid_exists(pid)
    assert not psutil.pid_exists(child)


def test_a_process_that_ignores_the_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SECONDS_TO_STOP", 0.5)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    pid = processes.start(tmp_path, "one", [sys.executable, "-c", code], {}, tmp_path / "log")
    while not (tmp_path / "log").read_text():
        time.sleep(0.05)
    processes.stop(tmp_path, "one")
    assert not psutil.pid_exists(pid)


def test_an_id_that_was_given_to_another_process_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / processes.FILE).write_text(
        json.dumps({"one": {"pid": os.getpid(), "token": "of a process that ended"}})
    )
    assert processes.running(tmp_path) == {}
    processes.stop(tmp_path, "one")  # which would end this test
