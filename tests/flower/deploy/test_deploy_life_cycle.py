"""Sites come, leave and get other keys while a federation of real processes runs; its certificate is renewed.

pytest -m slow -s tests/flower/deploy/test_deploy_life_cycle.py prints rows of the table in docs/deployment.md.
"""

import json
import ssl
import time
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from loopback_federation import Loopback, deployed
from test_deploy_cli import invoke
from test_deploy_end_to_end import print_row

from pacfl.flower.deploy import check, layout, loopback, processes

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SECONDS = 400.0  # at most, for each step
SETTINGS = {
    "federation": {"deadline": 60.0},
    "schedule": {"rounds": 400, "participation": 1.0},
    "learning": {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
}


@pytest.mark.slow
def test_sites_come_leave_and_get_other_keys_while_the_federation_runs(short_path: Path) -> None:
    with deployed(short_path, 3, SETTINGS) as sites:
        start = time.monotonic()
        list(loopback.up(short_path))
        sites.wait_for_round(1, SECONDS)
        print_row("three sites", "first round, after `up`", time.monotonic() - start)
        assert sorted(sites.records[0]["cluster_of"]) == ["0", "1", "2"]  # the first clustering waited for all
        assert [one.what for one in check.check(short_path / "sites" / "0") if one.level == "problem"] == []
        server = processes.running(short_path)[loopback.SERVER]
        site_is_added(sites)
        site_gets_another_key(sites)
        site_leaves_and_returns(sites)
        certificate_is_renewed(sites)
        assert processes.running(short_path)[loopback.SERVER] == server  # nothing had to be restarted
        assert [r["round"] for r in sites.records] == list(range(1, len(sites.records) + 1))


def command(*arguments: object) -> dict[str, object]:
    """What one of the operator's commands prints for programs."""
    code, output = invoke("deploy", *arguments, "--json")
    assert code == 0, output
    found: dict[str, object] = json.loads(output)
    return found


def trains(sites: Loopback, i: int, after: int) -> bool:
    """Whether a site has trained in a round after some others, without a failure."""
    number = sites.number(i)
    return any(
        number in record["sampled"] and number not in {failure["client"] for failure in record["reply_failures"]}
        for record in sites.records[after:]
    )


def clusters(sites: Loopback) -> dict[str, int]:
    """The clusters by client, after the last round."""
    found: dict[str, int] = sites.records[-1]["cluster_of"]
    return found


def site_is_added(sites: Loopback) -> None:
    start, before = time.monotonic(), clusters(sites)
    command("add-site", sites.folder, "3")
    list(loopback.up(sites.folder))
    sites.wait("the new site trains", lambda: trains(sites, 3, 0), SECONDS)
    print_row("`add-site`, and `up`", "it is in the cluster of its domain, nobody moved", time.monotonic() - start)
    assert {c: k for c, k in clusters(sites).items() if c in before} == before
    assert clusters(sites)[str(sites.number(3))] == clusters(sites)[str(sites.number(1))]


def site_gets_another_key(sites: Loopback) -> None:
    start, number, before = time.monotonic(), sites.number(1), clusters(sites)
    old = load_ssh_private_key((sites.folder / "sites" / "1" / "node.key").read_bytes(), None)
    known = memories(sites, 1)
    command("rekey", sites.folder, "1")
    then = len(sites.records)
    sites.wait("the site with another key trains", lambda: trains(sites, 1, then), SECONDS)
    print_row("`rekey`", "same client, same cluster and memory", time.monotonic() - start)
    assert sites.number(1) == number
    assert clusters(sites) == before
    assert memories(sites, 1) == known
    log = (loopback.federation(sites.folder) / "server.log").read_text()
    assert log.count("client 1: joined") == 1  # it was not asked for its signature again
    assert isinstance(old, EllipticCurvePrivateKey)
    assert is_refused(sites, old)
    print_row("the former key of this site", "refused", 0)


def site_leaves_and_returns(sites: Loopback) -> None:
    start, number, before = time.monotonic(), sites.number(2), clusters(sites)
    command("remove-site", sites.folder, "2")
    then = len(sites.records)
    sites.wait("two rounds without it", lambda: len(sites.records) >= then + 3, SECONDS)
    print_row("`remove-site`", "refused; rounds continue without it", time.monotonic() - start)
    assert number not in sites.records[-1]["sampled"]
    assert sites.status["clients"][str(number)]["removed"]
    assert not [one.what for one in loopback.state(sites.folder)[1] if "2" in one.what.split()[:2]]
    start = time.monotonic()
    command("add-site", sites.folder, "2")
    list(loopback.up(sites.folder))
    then = len(sites.records)
    sites.wait("it trains again", lambda: trains(sites, 2, then), SECONDS)
    print_row("`add-site` for the site that was removed", "same client, same cluster", time.monotonic() - start)
    assert (sites.number(2), clusters(sites)) == (number, before)


def certificate_is_renewed(sites: Loopback) -> None:
    start, before = time.monotonic(), serial(sites)
    command("renew-certificate", sites.folder, "server")
    sites.wait("the server shows another certificate", lambda: serial(sites) != before, 60)
    seconds = time.monotonic() - start
    then = len(sites.records)
    sites.wait_for_round(then + 2, SECONDS)
    assert not [f for record in sites.records[then + 1 :] for f in record["reply_failures"]]
    print_row("`renew-certificate`", "used by the running server; no site noticed", seconds)


def serial(sites: Loopback) -> int:
    """Of the certificate that the server shows, verified as a site does."""
    address = ("127.0.0.1", layout.load(sites.folder).port)
    shown = ssl.get_server_certificate(address, ca_certs=str(sites.folder / "sites" / "0" / "ca.crt"))
    return x509.load_pem_x509_certificate(shown.encode()).serial_number


def memories(sites: Loopback, i: int) -> set[str]:
    """The folders of a site's memory: one for each federation and client."""
    return {str(path.parent) for path in (sites.folder / "sites" / str(i) / "memory").rglob("after-*.npz")}


def is_refused(sites: Loopback, key: EllipticCurvePrivateKey) -> bool:
    """Whether a node with this key cannot sign in."""
    address = f"127.0.0.1:{layout.load(sites.folder).port}"
    authority = (sites.folder / "server" / "ca.crt").read_bytes()
    signed = [NodeAuthHttpInterceptor(key, key.public_key())]
    client = FleetHttpClient.from_server_address(address, False, authority, interceptors=signed)
    public = public_key_to_bytes(key.public_key())
    with pytest.raises(httpx.HTTPStatusError, match=r"Client error '4\d\d"):
        client.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=30.0))
    return True
