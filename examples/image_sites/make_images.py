"""Images for a first try: three sites with handwritten digits, in negative at the third.

python make_images.py FOLDER writes FOLDER/0, FOLDER/1 and FOLDER/2, each with train/CLASS/*.png and test/CLASS/*.png.
"""

import sys
from pathlib import Path

import numpy as np
from image_task import CLASSES
from PIL import Image

from pacfl.data import digits

DOMAIN_OF_SITE = (0, 0, 1)


def main(folder: Path) -> None:
    """Write the images of all sites."""
    dataset = digits(("upright", "negative"))
    for site, domain in enumerate(DOMAIN_OF_SITE):
        rng = np.random.default_rng(site)
        train = rng.choice(np.flatnonzero(dataset.source_train == domain), 200, replace=False)
        test = np.flatnonzero(dataset.source_test == domain)
        write(folder / str(site) / "train", dataset.x_train[train], dataset.y_train[train])
        write(folder / str(site) / "test", dataset.x_test[test], dataset.y_test[test])


def write(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """One file for each image, in the folder of its class."""
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
    for i, (image, label) in enumerate(zip(x, y, strict=True)):
        Image.fromarray(image.astype(np.uint8)).save(folder / CLASSES[label] / f"{i:04d}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
