"""Writing so that a reader, another writer or a crash never sees half a file."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from filelock import FileLock

LOCK: Final = ".lock"  # in a folder that one process at a time may change


@contextmanager
def replaced(path: Path, durable: bool = True) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when it is closed without an error, and leaves no trace otherwise.

    durable: it waits until the disk has it, so that it outlasts a power failure.
    """
    with blamed_on(path):
        part = path.parent / f".{path.name}.{secrets.token_hex(8)}.part"
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666), "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


_BINARY: Final[int] = getattr(os, "O_BINARY", 0)  # Windows translates line ends without it


def write_atomically(path: Path, content: bytes, durable: bool = True) -> int:
    """Write all of content or nothing; its size in bytes."""
    with replaced(path, durable) as file:
        file.write(content)
    return len(content)


def write_secret(path: Path, content: bytes) -> None:
    """A new file that nobody else can read at any time."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600), "wb") as file:
        file.write(content)


def remove_parts(folder: Path, spare: str | None = None) -> None:
    """Delete what processes that were killed while they wrote left behind. For the owner of the folder only.

    spare: a file that others may be writing now.
    """
    for part in folder.glob(".*.part"):
        if spare is None or not part.name.startswith(f".{spare}."):
            part.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, timeout: float = -1) -> Iterator[None]:
    """The folder for one process at a time; others wait, at most `timeout` seconds if it is not negative."""
    with FileLock(folder / LOCK, timeout=timeout):
        yield


def settle(folder: Path) -> None:
    """Make sure that files renamed or created in a folder are still there after a power failure."""
    if os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(folder, os.O_RDONLY)
    try:
        with blamed_on(folder):
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Errors of the system name the file that was to be written, not its temporary part."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename2 is None and str(error.filename or ".part").endswith(".part"):
            error.filename = str(path)
        raise
