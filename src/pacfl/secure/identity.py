"""Keys by which clients know each other for longer than a session: those with which their nodes sign in."""

import hashlib
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from pacfl.errors import SecureAggregationError

FINGERPRINT: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
PublicKey = EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True)
class Identity:
    """A client's private key."""

    private: EllipticCurvePrivateKey | Ed25519PrivateKey

    @classmethod
    def ephemeral(cls) -> "Identity":
        """A key that nobody knows: for simulations."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> "Identity":
        """The key in a file that ssh-keygen wrote."""
        try:
            key = load_ssh_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise SecureAggregationError(f"{path} has no key of OpenSSH without a password: {error}") from None
        if not isinstance(key, EllipticCurvePrivateKey | Ed25519PrivateKey):
            raise SecureAggregationError(f"{path} has a {type(key).__name__}; expected ECDSA or Ed25519")
        return cls(key)

    @property
    def public(self) -> str:
        """The public key, as OpenSSH writes it."""
        return self.private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()

    def sign(self, statement: bytes) -> bytes:
        """A signature that `is_signed` accepts."""
        if isinstance(self.private, Ed25519PrivateKey):
            return self.private.sign(statement)
        return self.private.sign(statement, ECDSA(SHA384()))


def is_signed(public: str, statement: bytes, signature: bytes) -> bool:
    """Whether a statement was signed with the private half of a key."""
    try:
        key = _loaded(public)
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, statement)
        else:
            key.verify(signature, statement, ECDSA(SHA384()))
    except (InvalidSignature, SecureAggregationError):
        return False
    return True


def fingerprint(public: str) -> str:
    """The fingerprint of a key of OpenSSH, as `ssh-keygen -l` prints it."""
    try:
        content = b64decode(public.split()[1], validate=True)
    except (IndexError, ValueError):
        raise SecureAggregationError(f"{public[:40]!r} is no public key of OpenSSH") from None
    return "SHA256:" + b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def read_trusted(path: Path) -> dict[str, str]:
    """Names by fingerprint, from a file with a fingerprint and a name on each line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SecureAggregationError(f"the fingerprints of trusted sites cannot be read: {error}") from None
    trusted: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        found, _, name = line.partition("#")[0].strip().partition(" ")
        if found and not FINGERPRINT.fullmatch(found):
            raise SecureAggregationError(f"{path}, line {number}: expected SHA256:... and a name, got {line!r}")
        if found:
            trusted[found] = name.strip()
    return trusted


@lru_cache(maxsize=1024)
def _loaded(public: str) -> PublicKey:
    try:
        key = load_ssh_public_key(public.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise SecureAggregationError(f"{public[:40]!r} is no public key of OpenSSH") from None
    if not isinstance(key, EllipticCurvePublicKey | Ed25519PublicKey):
        raise SecureAggregationError(f"{public[:40]!r} is neither of ECDSA nor of Ed25519")
    return key
