"""What is sent, and what a client remembers: named arrays and nothing else."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ClientId = int
Message = Mapping[str, NDArray[Any]]


def digest(message: Message) -> str:
    """SHA-256 of names, types, shapes and values: another message has another one."""
    hashed = hashlib.sha256()
    for name, array in sorted(message.items()):
        hashed.update(f"{len(name)} {name} {array.dtype.str} {array.shape} ".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def nbytes(message: Message) -> int:
    """The bytes of a message as billed: those of its arrays."""
    return sum(array.nbytes for array in message.values())
