"""Curves for TensorBoard."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacfl.errors import library
from pacfl.experiment.csv_tables import flat

if TYPE_CHECKING:
    from pacfl.experiment.store import RunFolder


@contextmanager
def curves(folder: "RunFolder", where: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that takes every record of a run, and writes it where TensorBoard looks.

    The first call writes all earlier records again: a resumed run has one curve. When the block ends, all is written.
    """
    summary_writer = library("tensorboardX", "--tensorboard", "tensorboard").SummaryWriter
    for old in where.glob("events.out.tfevents.*"):
        old.unlink()
    begun = False

    def write(record: Mapping[str, Any]) -> None:
        nonlocal begun
        for each in folder.records() if not begun else [record] if "round" in record else []:
            for name, value in flat(each).items():
                if isinstance(value, int | float) and name != "round":
                    writer.add_scalar(name.replace(".", "/"), value, each["round"])
        begun = True

    with summary_writer(str(where)) as writer:
        yield write
