"""A folder of images -> pixels of 8 bits, as a viewer would show them."""

import io
import math
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError, library
from pacfl.features.arrays import MappedArray
from pacfl.subspace.stored import LARGE, StoredSamples

if TYPE_CHECKING:
    from PIL.Image import Image

    from pacfl.features.reading import Reading

Array = NDArray[Any]
MOST_PIXELS: Final = 1 << 26  # of an image: more than any camera's, and 200 MB once it is read
MOST_LISTED: Final = 10  # files in a note; --json has all
MOST_MEASURED: Final = 1000  # images whose sizes are looked at for a suggestion
ORIENTATION: Final = 0x0112  # the EXIF tag
SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


def read_images(path: Path, how: "Reading") -> tuple[Any, Array | None, None, Array | None]:
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
    pixels, read = _all_pixels(path, files, how)
    folders = np.array([str(file.parent.relative_to(path)) for file in read])
    labels, groups = (None if at is None else folders for at in (how.labels_at, how.group))
    return pixels, labels, None, groups


class PixelFile:
    """Images (n, height, width, ...) of 8 bits in a temporary file, which is deleted with the object."""

    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, shape: tuple[int, ...]) -> None:
        """No images yet, of one shape."""
        self._file = tempfile.TemporaryFile(prefix="pacfl-")  # noqa: SIM115 - open as long as the object lives
        weakref.finalize(self, self._file.close)
        self._mapped: MappedArray | None = None
        self.shape: tuple[int, ...] = (0, *shape)

    def append(self, image: Array) -> None:
        """Add an image."""
        try:
            self._file.write(image.tobytes())
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: cannot hold the pixels of the images ({error.strerror}); name a larger "
                "place in the environment variable TMPDIR, or sign smaller images: --resize"
            ) from None
        self.shape = (self.shape[0] + 1, *self.shape[1:])

    def __getitem__(self, rows: Any) -> Array:
        if self._mapped is None or self._mapped.shape != self.shape:
            self._file.flush()
            self._mapped = MappedArray(self._file, self.dtype, self.shape)
        return self._mapped[rows]


def _all_pixels(path: Path, files: list[Path], how: "Reading") -> tuple[Any, list[Path]]:
    """Pixels of all images that can be read, in memory if they are few, and their files."""
    first: Array | None = None
    images: PixelFile | list[Array] = []
    read: list[Path] = []
    faults: dict[Path, str] = {}
    for file in files:
        try:
            image = _pixels(file, how)
        except DataError as error:
            if not how.skip_unreadable:
                raise DataError(f"{error}; delete it, or leave out such files with --skip-unreadable") from None
            faults[file] = str(error)
            continue
        finally:
            if how.on_progress is not None:
                how.on_progress("reading images", 1, len(files))
        if first is None:
            first = image
            images = PixelFile(image.shape) if len(files) * image.size > LARGE else []
        elif image.shape != first.shape:
            raise _unequal(path, files, (read[0], first), (file, image), how.as_newcomers)
        images.append(image)
        read.append(file)
    if not read:
        raise DataError(f"{path}: none of its {len(files)} images can be read: {next(iter(faults.values()))}")
    if faults:
        warnings.warn(SkippedWarning(path, list(faults), len(files)), stacklevel=2)
    if isinstance(images, PixelFile):
        return StoredSamples(images, on_progress=how.on_progress), read
    return np.stack(images), read


class SkippedWarning(UserWarning):
    """Files that could not be read and were left out."""

    def __init__(self, folder: Path, files: list[Path], n: int) -> None:
        """Some of n files in a folder."""
        self.files = [str(file) for file in files]
        listed = ", ".join(str(file.relative_to(folder)) for file in files[:MOST_LISTED])
        more = f" and {len(files) - MOST_LISTED} more" if len(files) > MOST_LISTED else ""
        super().__init__(f"{folder}: {len(files)} of {n} images cannot be read and were left out: {listed}{more}")


def _unequal(
    path: Path, files: list[Path], one: tuple[Path, Array], other: tuple[Path, Array], as_newcomers: bool
) -> DataError:
    """What to do about images of different sizes: the median size is suggested."""
    from PIL import Image

    (file, first), (another, second) = one, other
    what = f"{another}: is {_size(second)}, {file.name} is {_size(first)}"
    if as_newcomers:
        return DataError(
            f"{what}; the federation's images were not resized, so newcomers' are not either: save all of {path} in "
            "the size of the federation's images"
        )
    sizes = []
    for file in files[:: -(-len(files) // MOST_MEASURED)]:
        try:
            with Image.open(file) as image:
                turned = image.getexif().get(ORIENTATION, 1) >= 5  # these swap height and width
                sizes.append(image.size[::-1] if turned else image.size)
        except Exception:  # whether it can be read is not asked here
            continue
    width, height = (int(np.median(side)) for side in zip(*sizes, strict=True))
    return DataError(
        f"{what}; make all of {path} equal with --resize {width}x{height}, their median size, or a smaller one. All "
        "clients must use the same"
    )


def images_in(folder: Path) -> list[Path]:
    """Its images, at any depth."""
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())


def _pixels(file: Path, how: "Reading") -> Array:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        # From memory: asked for what a damaged file declares, a file takes that much at once
        with Image.open(io.BytesIO(file.read_bytes())) as image:
            if math.prod(image.size) > MOST_PIXELS:
                raise DataError(f"{file}: is {image.width}x{image.height}, at most {MOST_PIXELS:,} pixels are read")
            ImageOps.exif_transpose(image, in_place=True)
            shown = on_white(_of_8_bits(file, image)).convert("L" if how.grey else "RGB")
            return np.asarray(shown.resize(how.resize) if how.resize else shown)
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(
            f"{file}: is not an image that can be read: its first bytes are those of no known format"
        ) from None
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


def on_white(image: "Image") -> "Image":
    """What is transparent lets white through. Pillow would show the colour under it, often black."""
    from PIL import Image

    if "A" not in image.getbands() and "transparency" not in image.info:
        return image
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white


def _size(image: Array) -> str:
    return f"{image.shape[1]}x{image.shape[0]}"
