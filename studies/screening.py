"""Limits of chance are simulated for the first federations of a kind; others are screened with the lowest of them.

Only if these limits, less the range of all that were simulated, split a federation is it clustered with its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import class_clustering, threshold
from pacfl.subspace.weighted import Limits as ClassLimits

Array = NDArray[np.float64]
Limits = dict[str, list[Any]]  # what each simulation of one clustering gave, by the function that made it

FULL: Final = 20  # federations whose limits are simulated in any case
CHECKED: Final = 5  # others whose limits are simulated to see whether they could have been left out
SIMULATIONS: Final = ((threshold, "null_limits"), (class_clustering, "class_limits"))


@contextmanager
def recorded(made: Limits) -> Iterator[None]:
    """Append the limits that are simulated."""
    with ExitStack() as patches:
        for module, name in SIMULATIONS:
            simulate = getattr(module, name)

            def record(*args: Any, simulate: Any = simulate, name: str = name, **named: Any) -> Any:
                made.setdefault(name, []).append(simulate(*args, **named))
                return made[name][-1]

            patches.enter_context(patch.object(module, name, record))
        yield


@contextmanager
def replaced(limits: Limits) -> Iterator[None]:
    """Use these limits one after the other instead of simulating any."""
    with ExitStack() as patches:
        for module, name in SIMULATIONS:
            left = iter(limits.get(name, ()))
            patches.enter_context(patch.object(module, name, lambda *_, left=left, **__: next(left)))
        yield


def lowest(of_each: Sequence[Limits]) -> Limits:
    """The lowest of the limits of many federations, less the range of all of them."""

    def less(limits: Array) -> Array:
        low, high = limits.min(axis=0), np.where(np.isfinite(limits), limits, -np.inf).max(axis=0)
        return np.asarray(low - np.subtract(high, low, where=np.isfinite(low), out=np.zeros_like(low)))

    return _pooled(of_each, less)


def typical(of_each: Sequence[Limits]) -> Limits:
    """The median of the limits of many federations."""
    return _pooled(of_each, lambda limits: np.median(limits, axis=0))


def _pooled(of_each: Sequence[Limits], how: Callable[[Array], Array]) -> Limits:
    return {name: _pooled_calls([made.get(name, []) for made in of_each], how) for _, name in SIMULATIONS}


def _pooled_calls(of_each: Sequence[list[Any]], how: Callable[[Array], Array]) -> list[Any]:
    pooled: list[Any] = []
    for k in range(max(map(len, of_each), default=0)):
        made = [own[k] for own in of_each if len(own) > k]
        found = [as_array(one) for one in made]
        order = np.argsort([one[0, 0] for one in found], kind="stable")
        length = max(one.shape[1] for one in found)
        limits = how(np.stack([np.pad(one, ((0, 0), (0, length - one.shape[1])), mode="edge") for one in found]))
        middle = made[order[len(order) // 2]]
        pooled.append((limits[0] if len(limits) == 1 else ClassLimits(*limits), middle[1]))
    return pooled


def as_array(made: tuple[Any, float]) -> Array:
    """The limits of one simulation, those of heights first: (kinds, classes of size)."""
    limits = made[0]
    return np.stack([limits.heights, limits.contrasts] if isinstance(limits, ClassLimits) else [limits])


class Answer(Protocol):
    """What a study asks of one federation."""

    @property
    def split(self) -> bool:
        """Whether it is."""

    @property
    def guaranteed(self) -> bool:
        """Whether the error rate is."""

    @property
    def refused(self) -> bool:
        """Whether there is no clustering."""


A = TypeVar("A", bound=Answer)


@dataclass
class Screening(Generic[A]):
    """Federations of one kind, clustered in full only where chance could have split them."""

    simulated: list[Limits] = field(default_factory=list)
    below: int = 0  # federations whose own limits are below those by which others are left out

    def found(self, find: Callable[[], A], number: int) -> A:
        """What is found in the federation of this number; find: clusters it."""
        if number < FULL:
            return self._full(find)
        low = lowest(self.simulated[:FULL])
        try:
            with replaced(low):
                screened = find()
            if not (screened.split or screened.guaranteed or screened.refused):
                with replaced(typical(self.simulated[:FULL])):
                    screened = find()
        except (StopIteration, IndexError):  # other simulations than in the first federations
            return self._full(find)
        if not screened.split and number >= FULL + CHECKED:
            return screened
        found = self._full(find)
        calls = [pair for name, own in self.simulated[-1].items() for pair in zip(own, low[name], strict=False)]
        both = [(as_array(a), as_array(b)) for a, b in calls]
        self.below += any((a[:, : b.shape[1]] < b[:, : a.shape[1]]).any() for a, b in both)
        return found

    def _full(self, find: Callable[[], A]) -> A:
        made: Limits = {}
        with recorded(made):
            found = find()
        self.simulated.append(made)
        return found
