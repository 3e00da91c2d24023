"""A client's memory between rounds, stored at the client: it survives processes, runs and reboots.

Each round's memory is a file of its own. A server that lost its last rounds in a crash asks for them again, and the
client resumes from its memory before them: no round counts twice. Files of rounds that the server has stored safely are
deleted.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pacfl.federation.message import Message
from pacfl.files import write_atomically
from pacfl.learning.model import Vector

LAST_TRAINED = "last-trained"  # a name beside those of the algorithm's arrays


@dataclass(frozen=True)
class ClientMemory:
    """Files of one client in one federation."""

    folder: Path
    durable: bool = True  # in simulations it is not: their memory is deleted at the end

    def before(self, t: int) -> tuple[Message | None, Vector | None]:
        """The client's memory before round t, and the weights that it had last trained."""
        past = [k for k in self._rounds() if k < t]
        if not past:
            return None, None
        with np.load(io.BytesIO(self._path(past[-1]).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        last = arrays.pop(LAST_TRAINED, None)
        return arrays, last

    def save(self, t: int, memory: Message, last: Vector | None, safe: int) -> None:
        """Store the memory after round t. Rounds before `safe` will not be asked for again."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        buffer = io.BytesIO()
        arrays = {**memory, **({} if last is None else {LAST_TRAINED: last})}
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # names are those of arrays
        write_atomically(self._path(t), buffer.getvalue(), self.durable)
        before_safe = [k for k in self._rounds() if k < safe]
        for k in self._rounds():
            if k > t or k in before_safe[:-1]:
                self._path(k).unlink(missing_ok=True)

    def _rounds(self) -> list[int]:
        names = (re.fullmatch(r"after-(\d+)\.npz", path.name) for path in self.folder.glob("after-*.npz"))
        return sorted(int(found[1]) for found in names if found)

    def _path(self, t: int) -> Path:
        return self.folder / f"after-{t}.npz"
