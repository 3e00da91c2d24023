"""A cache of compiled code in files, named by a hash of everything that the code depends on."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from pacfl.files import write_atomically

CHECKSUM = 32  # bytes before the code


def key(*inputs: str) -> str:
    """The name of code that depends on these inputs."""
    return hashlib.sha256(repr(inputs).encode()).hexdigest()


def folder() -> Path:
    """The folder of the cache: $PACFL_CACHE, or the user's cache folder."""
    given = os.environ.get("PACFL_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pacfl"


def cached(name: str, compile_code: Callable[[], bytes]) -> bytes:
    """The code stored under a name, or else what `compile_code` returns, which is stored if possible.

    Several processes may do this at once: files are written atomically, and all write the same.
    """
    path = folder() / f"{name}.o"
    found = _read(path)
    if found is not None:
        return found
    code = compile_code()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, hashlib.sha256(code).digest() + code)
    except OSError:
        pass  # a full or read-only disk: it is compiled again next time
    return code


def _read(path: Path) -> bytes | None:
    """The code in a file, if the file belongs to this user and its checksum is right: the code will be executed."""
    try:
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        content = path.read_bytes()
    except OSError:
        return None
    checksum, code = content[:CHECKSUM], content[CHECKSUM:]
    return code if hashlib.sha256(code).digest() == checksum else None
