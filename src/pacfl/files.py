"""Writing so that a reader, another writer or a crash never meets half a file."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when it is closed without an error, and leaves no trace otherwise."""
    with blamed_on(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.chmod(0o666 & ~_umask())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def write_atomically(path: Path, content: bytes) -> int:
    """Write all of content or nothing; its size in bytes."""
    with replaced(path) as file:
        file.write(content)
    return len(content)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder for one process at a time; others wait."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def settle(folder: Path) -> None:
    """Be sure that what was renamed or made in a folder is still so when the power fails."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with blamed_on(folder):
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Errors of the system name the file that was to be written; of themselves they name none, or its unknown part."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename2 is None and str(error.filename or ".part").endswith(".part"):
            error.filename = str(path)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
