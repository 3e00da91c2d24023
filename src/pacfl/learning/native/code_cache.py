"""Compiled code kept between runs, in files named by a hash of everything that it was made from."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from pacfl.files import write_atomically

CHECK = 32  # bytes of the checksum before the code


def key(*made_from: str) -> str:
    """A name for what is made from these."""
    return hashlib.sha256(repr(made_from).encode()).hexdigest()


def folder() -> Path:
    """Where code is kept: $PACFL_CACHE, or the user's own folder for such things."""
    own = os.environ.get("PACFL_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pacfl"


def kept(name: str, make: Callable[[], bytes]) -> bytes:
    """What was kept under a name, or else what `make` makes, kept from now on wherever that can be.

    Processes may do this at once: files appear whole, and whoever comes last writes the same.
    """
    path = folder() / f"{name}.o"
    found = _read(path)
    if found is not None:
        return found
    made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, hashlib.sha256(made).digest() + made)
    except OSError:
        pass  # a full or read-only disk: it is only made again next time
    return made


def _read(path: Path) -> bytes | None:
    """The code in a file that belongs to this user and is as it was written: it will be executed."""
    try:
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        content = path.read_bytes()
    except OSError:
        return None
    check, code = content[:CHECK], content[CHECK:]
    return code if hashlib.sha256(code).digest() == check else None
