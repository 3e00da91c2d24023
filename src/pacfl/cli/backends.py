"""Where the clients of an experiment live."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from pacfl.errors import MissingLibraryError

if TYPE_CHECKING:
    from pacfl.experiment.config import Run
    from pacfl.experiment.run import Reach


class Backend(StrEnum):
    """In this process and its workers, or behind the messages of Flower's simulation."""

    LOCAL = "local"
    FLOWER = "flower"


@contextmanager
def reaching(backend: Backend, runs: "Sequence[Run]", workers: int) -> "Iterator[Reach]":
    """A way to reach the clients of all the runs that are still to be played."""
    from pacfl.federation.local import local

    if backend is Backend.LOCAL or not runs:
        yield local
        return
    try:
        from pacfl.flower.simulation import simulation
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("flwr", "ray"):
            raise MissingLibraryError("the backend flower needs Flower and Ray: pip install 'pacfl[flower]'") from None
        raise
    with simulation(max(run.data.clients for run in runs), workers) as nodes:
        yield nodes.reach
