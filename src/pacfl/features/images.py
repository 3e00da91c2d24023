"""A folder of images -> pixels of 8 bits, as a viewer would show them."""

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError, library

if TYPE_CHECKING:
    from PIL.Image import Image

    from pacfl.features.reading import Reading

Array = NDArray[Any]
MOST_PIXELS: Final = 1 << 26  # of an image: more than any camera's, and 200 MB once it is read
SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


def read_images(path: Path, how: "Reading") -> tuple[Array, Array | None, None, Array | None]:
    """Pixels (n, height, width, 3), or (n, height, width) in grey, and folders as labels or groups (n,)."""
    library("PIL.Image", f"{path}: reading images", "images")
    if how.labels_at not in (None, "folders"):
        option = "--labels" if how.per_class is None else "--per-class"
        raise DataError(f"{path}: labels of images are the names of their folders; use {option} folders")
    if how.group not in (None, "folders"):
        raise DataError(f"{path}: groups of images are the names of their folders; use --group folders")
    files = images_in(path)
    if not files:
        raise DataError(f"{path}: has no images ({', '.join(sorted(SUFFIXES))})")
    images: list[Array] = []
    for file in files:
        images.append(_pixels(file, how))
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"{file}: is {_size(images[-1])}, {files[0].name} is {_size(images[0])}; "
                "make them equal with --resize WxH"
            )
    folders = np.array([str(f.parent.relative_to(path)) for f in files])
    labels, groups = (None if at is None else folders for at in (how.labels_at, how.group))
    return np.stack(images), labels, None, groups


def images_in(folder: Path) -> list[Path]:
    """Its images, at any depth."""
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())


def _pixels(file: Path, how: "Reading") -> Array:
    from PIL import Image, ImageOps

    try:
        # From memory: asked for what a damaged file declares, a file takes that much at once
        with Image.open(io.BytesIO(file.read_bytes())) as image:
            if math.prod(image.size) > MOST_PIXELS:
                raise DataError(f"{file}: is {image.width}x{image.height}, at most {MOST_PIXELS:,} pixels are read")
            ImageOps.exif_transpose(image, in_place=True)
            shown = _on_white(_of_8_bits(file, image)).convert("L" if how.grey else "RGB")
            return np.asarray(shown.resize(how.resize) if how.resize else shown)
    except DataError:
        raise
    except Exception as error:  # decoders of damaged files fail in many ways
        raise DataError(f"{file}: is not an image that can be read: {str(error) or type(error).__name__}") from None


def _of_8_bits(file: Path, image: "Image") -> "Image":
    """Levels of 16 bits rounded to 8. Pillow would cut off all above 255 instead."""
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode[0] in "IF":
        raise DataError(f"{file}: has levels of 32 bits, whose range is not known; save it with 8 or 16 bits")
    return image


def _on_white(image: "Image") -> "Image":
    """What is transparent lets white through. Pillow would show the colour under it, often black."""
    from PIL import Image

    if "A" not in image.getbands() and "transparency" not in image.info:
        return image
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white


def _size(image: Array) -> str:
    return f"{image.shape[1]}x{image.shape[0]}"
