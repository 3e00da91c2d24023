"""Attacks on a deployment of real processes on loopback, with TLS: by an outsider, by another user, by the operator.

One deployment serves all tests, in the order of this file; the last one is that the federation itself still runs.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, RegisterNodeFleetRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from foreign_app import write_foreign_app
from loopback_federation import Loopback, deployed

from pacfl.flower.deploy import approval, keys, layout, loopback, processes

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SETTINGS = {
    "federation": {"minimum-clients": 2, "deadline": 120.0},
    "schedule": {"rounds": 1, "participation": 1.0},
    "learning": {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
}
PATIENT = "patient 17"
PROTOBUF = {"content-type": "application/protobuf"}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder with a short path, which others may enter."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"pacfl-attack-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def sites(place: Path) -> Iterator[Loopback]:
    """A server and two sites that wait for a run."""
    with deployed(place / "d", 2, SETTINGS) as found:
        for i in range(2):
            (place / "d" / "sites" / str(i) / "train.csv").write_text(PATIENT)
        loopback.start_server(found.folder)
        for i in range(2):
            found.join(i)
        found.wait("the sites connect", lambda: all("SuperNode ID" in found.log(i) for i in range(2)), 120)
        yield found


def outsider(place: Path, sites: Loopback, name: str) -> tuple[Path, dict[str, str]]:
    """A folder of an outsider who has the certificate of the authority and nothing else; Flower's environment there."""
    home = place / name
    home.mkdir()
    shutil.copyfile(sites.folder / "server" / "ca.crt", home / "ca.crt")
    (home / "flwr").mkdir()
    port = layout.load(sites.folder).port
    (home / "flwr" / "config.toml").write_text(
        f'[superlink.s]\naddress = "127.0.0.1:{port}"\nroot-certificates = "{home}/ca.crt"\n'
    )
    return home, {**loopback._environment(), "HOME": str(home), "FLWR_HOME": str(home / "flwr")}


def flwr(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flwr.cli.app", *words, "s", "--format", "json"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def url(sites: Loopback, path: str) -> str:
    return f"https://127.0.0.1:{layout.load(sites.folder).port}{path}"


def test_an_outsider_with_the_certificate_registers_no_key_and_runs_no_app(place: Path, sites: Loopback) -> None:
    home, environment = outsider(place, sites, "outsider")
    keys.write_node_key(home)
    app = write_foreign_app(home / "app", home / "evidence")
    commands = (("supernode", "register", str(home / "node.pub")), ("run", str(app)))
    for process in [flwr(environment, *words) for words in commands]:
        reply = process.communicate()[0]
        assert '"success": false' in reply
        assert "authenticat" in reply.lower(), reply


def test_a_client_that_skips_verification_registers_no_key(sites: Loopback) -> None:
    """It has no file of the federation at all."""
    request = RegisterNodeRequest(public_key=(sites.folder / "sites" / "0" / "node.pub").read_bytes())
    for headers in ({}, {"authorization": "Bearer guessed"}):
        reply = httpx.post(
            url(sites, "/v1/control/register-node"),
            content=request.SerializeToString(),
            headers={**PROTOBUF, **headers},
            verify=False,
        )
        assert reply.status_code == 401, reply.text


def test_a_node_with_a_key_that_nobody_registered_is_refused(sites: Loopback) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    signed = [NodeAuthHttpInterceptor(key, key.public_key())]
    address = f"127.0.0.1:{layout.load(sites.folder).port}"
    authority = (sites.folder / "server" / "ca.crt").read_bytes()
    client = FleetHttpClient.from_server_address(address, False, authority, interceptors=signed)
    public = public_key_to_bytes(key.public_key())
    for call in (
        lambda: client.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=30.0)),
        lambda: client.RegisterNode(RegisterNodeFleetRequest(public_key=public)),
        lambda: client.PullMessages(PullMessagesRequest(node=Node(node_id=1))),
    ):
        with pytest.raises(httpx.HTTPStatusError, match=r"Client error '4\d\d"):
            call()


@pytest.mark.parametrize("where", ["server", "site"])
def test_tasks_are_given_to_the_own_executor_only(where: str, sites: Loopback) -> None:
    deployment = layout.load(sites.folder)
    base = url(sites, "") if where == "server" else f"https://127.0.0.1:{deployment.site_ports[0]}"
    request = AcquireTaskRequest(supported_task_types=["flwr-serverapp", "flwr-clientapp"])
    reply = httpx.post(
        f"{base}/v1/runtime/acquire-task", content=request.SerializeToString(), headers=PROTOBUF, verify=False
    )
    assert reply.status_code == 401, reply.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_reads_no_secret(sites: Loopback) -> None:
    secrets = [sites.folder / "sites" / "0" / name for name in ("node.key", "train.csv")]
    secrets += [Path(f"/proc/{pid}/environ") for pid in processes.running(sites.folder).values()]
    for path in secrets:
        done = subprocess.run(["cat", str(path)], user="nobody", group="nogroup", capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (1, b""), path


def test_an_operator_runs_no_app_that_the_sites_have_not_approved(place: Path, sites: Loopback) -> None:
    """The operator has the token, and approves the app at the server."""
    app, server = write_foreign_app(place / "foreign", place / "evidence"), sites.folder / "server"
    script = server / "foreign.sh"
    script.write_text((server / "run.sh").read_text().replace("../app", str(app)))
    script.chmod(0o700)
    assert "is not approved" in str(loopback._reply([str(script)]))
    approval.approve(server, approval.build(app))
    assert loopback._reply([str(script)])["success"]
    sites.wait("the foreign app ends", (place / "evidence").exists, 120)
    taken = (place / "evidence").read_text()
    assert "PRIVATE KEY" in taken  # of the server, which is the operator's
    assert taken.count("refused, code 7") == 2  # INVALID_FAB
    assert PATIENT not in taken
    assert "OPENSSH" not in taken
    for i in range(2):
        site = sites.folder / "sites" / str(i)
        assert "is not approved; look at it with: pacfl deploy approve" in sites.log(i)
        assert approval.candidate(site)[0] == approval.build(app)
        assert not list((site / "flwr").rglob("foreign.py"))


def test_two_sites_federate_and_no_token_is_in_sight(sites: Loopback) -> None:
    loopback.begin(sites.folder)
    seen: set[str] = set()

    def trained() -> bool:
        own = [p for pid in processes.running(sites.folder).values() for p in processes.descendants(pid)]
        seen.update(line for p in own if (line := command_line(p)))
        return bool(sites.status.get("round", 0) > 0)

    sites.wait("a round", trained, 300)
    assert {sites.cluster(0), sites.cluster(1)} == {0, 1}
    assert [(sites.number(i), c["name"]) for i, c in enumerate(sites.status["clients"].values())] == [
        (0, "0"),
        (1, "1"),
    ]
    assert any("flwr-clientapp" in line for line in seen)
    assert not [line for line in seen if re.search(r"--token[= ]", line)]


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
