"""A small federation from scikit-learn's handwritten digits: four styles, clients of unequal size."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import library

Images = NDArray[Any]

STYLES: Final[Mapping[str, Callable[[Images], Images]]] = {
    "upright": lambda images: images,
    "turned": lambda images: np.rot90(images, axes=(1, 2)),
    "negative": lambda images: 16 - images,
    "mirrored": lambda images: images[:, :, ::-1],
}
CLIENTS_PER_STYLE: Final = 5


def write_clients(folder: Path) -> tuple[list[Path], Path]:
    """Files of twenty clients, five of each style, and of one newcomer with turned digits."""
    datasets = library("sklearn.datasets", "the demonstration", "demo")
    images = datasets.load_digits().images.astype(np.uint8)
    rng = np.random.default_rng(0)
    images = images[rng.permutation(len(images))]
    sizes = rng.integers(50, 110, len(STYLES) * CLIENTS_PER_STYLE + 1)
    of_clients = iter(np.split(images, np.cumsum(sizes)))
    paths = []
    for i in range(CLIENTS_PER_STYLE):
        for style, write_in_style in STYLES.items():
            paths.append(folder / f"{style}-{i + 1}.npy")
            np.save(paths[-1], write_in_style(next(of_clients)))
    newcomer = folder / "newcomer.npy"
    np.save(newcomer, STYLES["turned"](next(of_clients)))
    return paths, newcomer
