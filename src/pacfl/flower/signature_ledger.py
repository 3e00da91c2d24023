"""The ledger of a site's private signatures: what was released, and the privacy budget that it has spent.

The same request, in whichever federation, gets the same signature and costs nothing: fresh noise would average out over
requests. A signature is on disk before it leaves the site. One process at a time checks the budget, makes a signature
and records it: every message is handled in a process of its own, and requests may come at once.
"""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf, isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from pacfl.errors import BudgetError, ConfigError
from pacfl.federation.message import Message
from pacfl.federation.private import Promise
from pacfl.files import write_atomically

DEFAULT_MOST_DELTA: Final = 1e-4  # where only epsilon is limited
COST: Final = ("epsilon", "delta")
ROUNDING: Final = 1 + 1e-9  # three releases of 0.1 fit into a budget of 0.3


@dataclass(frozen=True)
class Budget:
    """The most that all signatures of a site may cost together, by basic composition: both add up."""

    epsilon: float = inf
    delta: float = inf

    @classmethod
    def read(cls, node_config: Mapping[str, Any]) -> "Budget | None":
        """`most-epsilon` and `most-delta` of a site's configuration; None if neither is set."""
        limits = {name: _limit(node_config, f"most-{name}") for name in COST if f"most-{name}" in node_config}
        return cls(**{"delta": DEFAULT_MOST_DELTA, **limits}) if limits else None

    def __str__(self) -> str:
        return " and ".join(f"{name} {getattr(self, name):g}" for name in COST if isfinite(getattr(self, name)))


@dataclass(frozen=True)
class SignatureLedger:
    """The released signatures of a site, one file each."""

    folder: Path

    def release(
        self, data: Sequence[NDArray[Any]], promise: Promise | None, make: Callable[[], Message], budget: Budget | None
    ) -> Message:
        """The signature of these arrays under this promise: the released one, or a new one within the budget.

        Without a promise nothing is recorded, because the same data give the same signature; with a budget it is
        refused.
        """
        if promise is None:
            message = make()
            if message and budget is not None:
                raise BudgetError(
                    f"this site releases private signatures only, within {budget}; the run asks for one without noise. "
                    "Set algorithm.signature-epsilon and leave signature-noise at 'secret'"
                )
            return message
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{_digest(data, promise)}.npz"
        with FileLock(self.folder / "lock", mode=0o600):
            if not path.exists():
                self._check(promise, budget)
                buffer = io.BytesIO()
                cost = {name: np.array(getattr(promise, name)) for name in COST}
                np.savez(buffer, **cost, **make())  # type: ignore[arg-type]  # names are those of arrays
                write_atomically(path, buffer.getvalue())
        return {name: array for name, array in _read(path).items() if name not in COST}

    def spent(self) -> Budget:
        """The cost of all released signatures, whatever changed in the data in between."""
        released = [_read(path) for path in sorted(self.folder.glob("*.npz"))]
        return Budget(**{name: fsum(float(arrays[name]) for arrays in released) for name in COST})

    def _check(self, promise: Promise, budget: Budget | None) -> None:
        if budget is None:
            return
        spent = self.spent()
        for name in COST:
            most, used, asked = (getattr(x, name) for x in (budget, spent, promise))
            if used + asked > most * ROUNDING:
                raise BudgetError(
                    f"the privacy budget of this site is {name} {most:g}: {used:g} is spent and the request costs "
                    f"{asked:g}. Ask again with the settings of a released signature, or let the site's operator raise "
                    f"most-{name} in site.config"
                )


def _limit(node_config: Mapping[str, Any], key: str) -> float:
    value = node_config[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise ConfigError(f"{key} in site.config must be a number of at least 0, got {value!r}")
    return float(value)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _digest(data: Sequence[NDArray[Any]], promise: Promise) -> str:
    """A name for samples, labels if they matter, and the promise under which their signature is released."""
    content = hashlib.sha256()
    for k, array in enumerate(data):
        content.update(repr((*((promise,) if k == 0 else ()), str(array.dtype), array.shape)).encode())
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()
