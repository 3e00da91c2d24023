"""Small packages in the formats of the true ones: wheels, npm's archives, Debian's packages, R's data files."""

import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_wheel(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def tar_bytes(files: Mapping[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def write_deb(path: Path, files: Mapping[str, bytes], compression: str = "xz") -> None:
    """An ar archive of three files, the last with the content; odd sizes are padded."""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar_bytes({"./control": b"Package: x"}, "w:xz") + b"!",
        f"data.tar.{compression}": tar_bytes(files, "w:xz"),
    }
    body = b"!<arch>\n"
    for name, content in parts.items():
        body += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        body += b"\n" * (len(content) % 2)
    path.write_bytes(body)


class RData:
    """R's binary format XDR, version 2: what `save(x, file=..., compress="xz")` writes."""

    def __init__(self) -> None:
        self.symbols: list[str] = []

    def file(self, objects: Mapping[str, Any]) -> bytes:
        return lzma.compress(b"RDX2\nX\n" + struct.pack(">3i", 2, 0x030100, 0x020300) + self.pairs(objects))

    def pairs(self, values: Mapping[str, Any]) -> bytes:
        made = (struct.pack(">i", 0x402) + self.symbol(name) + self.item(value) for name, value in values.items())
        return b"".join(made) + struct.pack(">i", 254)

    def symbol(self, name: str) -> bytes:
        if name in self.symbols:
            return struct.pack(">i", (self.symbols.index(name) + 1) << 8 | 255)
        self.symbols.append(name)
        return struct.pack(">i", 1) + self.text(name)

    def text(self, word: str) -> bytes:
        return struct.pack(">2i", 0x40009, len(word.encode())) + word.encode()

    def item(self, value: Any) -> bytes:
        if isinstance(value, Mapping):  # a data frame
            attributes = {"names": list(value), "class": ["data.frame"]}
            content = b"".join(self.item(column) for column in value.values())
            return struct.pack(">2i", 0x313, len(value)) + content + self.pairs(attributes)
        if isinstance(value, list):
            return struct.pack(">2i", 16, len(value)) + b"".join(map(self.text, value))
        if value.dtype.kind == "U":  # a factor
            levels, codes = np.unique(value, return_inverse=True)
            numbers = struct.pack(">2i", 0x30D, len(value)) + (codes + 1).astype(">i4").tobytes()
            return numbers + self.pairs({"levels": levels.tolist(), "class": ["factor"]})
        kind, dtype = (14, ">f8") if value.dtype.kind == "f" else (13, ">i4")
        return struct.pack(">2i", kind, len(value)) + value.astype(dtype).tobytes()
