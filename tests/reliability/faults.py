"""Faults at every file operation of a program: from then on it is killed, or the disk is full."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


class Killed(BaseException):
    """As by kill -9: no clean-up reaches a file any more."""


@dataclass
class Disk:
    """A folder with counted file operations ("moments"); from number `at` on, counted from 0, each is a fault."""

    folder: Path
    at: int | None = None
    full: bool = False  # instead of a kill: operations that need space fail
    moments: list[str] = field(default_factory=list)

    def touch(self, what: str, path: Any, needs_space: bool = True, named: bool = True) -> None:
        """Count one operation, and raise from moment `at` on. Errors of the system name files opened by path."""
        if not self.contains(path) or (self.full and not needs_space):
            return
        self.moments.append(f"{what} {Path(path).name}")
        if self.failing:
            name = (str(path),) if named else ()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *name) if self.full else Killed(self.moments[-1])

    @property
    def failing(self) -> bool:
        """Whether moment `at` has passed."""
        return self.at is not None and len(self.moments) > self.at

    def contains(self, path: Any) -> bool:
        """Whether a file is on this disk."""
        return Path(os.path.abspath(path)).is_relative_to(self.folder)  # noqa: PTH100 - which follows no links


class Written:
    """A file on a disk with faults: of the write that fails, one half is written."""

    def __init__(self, file: Any, disk: Disk, path: Any) -> None:
        self._file, self._disk, self._path = file, disk, path

    def write(self, content: bytes) -> int:
        try:
            self._disk.touch("write", self._path, named=False)
        except BaseException:
            self._file.write(content[: len(content) // 2])
            self._file.flush()
            raise
        return int(self._file.write(content))

    def __enter__(self) -> "Written":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def faulty(disk: Disk) -> Iterator[Disk]:
    """System calls with the faults of a disk."""
    with pytest.MonkeyPatch.context() as patch:
        for name, needs_space in NAMED_BY_PATH.items():
            patch.setattr(os, name, _guarded(getattr(os, name), name, disk, needs_space))
        patch.setattr(os, "open", _opened(os.open, disk))
        patch.setattr(os, "fsync", _synced(os.fsync, disk))
        patch.setattr(io, "open", _written(io.open, disk))
        yield disk


NAMED_BY_PATH = {"replace": False, "rename": False, "unlink": False, "remove": False, "rmdir": False, "chmod": False}
NAMED_BY_PATH |= {"mkdir": True}


def _guarded(call: Callable[..., Any], name: str, disk: Disk, needs_space: bool) -> Callable[..., Any]:
    def guarded(path: Any, *args: Any, dir_fd: int | None = None, **options: Any) -> Any:
        disk.touch(name, path if dir_fd is None else _path_of(dir_fd) / path, needs_space)
        given = {} if dir_fd is None else {"dir_fd": dir_fd}
        return call(path, *args, **given, **options)

    return guarded


def _opened(call: Callable[..., int], disk: Disk) -> Callable[..., int]:
    def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            disk.touch("create", path)
        return call(path, flags, *args, **options)

    return opened


def _synced(call: Callable[[int], None], disk: Disk) -> Callable[[int], None]:
    def synced(handle: int) -> None:
        disk.touch("fsync", _path_of(handle), named=False)
        call(handle)

    return synced


def _written(call: Callable[..., Any], disk: Disk) -> Callable[..., Any]:
    def written(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+"):
            return call(path, mode, *args, **options)
        where = _path_of(path) if isinstance(path, int) else path
        disk.touch("open", where, needs_space=not isinstance(path, int))
        file = call(path, mode, *args, **options)
        return Written(file, disk, where) if disk.contains(where) else file

    return written


def _path_of(handle: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{handle}"))  # noqa: PTH115 - handles are no paths


@dataclass
class Journal:
    """Renames and deletions whose folder was not synced since: a power failure may undo them."""

    disk: Disk
    undoing: dict[Path, list[Callable[[], None]]] = field(default_factory=dict)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """System calls with the faults of the disk, recorded."""
        with faulty(self.disk), pytest.MonkeyPatch.context() as patch:
            replace, unlink, fsync = os.replace, os.unlink, os.fsync

            def replaced(source: Any, target: Any) -> None:
                before = [_restoring(Path(path)) for path in (source, target)]
                replace(source, target)
                self.undoing.setdefault(Path(target).parent, []).extend(before)

            def unlinked(path: Any) -> None:
                before = _restoring(Path(path))
                unlink(path)
                self.undoing.setdefault(Path(path).parent, []).append(before)

            def synced(handle: int) -> None:
                fsync(handle)
                self.undoing.pop(_path_of(handle), None)  # for a file there is nothing to remove

            patch.setattr(os, "replace", replaced)
            patch.setattr(os, "unlink", unlinked)
            patch.setattr(os, "fsync", synced)
            yield

    def undo(self, folders: list[Path]) -> None:
        """Fail the power: undo what was not synced in these folders."""
        for folder in folders:
            for restore in reversed(self.undoing.get(folder, ())):
                restore()


def _restoring(path: Path) -> Callable[[], None]:
    content = path.read_bytes() if path.exists() else None

    def restore() -> None:
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)

    return restore
