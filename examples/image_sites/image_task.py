"""A federation of sites that each have folders of images: the two functions that a user writes.

Each site has train/CLASS/*.png and test/CLASS/*.png in the folder that its operator names in site.config, as
data="/srv/images". CLASS is one of the names below; a site need not have all of them.
"""

from pathlib import Path

import numpy as np
from flwr.app import Context
from PIL import Image
from torch import nn

from pacfl.flower.site import Site

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")  # the same at all sites
SIDE = 16  # pixels


def load_data(context: Context) -> Site:
    """Images of this site, scaled for the network; the signature is taken of the pixels as they are."""
    folder = Path(str(context.node_config["data"]))
    (x_train, y_train), (x_test, y_test) = (read(folder / part) for part in ("train", "test"))
    return Site(x_train / 255, y_train, x_test / 255, y_test, raw=x_train)


def build_model() -> nn.Module:
    """The network, the same at all sites."""
    layers = (nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * (SIDE // 4) ** 2, len(CLASSES)))


def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, 1, 16, 16) from 0 to 255, and classes (n,), in the order of the files' names."""
    unknown = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in CLASSES)
    if unknown:
        raise ValueError(f"{folder} has classes {unknown} that the federation does not know; CLASSES has those it does")
    files = [(path, y) for y, name in enumerate(CLASSES) for path in sorted((folder / name).glob("*.png"))]
    if not files:
        raise ValueError(f"{folder} has no CLASS/*.png; is data= in site.config the folder above train and test?")
    return np.stack([pixels(path) for path, _ in files]), np.array([y for _, y in files])


def pixels(path: Path) -> np.ndarray:
    """One image, grey and of one size: (1, 16, 16)."""
    with Image.open(path) as image:
        return np.asarray(image.convert("L").resize((SIDE, SIDE)), dtype=np.float32)[None]
