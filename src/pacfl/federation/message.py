"""What is sent, and what a client remembers: named arrays and nothing else."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

ClientId = int
Message = Mapping[str, NDArray[Any]]


def nbytes(message: Message) -> int:
    """The bytes of a message as billed: those of its arrays."""
    return sum(array.nbytes for array in message.values())
