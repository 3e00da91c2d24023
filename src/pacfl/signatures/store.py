"""Very many signatures in one folder: appended in blocks, read as memory maps, in fewer dimensions than they had.

    store.json      how many there are, how they were made and sketched; replaced in one step after every block
    bases.f16       (n, rank, dimensions) orthonormal, float16; rows of zeros where a client has fewer directions
    angles.f16      (n, measures, splits) split-half angles in degrees, before the sketch; NaN for clients without
    clients.bin     (n,) SHA-256 of each signature, and its samples, 0 where they are not disclosed
    names.txt       one name a line

What follows the rows that store.json counts was being written when a process was killed, and is overwritten.
"""

import hashlib
import json
import os
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.errors import DataError
from pacfl.files import locked, write_atomically
from pacfl.folders import STORE
from pacfl.signatures.sigfile import SignatureSettings
from pacfl.subspace import MEASURES, Measure
from pacfl.subspace.proximity import ORTHONORMAL_WITHIN
from pacfl.subspace.sketch import PER_DIRECTION, projection, sketched, widening
from pacfl.subspace.split_half import OF_FIRST, SPLITS

FORMAT: Final = 1
DIMENSIONS: Final = 128  # of a sketch
BLOCK: Final = 2048  # signatures that are written at once
SPARE: Final = 64 << 20  # bytes that are left on the disk
NAMED: Final = 5  # names in a message
CLIENT: Final = np.dtype([("sha256", "u1", 32), ("samples", "<i8")])
UNPRINTABLE: Final = ("Cc", "Cs")  # categories of characters: controls, and bytes that are no text


@dataclass(frozen=True)
class Manifest:
    """What store.json has."""

    format: int
    n: int
    names_bytes: int
    dimensions: int  # of a basis in the store
    seed: int  # of the projection
    settings: SignatureSettings  # of all signatures


class SignatureStore:
    """Signatures of very many clients in a folder.

    >>> import tempfile
    >>> settings = SignatureSettings(200, 1, False, "raw", sigfile.NOT_PRIVATE)
    >>> store = SignatureStore.create(Path(tempfile.mkdtemp()) / "store", settings, dimensions=64)
    >>> store.add(["a", "b"], np.eye(200)[:2, :, None], {"smallest": np.full((2, 32), 3.0)})
    2
    >>> len(store), store.names, store.bases.shape
    (2, ['a', 'b'], (2, 64, 1))
    """

    def __init__(self, folder: Path) -> None:
        """Open the store in a folder."""
        self.folder = folder
        try:
            table = json.loads((folder / STORE).read_bytes())
            self.manifest = Manifest(**{**table, "settings": SignatureSettings(**table["settings"])})
        except FileNotFoundError:
            raise DataError(f"{folder}: is no store of signatures; make one with 'pacfl store add {folder}'") from None
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{folder / STORE}: cannot be read ({error}); was it damaged?") from None
        if self.manifest.format != FORMAT:
            raise DataError(f"{folder}: is a store of format {self.manifest.format}, this pacfl reads {FORMAT}")
        for name, wanted in self._bytes().items():
            path = folder / name
            if (path.stat().st_size if path.exists() else 0) < wanted:
                raise DataError(
                    f"{path}: is shorter than the {wanted:,} bytes of {len(self):,} signatures; was it damaged?"
                )

    @classmethod
    def create(
        cls, folder: Path, settings: SignatureSettings, dimensions: int | None = None, seed: int = 0
    ) -> "SignatureStore":
        """A store without a signature, for signatures that were made in one way.

        dimensions: of a random projection that signatures of more features are stored in, 128 unless another number is
        given; seed: of that projection.
        """
        if (folder / STORE).exists():
            raise DataError(f"{folder}: is a store already")
        if folder.exists() and (not folder.is_dir() or any(p.name != ".lock" for p in folder.iterdir())):
            raise DataError(f"{folder}: is there and no store of signatures; name a new folder")
        if settings.per_class:
            raise DataError("signatures per class have unequal numbers of directions and are not stored; sign without")
        least, width = (
            PER_DIRECTION * settings.rank,
            min(DIMENSIONS if dimensions is None else dimensions, settings.features),
        )
        if width < min(least, settings.features):
            raise DataError(f"a sketch of rank {settings.rank} needs {least} dimensions or more, got {width}")
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, Manifest(FORMAT, 0, 0, width, seed, settings))
        return cls(folder)

    def __len__(self) -> int:
        return self.manifest.n

    @property
    def bases(self) -> NDArray[np.float16]:
        """(n, dimensions, rank), a memory map."""
        return self._mapped("bases.f16", np.dtype("<f2"), (self._rank, self.manifest.dimensions)).transpose(0, 2, 1)

    def split_half_angles(self, measure: Measure) -> NDArray[np.float32]:
        """(n, splits) degrees, as they may be after the sketch; NaN for clients without."""
        return self.widened(self.own_angles(measure), measure)

    def own_angles(self, measure: Measure, part: slice = slice(None)) -> NDArray[np.float32]:
        """(m, splits) degrees that some clients measured, before the sketch."""
        stored = self._mapped("angles.f16", np.dtype("<f2"), (len(MEASURES), SPLITS))
        return stored[part, MEASURES.index(measure)].astype(np.float32)

    def widened(
        self, angles: NDArray[np.float32], measure: Measure, widening: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Own angles as they may be after the sketch; by factors (splits,), if these are known."""
        most = 90.0 if measure in OF_FIRST else 90.0 * self._rank
        factors = self.widening(angles) if widening is None else np.asarray(widening)
        return np.minimum(angles * factors.astype(np.float32), np.float32(most))

    def widening(self, angles: NDArray[np.float32]) -> NDArray[np.float64]:
        """By what factors the sketch widens own angles of all clients: (splits,)."""
        return widening(angles, self.manifest.settings.features, self.manifest.dimensions)

    @property
    def sketched(self) -> bool:
        """Whether signatures have fewer dimensions here than they had."""
        return self.manifest.dimensions < self.manifest.settings.features

    @property
    def samples(self) -> NDArray[np.int64]:
        """(n,) samples of each client; 0 where they are not disclosed."""
        return np.asarray(self._mapped("clients.bin", CLIENT, ())["samples"])

    @cached_property
    def names(self) -> list[str]:
        """The clients, in the order in which they came."""
        with self._open("names.txt") as file:
            text: bytes = file.read(self.manifest.names_bytes)
        return text.decode().split("\n")[:-1]

    def projected(self, bases: NDArray[Any]) -> NDArray[np.float32]:
        """Bases (m, features, rank) in the dimensions of this store."""
        return sketched(bases, self._onto) if self.sketched else np.asarray(bases, dtype=np.float32)

    def add(
        self,
        names: Sequence[str],
        bases: NDArray[Any],
        split_half_angles: Mapping[Measure, ArrayLike],
        samples: ArrayLike | None = None,
        digests: Sequence[bytes] | None = None,
    ) -> int:
        """Append clients (bases (m, features, rank), angles (m, splits) each); how many. They must not be there yet.

        digests: of what each sent, 32 bytes; of its basis, unless given.
        """
        m, wanted = len(names), (self.manifest.settings.features, self._rank)
        if bases.ndim != 3 or bases.shape != (m, *wanted):
            raise DataError(f"bases must be ({m}, {wanted[0]}, {wanted[1]}) for {m} names, got {bases.shape}")
        self.check_names(names)
        self.check_room(m)
        for start in range(0, m, BLOCK):
            part = slice(start, start + BLOCK)
            own = np.asarray(bases[part], dtype=np.float32)
            _check_orthonormal(own, names[part])
            rows = np.zeros(len(own), CLIENT)
            rows["samples"] = 0 if samples is None else np.asarray(samples)[part]
            sent = [hashlib.sha256(u).digest() for u in own] if digests is None else digests[part]
            rows["sha256"] = np.frombuffer(b"".join(sent), np.uint8).reshape(-1, 32)
            angles = np.full((len(own), len(MEASURES), SPLITS), np.nan, np.float16)
            for measure, given in split_half_angles.items():
                angles[:, MEASURES.index(measure)] = np.asarray(given)[part]
            self._append(names[part], self.projected(own), angles, rows)
        return m

    def summary(self) -> dict[str, Any]:
        """What `pacfl store show --json` prints."""
        return {
            "signatures": len(self),
            "bytes": sum(self._bytes().values()),
            **asdict(self.manifest.settings),
            "sketch": self.sketch,
        }

    @property
    def sketch(self) -> str | None:
        """How signatures were projected, in words."""
        if not self.sketched:
            return None
        return f"{self.manifest.dimensions} of {self.manifest.settings.features} dimensions, seed {self.manifest.seed}"

    @property
    def _rank(self) -> int:
        return self.manifest.settings.rank

    @cached_property
    def _onto(self) -> NDArray[np.float32]:
        return projection(self.manifest.settings.features, self.manifest.dimensions, self.manifest.seed)

    def _bytes(self) -> dict[str, int]:
        """How long each file is at least."""
        n, rank = len(self), self._rank
        return {
            "bases.f16": 2 * n * rank * self.manifest.dimensions,
            "angles.f16": 2 * n * len(MEASURES) * SPLITS,
            "clients.bin": n * CLIENT.itemsize,
            "names.txt": self.manifest.names_bytes,
        }

    def _mapped(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if not len(self):
            return np.empty((0, *shape), dtype=dtype)
        return np.memmap(self.folder / name, dtype=dtype, mode="r", shape=(len(self), *shape))

    def _open(self, name: str) -> Any:
        path = self.folder / name
        path.touch()
        return path.open("r+b")

    def _append(self, names: Sequence[str], bases: NDArray[Any], angles: NDArray[Any], rows: NDArray[Any]) -> None:
        """Write a block behind all others, then count it."""
        text = "".join(f"{name}\n" for name in names).encode()
        blocks = {
            "bases.f16": np.ascontiguousarray(bases.transpose(0, 2, 1), dtype="<f2"),
            "angles.f16": angles.astype("<f2"),
            "clients.bin": rows,
            "names.txt": np.frombuffer(text, np.uint8),
        }
        with locked(self.folder):
            if SignatureStore(self.folder).manifest != self.manifest:
                raise DataError(f"{self.folder}: another process added signatures; give the same command again")
            for name, start in self._bytes().items():
                with self._open(name) as file:
                    file.seek(start)
                    file.truncate()
                    file.write(blocks[name].tobytes())
                    file.flush()
                    os.fsync(file.fileno())
            self.manifest = replace(
                self.manifest, n=len(self) + len(names), names_bytes=self.manifest.names_bytes + len(text)
            )
            _write(self.folder, self.manifest)
        if "names" in self.__dict__:
            self.names.extend(names)

    def digests(self) -> NDArray[np.uint8]:
        """(n, 32) the SHA-256 of what each client sent, a memory map."""
        found: NDArray[np.uint8] = self._mapped("clients.bin", CLIENT, ())["sha256"]
        return found

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse names that occur twice, or cannot be printed."""
        seen = set(self.names) if names else set()
        twice = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        if twice:
            raise DataError(f"{listed(twice)}: more than one client has this name; nothing was added")
        odd = next((name for name in names if any(unicodedata.category(c) in UNPRINTABLE for c in name)), None)
        if odd is not None:
            raise DataError(f"clients have names that can be printed, got {odd!r}; nothing was added")

    def check_room(self, m: int) -> None:
        """Refuse what the disk has no room for."""
        of_one = 2 * self._rank * self.manifest.dimensions + 2 * len(MEASURES) * SPLITS + CLIENT.itemsize + 64
        needed, free = m * of_one + SPARE, shutil.disk_usage(self.folder).free
        if needed > free:
            raise DataError(
                f"{self.folder}: {m:,} signatures need {needed / 1e9:.2f} GB, and the disk has {free / 1e9:.2f} GB "
                "left; make room, or name a folder on another disk. Nothing was added"
            )


def _write(folder: Path, manifest: Manifest) -> None:
    write_atomically(folder / STORE, (json.dumps(asdict(manifest), indent=2) + "\n").encode())


def _check_orthonormal(bases: NDArray[np.float32], names: Sequence[str]) -> None:
    """Refuse what is no basis; columns of zeros stand for directions that a client does not have."""
    gram = bases.transpose(0, 2, 1) @ bases
    present = gram.diagonal(axis1=1, axis2=2) > 0.5
    off = np.abs(gram - present[:, :, None] * np.eye(gram.shape[1])).max(axis=(1, 2))
    if not (off <= ORTHONORMAL_WITHIN).all():
        bad = np.flatnonzero(~(off <= ORTHONORMAL_WITHIN)).tolist()
        raise DataError(f"{listed([names[i] for i in bad])}: no orthonormal basis")


def listed(names: Sequence[str]) -> str:
    """Some of the names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
