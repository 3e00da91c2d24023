"""Samples in memory -> a signature with what must be known to compare it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from pacfl.errors import DataError
from pacfl.signatures.reading import Array, Reading
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import RankWarning, signature, split_half_angles

RANK: Final = 3  # directions in a signature, unless another number is asked for


def sign(client: str, x: Array, labels: Array | None, rank: int, how: Reading) -> SignatureFile:
    """The signature of samples (n, ...) that were read, and labels (n,) if it is per class; errors name the client."""
    with named(client), warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # the file has the number of directions
        basis = signature(x, rank, labels).astype(np.float32)
        angles = split_half_angles(x, rank, labels)
        return SignatureFile(basis, rank, labels is not None, how.identity(), len(x), angles)


@contextmanager
def named(client: str) -> Iterator[None]:
    """Errors of the mathematics name the client, or its file."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(f"{client}: {error}") from None
