"""Styles of images: the same objects, photographed or drawn otherwise, so that features shift and labels do not.

All but one work on grey images too. Values stay within the range that the data have.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Pixels
from pacfl.errors import DataError

Style = Literal["plain", "negative", "faded", "blurred", "outlined", "swapped"]
STYLES: Final[tuple[Style, ...]] = get_args(Style)

Floats = NDArray[np.float32]
Range = tuple[np.float32, np.float32]  # black and white


def restyled(style: Style, dataset: Dataset) -> Callable[[Pixels], Pixels]:
    """The function of images (n, h, w) or (n, h, w, channels) that gives them a style."""
    if len(dataset.shape) == 1:
        raise DataError(f"{dataset.name}: a table has no style; groups of tables differ by permute-labels")
    if style == "swapped" and (len(dataset.shape) == 2 or dataset.shape[2] == 1):
        raise DataError(
            f"{dataset.name}: grey images have no colours to swap; use another style than 'swapped', such as 'negative'"
        )
    x = dataset.x_train
    black, white = (0, 255) if x.dtype == np.uint8 else (x.min(), x.max())
    change, between = _CHANGES[style], (np.float32(black), np.float32(white))
    return lambda images: change(images.astype(np.float32), between).astype(images.dtype)


def _negative(x: Floats, between: Range) -> Floats:
    """Black becomes white."""
    return between[0] + between[1] - x


def _faded(x: Floats, between: Range) -> Floats:
    """Half the contrast, around the middle of the range."""
    middle = np.float32((between[0] + between[1]) / 2)
    return (x + middle) * np.float32(0.5)


def _blurred(x: Floats, between: Range) -> Floats:  # noqa: ARG001 - as every style
    """Out of focus, by one pixel."""
    from scipy import ndimage  # only here: it takes a while to import

    blurred: Floats = ndimage.gaussian_filter(x, (0, 1, 1, 0)[: x.ndim], mode="nearest")
    return blurred


def _outlined(x: Floats, between: Range) -> Floats:
    """Edges alone: by how much each pixel is above the least of its neighbours."""
    from scipy import ndimage

    darkest: Floats = ndimage.grey_erosion(x, size=(1, 3, 3, 1)[: x.ndim], mode="nearest")
    return x - darkest + between[0]


def _swapped(x: Floats, between: Range) -> Floats:  # noqa: ARG001
    """Red becomes blue: the channels in reverse order."""
    return x[..., ::-1]


_CHANGES: Final[Mapping[Style, Callable[[Floats, Range], Floats]]] = {
    "plain": lambda x, _: x,
    "negative": _negative,
    "faded": _faded,
    "blurred": _blurred,
    "outlined": _outlined,
    "swapped": _swapped,
}
