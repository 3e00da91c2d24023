"""Where the clients of an experiment run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pacfl.errors import lacking

if TYPE_CHECKING:
    from pacfl.experiment.config import Run


class BackendName(StrEnum):
    """In this process and its workers, or behind the messages of Flower's simulation."""

    LOCAL = "local"
    FLOWER = "flower"


@contextmanager
def backend_of(name: BackendName, unfinished: "Sequence[Run]", workers: int) -> Iterator[Any]:
    """The backend for all runs that are not finished."""
    if name is BackendName.LOCAL or not unfinished:
        from pacfl.federation.local import LocalBackend

        yield LocalBackend(workers)
        return
    try:
        from pacfl.flower.simulation import simulation
    except ModuleNotFoundError as error:
        raise lacking(error, "the backend flower", "flower") from None
    with simulation(workers) as backend:
        yield backend
