"""Keys that two clients share, and words that nobody else can distinguish from random ones."""

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

Words = NDArray[np.uint64]  # integers modulo 2^64
KEY: Final = 32  # bytes


def derive(secret: bytes, purpose: bytes) -> bytes:
    """A key for one purpose and no other."""
    return HKDF(SHA256(), KEY, salt=None, info=purpose).derive(secret)


def agree(private: bytes, public: bytes, purpose: bytes) -> bytes:
    """The key for a purpose of the two owners of a pair of X25519 keys each."""
    shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    return derive(shared, purpose)


def keystream(key: bytes, n: int) -> Words:
    """The first words of ChaCha20 under a key that is used for nothing else: (n,), uniform over all 2^64 values."""
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * n)), dtype="<u8").astype(np.uint64, copy=False)
