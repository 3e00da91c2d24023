"""Files inside packages as registries hand them out: wheels and sdists, npm's archives, Debian's packages."""

import io
import lzma
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from pacfl.data.readers.search import Search, reading
from pacfl.errors import DataError

MOST_BYTES: Final = 1 << 27  # of a file in a package, or of the archive in Debian's
AR: Final = b"!<arch>\n"


def find(patterns: Sequence[str], folder: Path) -> Search:
    """One file for each pattern, such as pymc3-3.11*.whl: the last by name, so the newest of one package."""
    hits = {pattern: sorted(path for path in folder.glob(pattern) if path.is_file()) for pattern in patterns}
    return Search(
        tuple(paths[-1] for paths in hits.values() if paths), tuple(name for name, paths in hits.items() if not paths)
    )


def member(path: Path, name: str) -> bytes:
    """The file whose path in the package ends with the name."""
    return members(path, [name])[name]


def members(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The first file that ends with each of the names, read without unpacking the package."""
    with reading(path, "a package"):
        found = _zipped(path, names) if path.suffix in (".whl", ".zip") else _tarred(path, names)
    if lacking := [name for name in names if name not in found]:
        raise DataError(f"{path}: has no {lacking[0]}; is it the right version of the package?")
    return found


def unpacked(archive: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """The same from an archive that is itself a file of a package."""
    return _of_tar(io.BytesIO(archive), names)


def _zipped(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        listed = {name: [entry for entry in archive.namelist() if entry.endswith(name)] for name in names}
        found = {}
        for name, entries in listed.items():
            if entries:
                with archive.open(entries[0]) as file:
                    found[name] = _bounded(file, name)
        return found


def _tarred(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    with path.open("rb") as file:
        return _of_tar(_debian(file) if path.suffix == ".deb" else file, names)


def _of_tar(file: IO[bytes], names: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for entry in archive:
            name = next((name for name in names if name not in found and entry.name.endswith(name)), None)
            content = archive.extractfile(entry) if name is not None and entry.isfile() else None
            if name is not None and content is not None:
                found[name] = _bounded(content, name)
                if len(found) == len(names):
                    break
    return found


def _debian(file: IO[bytes]) -> IO[bytes]:
    """The tar archive of files in a Debian package, which is an `ar` archive."""
    if file.read(len(AR)) != AR:
        raise DataError("it is not a Debian package")
    while header := file.read(60):
        name, size = header[:16].decode("latin1").strip().rstrip("/"), int(header[48:58])
        if name.startswith("data.tar"):
            if name.endswith(".zst"):
                raise DataError("it is compressed with zstd; get Debian's own package, which is not")
            return io.BytesIO(_bounded(file, name, size))
        file.seek(size + size % 2, 1)
    raise DataError("it has no files")


def _bounded(file: IO[bytes], name: str, size: int = MOST_BYTES) -> bytes:
    content = file.read(min(size, MOST_BYTES) + (size >= MOST_BYTES))
    if len(content) > MOST_BYTES:
        raise DataError(f"{name} is larger than {MOST_BYTES} bytes, which it is not in the true package")
    return content


def decompressed(content: bytes) -> bytes:
    """What xz compressed, as far as it can be true."""
    plain = lzma.LZMADecompressor().decompress(content, MOST_BYTES + 1)
    if len(plain) > MOST_BYTES:
        raise DataError(f"expands to more than {MOST_BYTES} bytes")
    return plain
