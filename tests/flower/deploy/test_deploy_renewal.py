"""Certificates are renewed: same key, same names, same authority, and a running server takes the new one."""

import json
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from test_deploy_cli import invoke

from pacfl.errors import DeployError
from pacfl.flower.deploy import keys, layout, reloading, renewal


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    layout.make(tmp_path / "d", ["lyon"], ["fl.example.org"])
    return tmp_path / "d"


def certificate(server: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((server / "server.crt").read_bytes())


def test_a_renewed_certificate_differs_in_serial_and_dates_only(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = certificate(deployment / "server")
    monkeypatch.setitem(keys.YEARS, "server", 3)
    done = renewal.renew(deployment, "server")
    after = certificate(deployment / "server")
    assert after.not_valid_after_utc == done.ends > before.not_valid_after_utc
    assert after.serial_number != before.serial_number
    assert (after.subject, after.issuer, after.public_key()) == (before.subject, before.issuer, before.public_key())
    assert [e.value for e in after.extensions] == [e.value for e in before.extensions]
    after.verify_directly_issued_by(x509.load_pem_x509_certificate((deployment / "server" / "ca.crt").read_bytes()))
    assert (deployment / "server" / "server.crt").stat().st_mode & 0o077 == 0


def test_the_authority_may_be_elsewhere(deployment: Path, tmp_path: Path) -> None:
    """As the operator stores it offline, and the server is a folder of its own."""
    shutil.move(deployment / "server", tmp_path / "server")
    before = certificate(tmp_path / "server")
    with pytest.raises(DeployError, match=r"ca\.key is missing"):
        renewal.renew(tmp_path / "server", "server")
    code, output = invoke(
        *("deploy", "renew-certificate", tmp_path / "server", "server", "--json"),
        *("--authority", deployment / "authority"),
    )
    assert code == 0
    after = certificate(tmp_path / "server")
    assert json.loads(output)["ends"] == after.not_valid_after_utc.isoformat()
    assert after.serial_number != before.serial_number


def test_another_authority_cannot_renew(deployment: Path, tmp_path: Path) -> None:
    layout.make(tmp_path / "other", ["lyon"])
    before = certificate(deployment / "server")
    with pytest.raises(DeployError, match="of another authority"):
        renewal.renew(deployment, "server", tmp_path / "other" / "authority")
    assert certificate(deployment / "server") == before


@pytest.mark.parametrize("alone", [False, True])
def test_the_executor_of_a_site_gets_another_authority_and_secret(alone: bool, deployment: Path) -> None:
    site = deployment / "sites" / "lyon"
    keys.write_executor_secrets(site / "executor")
    before = {p.name: p.read_bytes() for p in (site / "executor").iterdir()}
    renewal.renew(site, "executor") if alone else renewal.renew(deployment, "lyon")
    after = {p.name: p.read_bytes() for p in (site / "executor").iterdir()}
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)
    assert {p.name for p in site.iterdir() if p.name.startswith("executor")} == {"executor"}


@pytest.mark.parametrize(
    ("folder", "name", "message"),
    [
        ("", "oslo", "there are server, lyon"),
        ("server", "lyon", "is no deployment"),
        ("server", "executor", "is not the folder of a site"),
        ("sites/lyon", "server", "is not the folder of a server"),
    ],
)
def test_what_has_no_certificate_is_refused(folder: str, name: str, message: str, deployment: Path) -> None:
    with pytest.raises(DeployError, match=message):
        renewal.renew(deployment / folder, name)


def test_a_server_uses_the_renewed_certificate_for_the_next_connection(deployment: Path) -> None:
    """A file that cannot be used changes nothing."""
    server = deployment / "server"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server / "server.crt", server / "server.key")
    used = (server / "server.crt").stat().st_mtime_ns
    assert presented(context, server) == certificate(server).serial_number
    renewal.renew(deployment, "server")
    used = reloading.reload(context, server / "server.crt", server / "server.key", used)
    assert presented(context, server) == certificate(server).serial_number
    serial = certificate(server).serial_number
    (server / "server.crt").write_text("damaged")
    assert reloading.reload(context, server / "server.crt", server / "server.key", used) == used
    assert presented(context, server) == serial


def presented(context: ssl.SSLContext, server: Path) -> int:
    """The serial number of the certificate that a server with this context shows to a site."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        context.wrap_socket(theirs, server_side=True).close()

    serving = threading.Thread(target=serve)
    serving.start()
    with keys.trusting(server / "ca.crt").wrap_socket(ours, server_hostname="fl.example.org") as connection:
        shown = connection.getpeercert(binary_form=True)
    serving.join()
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number
