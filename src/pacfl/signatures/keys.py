"""Keys that clients of a federation share and its server does not have: for names of classes, and for directions."""

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from pacfl.errors import DataError
from pacfl.files import write_secret

FEWEST_KEY_BYTES: Final = 16
MOST_KEY_BYTES: Final = 1 << 16
HASH_CHARACTERS: Final = 16  # of a name or a key: 64 bits, so that among thousands of classes no two are equal


def write_key(path: Path) -> str:
    """A new key of 256 random bits in a new file that only its owner can read; its id."""
    key = secrets.token_hex(32).encode()
    try:
        write_secret(path, key + b"\n")
    except FileExistsError:
        raise DataError(f"{path}: exists, and keys are never overwritten; name a new file") from None
    except OSError as error:
        raise DataError(f"{path}: the key cannot be written: {error.strerror or error}") from None
    return key_id(key)


def read_key(path: Path) -> bytes:
    """A federation's key: the bytes of a file, but for white space around them."""
    try:
        with path.open("rb") as file:
            key = file.read(MOST_KEY_BYTES + 1).strip()
    except OSError as error:
        raise DataError(f"{path}: the key cannot be read: {error.strerror or error}") from None
    if not FEWEST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
        raise DataError(
            f"{path}: a key has {FEWEST_KEY_BYTES} to {MOST_KEY_BYTES} bytes, got {len(key)}; make one with "
            "'pacfl key FILE' and give it to all clients"
        )
    return key


def key_id(key: bytes) -> str:
    """A name of the key that does not show it."""
    return keyed_hash(key, b"pacfl key")


def keyed_hash(key: bytes, message: bytes) -> str:
    """A hash that nobody can compute without the key."""
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:HASH_CHARACTERS]
