"""Curves for TensorBoard."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacfl.errors import MissingLibraryError

if TYPE_CHECKING:
    from pacfl.experiment.store import RunFolder


@contextmanager
def curves(folder: "RunFolder", where: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that is given every record of a run as it comes, and writes it where TensorBoard looks.

    With the first, everything that was recorded before is written anew: a run that goes on has one curve.
    When the block is left all of it is in the file.
    """
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise MissingLibraryError("--tensorboard needs tensorboardX: pip install 'pacfl[tensorboard]'") from None
    from pacfl.experiment.export import flat

    for old in where.glob("events.out.tfevents.*"):
        old.unlink()
    begun = False

    def write(record: Mapping[str, Any]) -> None:
        nonlocal begun
        for kept in folder.records() if not begun else [record] if "round" in record else []:
            for name, value in flat(kept).items():
                if isinstance(value, int | float) and name != "round":
                    writer.add_scalar(name.replace(".", "/"), value, kept["round"])
        begun = True

    with SummaryWriter(str(where)) as writer:
        yield write
