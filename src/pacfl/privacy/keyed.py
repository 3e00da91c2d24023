"""A secret orthogonal transform of directions: angles stay as they are, and features are no longer to be seen.

All clients share a key that the server does not have. Each applies the same map T, which the key and the number of
features determine, to all directions before they leave it:

    T = (P D S) ... (P D S)      S random signs, D the orthonormal cosine transform, P a random permutation

T is orthogonal, so inner products, and with them all angles, are those of the directions themselves. One factor turns
the axis of a feature into a permuted cosine, which can be recognised by its values; from the second on its coordinates
look like those of a random direction. Up to FEW features the factors are a finite set, of which a server could try all:
there T is drawn uniformly from all orthogonal matrices (Mezzadri, 2007), so that a server without the key, and without
anything known of the data, learns exactly the inner products.

All that is random comes from SHAKE-256, and not from numpy, whose generators may change: every client has the same T.
"""

import hashlib
import hmac
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct, idct
from scipy.special import ndtri

Array = NDArray[np.float64]

FACTORS: Final = 4  # of the fast transform; two suffice for coordinates as those of random directions
FEW: Final = 128  # features up to which T is a matrix


def keyed(directions: ArrayLike, key: bytes, axis: int = 0) -> Array:
    """T applied to directions, whose features are along an axis, in O(features log features).

    >>> import numpy as np
    >>> hidden = keyed(np.eye(5), b"a key of the federation")
    >>> np.allclose(hidden.T @ hidden, np.eye(5)), np.allclose(unkeyed(hidden, b"a key of the federation"), np.eye(5))
    (True, True)
    """
    x = _features_first(directions, axis)
    random = _Random(key, len(x))
    if len(x) <= FEW:
        return _back(random.orthogonal() @ x, directions, axis)
    for i in range(FACTORS):
        signs, order = random.factor(i)
        x = dct(x * signs[:, None], axis=0, norm="ortho")[order]
    return _back(x, directions, axis)


def unkeyed(directions: ArrayLike, key: bytes, axis: int = 0) -> Array:
    """The inverse of `keyed`: directions whose features are seen again."""
    x = _features_first(directions, axis)
    random = _Random(key, len(x))
    if len(x) <= FEW:
        return _back(random.orthogonal().T @ x, directions, axis)
    for i in reversed(range(FACTORS)):
        signs, order = random.factor(i)
        before = np.empty_like(x)
        before[order] = x
        x = idct(before, axis=0, norm="ortho") * signs[:, None]
    return _back(x, directions, axis)


class _Random:
    """What a key determines for a number of features."""

    def __init__(self, key: bytes, features: int) -> None:
        self._seed = hmac.digest(key, b"pacfl directions\0%d" % features, "sha256")
        self._features = features

    def factor(self, i: int) -> tuple[Array, NDArray[np.intp]]:
        """Signs and the permutation of one factor: (features,) each."""
        bits = np.unpackbits(self._bytes(b"signs %d" % i, -(-self._features // 8)))[: self._features]
        # Equal numbers, which would make the order depend on sorting, do not occur: they have 64 bits
        return np.where(bits, -1.0, 1.0), np.argsort(self._numbers(b"order %d" % i, self._features), kind="stable")

    def orthogonal(self) -> Array:
        """A matrix drawn uniformly from all orthogonal ones: that of a Gaussian one, with positive diagonal of R."""
        n = self._features
        uniform = ((self._numbers(b"matrix", n * n) >> np.uint64(11)) + 0.5) / 2.0**53
        q, r = np.linalg.qr(ndtri(uniform).reshape(n, n))
        return np.asarray(q * np.sign(np.diag(r)))

    def _numbers(self, purpose: bytes, count: int) -> NDArray[np.uint64]:
        return self._bytes(purpose, 8 * count).view("<u8").astype(np.uint64)

    def _bytes(self, purpose: bytes, count: int) -> NDArray[np.uint8]:
        return np.frombuffer(hashlib.shake_256(self._seed + purpose).digest(count), dtype=np.uint8)


def _features_first(directions: ArrayLike, axis: int) -> Array:
    """(features, all others)."""
    x: Array = np.moveaxis(np.asarray(directions, dtype=np.float64), axis, 0)
    return x.reshape(len(x), -1)


def _back(x: Array, like: Any, axis: int) -> Array:
    """In the shape of what was given."""
    shape = np.moveaxis(np.asarray(like), axis, 0).shape
    return np.ascontiguousarray(np.moveaxis(x.reshape(shape), 0, axis))
