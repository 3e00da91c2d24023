"""Arrays in .npy files that may be larger than memory."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.npz import array_shape


class ArrayFile:
    """An .npy file of which samples are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        """Read what its header declares, which is checked."""
        array_shape(path)
        self._path = path
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        self.shape: tuple[int, ...] = mapped.shape
        self.dtype: np.dtype[Any] = mapped.dtype

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        # Mapped anew each time: pages that were read count as memory of the process until they are unmapped
        return np.array(np.load(self._path, mmap_mode="r", allow_pickle=False)[rows], order="C")
