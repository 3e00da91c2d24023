"""Writing so that a reader, or a crash, never meets half a file."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when it is closed without an error, and leaves no trace otherwise."""
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
