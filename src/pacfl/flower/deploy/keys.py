"""Certificates and token of the server, keys of the sites: readable by their owner only from the start."""

import ipaddress
import json
import os
import secrets
import shutil
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pacfl.errors import DeployError

CREDENTIALS: Final = "credentials.yaml"  # where Flower's commands look for the token of an operator
ACCOUNT: Final = "flower.account-auth"
YEARS: Final = {"authority": 10, "server": 2}


def write_secret(path: Path, content: bytes) -> None:
    """A new file that nobody else can read at any time."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


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
    try:
        stored = json.loads((home / CREDENTIALS).read_bytes())
        (token,) = (value for key, value in stored.items() if key.endswith(".oidc-access-token"))
        return b64decode(token, validate=True).decode()
    except (OSError, ValueError, AttributeError):
        raise DeployError(
            f"{home / CREDENTIALS} has no token of the operator; delete the file, and start.sh writes another"
        ) from None


def write_certificates(authority: Path, server: Path, hosts: Sequence[str], years: int = YEARS["server"]) -> bytes:
    """A certificate authority of this federation, and a certificate for the server's names; the authority's."""
    ca_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name, server_name = _name("authority of this federation"), _name(hosts[0])
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key(), YEARS["authority"])
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    own = (
        _certificate(server_name, ca_name, server_key.public_key(), years)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    write_secret(authority / "ca.key", _pem(ca_key))
    write_secret(server / "server.key", _pem(server_key))
    write_secret(server / "server.crt", own.public_bytes(Encoding.PEM))
    public = ca.public_bytes(Encoding.PEM)
    write_secret(server / "ca.crt", public)
    return public


def write_executor_secrets(folder: Path) -> None:
    """A folder with a secret, and with certificates for 127.0.0.1 whose authority signs nothing else."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    write_secret(part / "secret", secrets.token_bytes(32))
    write_certificates(part, part, ["127.0.0.1"], YEARS["authority"])
    (part / "ca.key").unlink()
    part.rename(folder)


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
