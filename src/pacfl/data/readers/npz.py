"""Any data set in one .npz file with x_train, y_train, x_test and y_test.

An entry `channels`, "first" or "last", says where the channels of images are; without it they are last.
Entries `clients_train` and `clients_test` name the client that each sample comes from; `groups_train` says which
training samples depend on each other.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, from_arrays
from pacfl.data.natural import NaturalClients, natural_clients
from pacfl.data.readers.search import Search, reading, search
from pacfl.errors import DataError
from pacfl.npz import archive_shapes

ARRAYS: Final = ("x_train", "y_train", "x_test", "y_test")
CLIENTS: Final = ("clients_train", "clients_test", "groups_train")


def find(name: str, folder: Path) -> Search:
    """The file NAME.npz."""
    return search(folder, (f"{name}.npz",))


def count(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples, from the headers."""
    shapes = _shapes(paths[0])
    return shapes["x_train"][0], shapes["x_test"][0]


def read(name: str, paths: Sequence[Path], n_classes: int | None = None) -> Dataset:
    """The data set in the file; without n_classes, there are as many as the largest label says."""
    path = paths[0]
    _shapes(path)
    with reading(path, ".npz"), np.load(path, allow_pickle=False) as arrays:
        x_train, y_train, x_test, y_test = (arrays[array] for array in ARRAYS)
        channels: Any = str(arrays["channels"]) if "channels" in arrays else "last"
        whose = {key: arrays[key] for key in CLIENTS if key in arrays}
    try:
        natural = _natural(whose)
        return from_arrays(x_train, y_train, x_test, y_test, name, n_classes, channels, natural)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _natural(whose: Mapping[str, NDArray[Any]]) -> NaturalClients | None:
    if not whose:
        return None
    if lacking := [key for key in CLIENTS[:2] if key not in whose]:
        raise DataError(f"has {', '.join(whose)} and lacks {', '.join(lacking)}; give both, or none")
    return natural_clients(whose["clients_train"], whose["clients_test"], whose.get("groups_train"))


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the four arrays as their headers declare them, once they are found possible."""
    with reading(path, ".npz"):
        shapes = archive_shapes(path, ARRAYS)
    lacking = [array for array in ARRAYS if array not in shapes]
    if lacking:
        raise DataError(f"{path}: lacks {', '.join(lacking)}; expected the arrays {', '.join(ARRAYS)}")
    single = [array for array, shape in shapes.items() if not shape]
    if single:
        raise DataError(f"{path}: {', '.join(single)} is a single number; expected one entry for each sample")
    return shapes
