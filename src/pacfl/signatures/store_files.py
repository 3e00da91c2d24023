"""Signature files into a store."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.folders import STORE
from pacfl.signatures import sigfile
from pacfl.signatures.federation import Progress, check_comparable
from pacfl.signatures.sigfile import SignatureFile
from pacfl.signatures.store import BLOCK, SignatureStore, listed
from pacfl.subspace import MEASURES, Measure
from pacfl.subspace.split_half import SPLITS

SUFFIX: Final = ".sig"


def add_to_store(
    folder: Path,
    paths: Sequence[Path],
    *,
    dimensions: int | None = None,
    seed: int | None = None,
    on_progress: Progress = lambda *_: None,
) -> tuple[SignatureStore, int]:
    """The store in a folder with the signatures in files, or in folders of them; and how many were added.

    A store that is not there is made; dimensions and seed are those of its projection.
    """
    files = [file for path in paths for file in (sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path])]
    foreign = [str(file) for file in files if file.suffix != SUFFIX]
    if foreign or not files:
        found = (
            f"{listed(foreign)}: no signature file" if foreign else f"no signature file in {listed([*map(str, paths)])}"
        )
        raise DataError(f"{found}; sign data first: pacfl sign DATA -o NAME{SUFFIX}")
    if not (folder / STORE).exists():
        store = SignatureStore.create(folder, sigfile.read(files[0]).settings, dimensions, seed or 0)
    else:
        store = SignatureStore(folder)
        if dimensions not in (None, store.manifest.dimensions) or seed not in (None, store.manifest.seed):
            raise DataError(
                f"{folder}: has {store.sketch or 'all dimensions'}; leave out --dimensions and --seed, or make a new "
                "store"
            )
    return store, add_files(store, files, on_progress)


def add_files(store: SignatureStore, paths: Sequence[Path], on_progress: Progress = lambda *_: None) -> int:
    """Append the signatures in files, NAME.sig, that are not in the store yet; how many.

    Files that are there already are passed over, so that the same call resumes after a kill.
    """
    new = _not_there(store, paths)
    store.check_names([path.stem for path in new])
    store.check_room(len(new))
    on_progress("storing", len(paths) - len(new), len(paths))
    for start in range(0, len(new), BLOCK):
        block = new[start : start + BLOCK]
        signatures = []
        for path in block:
            signatures.append(sigfile.read(path))
            check_comparable({"the store": store.manifest.settings, path.stem: signatures[-1].settings})
            on_progress("storing", 1, len(paths))
        store.add(
            [path.stem for path in block],
            np.stack([_padded(one.basis, store.manifest.settings.rank) for one in signatures]),
            {measure: np.stack([_angles(one, measure) for one in signatures]) for measure in MEASURES},
            [one.samples or 0 for one in signatures],
            [_digest(path) for path in block],
        )
    return len(new)


def _not_there(store: SignatureStore, paths: Sequence[Path]) -> list[Path]:
    """Files of clients that are not in the store; those of another signature of a client are refused."""
    places = {name: i for i, name in enumerate(store.names)}
    known = [path for path in paths if path.stem in places]
    if not known:
        return list(paths)
    stored = store.digests()
    others = [path.stem for path in known if stored[places[path.stem]].tobytes() != _digest(path)]
    if others:
        raise DataError(
            f"{listed(others)}: in the store with another signature, nothing was added; signatures in a store are "
            "not replaced: rename the file, or make a new store"
        )
    return [path for path in paths if path.stem not in places]


def _digest(path: Path) -> bytes:
    """The checksum with which a signature file ends."""
    with path.open("rb") as file:
        file.seek(-min(sigfile.DIGEST_BYTES, path.stat().st_size), os.SEEK_END)
        return file.read().rjust(sigfile.DIGEST_BYTES, b"\0")


def _padded(basis: NDArray[np.float32], rank: int) -> NDArray[np.float32]:
    """A basis of fewer directions, with columns of zeros."""
    return np.pad(basis, ((0, 0), (0, rank - basis.shape[1])))


def _angles(signature: SignatureFile, measure: Measure) -> NDArray[Any]:
    """As many split-half angles as are stored; NaN where there are none."""
    own = signature.split_half_angles.get(measure, np.empty(0))
    return np.resize(own, SPLITS) if len(own) else np.full(SPLITS, np.nan)
