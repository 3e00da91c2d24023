"""What a site has told of its data under a promise of privacy, and what that has cost.

Whoever asks again, in whichever federation, is told the same, and learns nothing new: noise drawn afresh would average
out, and spend epsilon anew. What was told is on disk before it leaves.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import BudgetError
from pacfl.federation.message import Message
from pacfl.federation.private import Promise
from pacfl.files import write_atomically


@dataclass(frozen=True)
class Told:
    """Everything that a site has told, one file for each signature."""

    folder: Path

    def once(
        self, data: NDArray[Any], promise: Promise | None, tell: Callable[[], Message], most: float | None
    ) -> Message:
        """What was told of the data under this promise before, or else what is told now, within the budget `most`.

        Without a promise there is nothing to keep, for the same data give the same message, and no budget is enough.
        """
        if promise is None:
            message = tell()
            if message and most is not None:
                raise BudgetError(f"this site spends at most epsilon {most:g}, and was asked to tell without any")
            return message
        path = self.folder / f"{_digest(data, promise)}.npz"
        if not path.exists():
            spent = self.spent()
            if most is not None and spent + promise.epsilon > most:
                raise BudgetError(
                    f"this site spends at most epsilon {most:g}; {spent:g} are spent, {promise.epsilon:g} are asked for"
                )
            self._keep(path, tell(), promise.epsilon)
        return {name: array for name, array in _read(path).items() if name != "epsilon"}

    def spent(self) -> float:
        """Epsilon of all that was told: they add up, whatever changed in the data between."""
        return sum(float(_read(path)["epsilon"]) for path in self.folder.glob("*.npz"))

    def _keep(self, path: Path, message: Message, epsilon: float) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        buffer = io.BytesIO()
        np.savez(buffer, epsilon=np.array(epsilon), **message)  # type: ignore[arg-type]  # names are those of arrays
        write_atomically(path, buffer.getvalue())


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _digest(data: NDArray[Any], promise: Promise) -> str:
    """A name for samples and what was promised them."""
    content = hashlib.sha256(repr((promise, str(data.dtype), data.shape)).encode())
    content.update(np.ascontiguousarray(data).tobytes())
    return content.hexdigest()
