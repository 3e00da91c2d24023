"""Certificates and token of the server, keys of the sites: readable by their owner only from the start."""

import ipaddress
import json
import secrets
import shutil
import ssl
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pacfl.errors import DeployError
from pacfl.files import write_atomically
from pacfl.files import write_secret as write_secret

CREDENTIALS: Final = "credentials.yaml"  # where Flower's commands look for the token of an operator
ACCOUNT: Final = "flower.account-auth"
_TOKEN: Final = ".oidc-access-token"
YEARS: Final = {"authority": 10, "server": 2}


def write_node_key(folder: Path) -> bytes:
    """A site's key pair, node.key and node.pub; the public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    write_secret(folder / "node.key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    write_secret(folder / "node.pub", public)
    return public


def write_control_token(home: Path, address: str) -> None:
    """A token for the operator of the server at an address, where Flower's commands find it."""
    values = {"authn-type": "oidc", "oidc-access-token": secrets.token_urlsafe(32), "oidc-refresh-token": "none"}
    stored = {f"{ACCOUNT}.{address}.{key}": b64encode(value.encode()).decode() for key, value in values.items()}
    write_secret(home / CREDENTIALS, json.dumps(stored, indent=2).encode() + b"\n")  # which is YAML, too


def control_token(home: Path) -> str:
    """The token that `write_control_token` wrote."""
    return _control(home)[1]


def own_address(home: Path) -> str:
    """The address of the server for which `write_control_token` wrote the token."""
    return _control(home)[0]


def _control(home: Path) -> tuple[str, str]:
    try:
        stored = json.loads((home / CREDENTIALS).read_bytes())
        ((name, token),) = ((k, v) for k, v in stored.items() if k.endswith(_TOKEN))
        return name.removeprefix(f"{ACCOUNT}.").removesuffix(_TOKEN), b64decode(token, validate=True).decode()
    except (OSError, ValueError, AttributeError):
        raise DeployError(
            f"{home / CREDENTIALS} has no token of the operator; delete the file, and start.sh writes another"
        ) from None


def trusting(authority: Path) -> ssl.SSLContext:
    """For connections to a server whose certificate this authority has signed."""
    try:
        return ssl.create_default_context(cafile=authority)
    except FileNotFoundError:
        raise DeployError(
            f"{authority} is missing: nobody is to be trusted without it; copy it from the server"
        ) from None
    except ssl.SSLError as error:
        raise DeployError(f"{authority} is not a certificate: {error}") from None


def write_certificates(authority: Path, server: Path, hosts: Sequence[str], years: int = YEARS["server"]) -> bytes:
    """A certificate authority of this federation, and a certificate for the server's names; the authority's."""
    ca_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name, names = (
        _name("authority of this federation"),
        x509.SubjectAlternativeName([_alternative(h) for h in hosts]),
    )
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key(), YEARS["authority"])
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    own = _signed(_name(hosts[0]), names, server_key.public_key(), ca_name, ca_key, years)
    write_secret(authority / "ca.key", _pem(ca_key))
    write_secret(server / "server.key", _pem(server_key))
    write_secret(server / "server.crt", own.public_bytes(Encoding.PEM))
    public = ca.public_bytes(Encoding.PEM)
    write_secret(server / "ca.crt", public)
    return public


def renew_certificate(authority: Path, server: Path) -> datetime:
    """Another certificate for the server's key and names, signed by the authority's key; when it ends."""
    try:
        ca_key = load_pem_private_key((authority / "ca.key").read_bytes(), None)
        ca, former = (x509.load_pem_x509_certificate((server / n).read_bytes()) for n in ("ca.crt", "server.crt"))
    except OSError as error:
        raise DeployError(
            f"{error.filename} is missing; the key of the authority, ca.key, and the server's certificates are needed "
            "to sign another one"
        ) from None
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey) or ca_key.public_key() != ca.public_key():
        raise DeployError(f"{authority / 'ca.key'} is the key of another authority than that of {server / 'ca.crt'}")
    names = former.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    key: Any = former.public_key()
    own = _signed(former.subject, names, key, ca.subject, ca_key, YEARS["server"])
    write_atomically(server / "server.crt", own.public_bytes(Encoding.PEM))
    (server / "server.crt").chmod(0o600)
    return own.not_valid_after_utc


def write_executor_secrets(folder: Path) -> None:
    """A folder with a secret, and with certificates for 127.0.0.1 whose authority signs nothing else.

    It takes the place of a former one, which processes that run have read already.
    """
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    write_secret(part / "secret", secrets.token_bytes(32))
    write_certificates(part, part, ["127.0.0.1"], YEARS["authority"])
    (part / "ca.key").unlink()
    former = folder.with_name(f"{folder.name}.former")
    shutil.rmtree(former, ignore_errors=True)
    if folder.exists():
        folder.rename(former)
    part.rename(folder)
    shutil.rmtree(former, ignore_errors=True)


def _signed(
    subject: x509.Name,
    names: x509.SubjectAlternativeName,
    key: ec.EllipticCurvePublicKey,
    ca_name: x509.Name,
    ca_key: ec.EllipticCurvePrivateKey,
    years: int,
) -> x509.Certificate:
    """A certificate of a server."""
    return (
        _certificate(subject, ca_name, key, years)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, years: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=365 * years))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


if __name__ == "__main__":
    write_executor_secrets(Path(sys.argv[1]))
