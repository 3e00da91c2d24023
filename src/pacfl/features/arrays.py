"""Arrays in files that may be larger than memory."""

import mmap
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.npz import array_shape

SCATTERED: Final = 16  # samples that are read at once: a system maps up to 2 MB around each
SPAN: Final = 1 << 25  # bytes that are mapped at once, where samples are close to each other


class MappedArray:
    """An array in a file, of which samples are copied to memory when they are asked for."""

    def __init__(
        self, file: IO[bytes], dtype: Any, shape: tuple[int, ...], offset: int = 0, order: Literal["C", "F"] = "C"
    ) -> None:
        """The array that begins at an offset in bytes. The file may be closed afterwards."""
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._array: NDArray[Any] = np.ndarray(shape, dtype, self._map, offset, order=order)
        self.shape: tuple[int, ...] = self._array.shape
        self.dtype: np.dtype[Any] = self._array.dtype

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        if isinstance(rows, slice):
            found = np.array(self._array[rows], order="C")
            self._release()
            return found
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        order = np.argsort(rows, kind="stable")
        span = (int(rows.max(initial=0)) - int(rows.min(initial=0)) + 1) * max(self._array[:1].nbytes, 1)
        step = max(len(rows) * SPAN // span, SCATTERED)
        for start in range(0, len(rows), step):
            own = order[start : start + step]
            found[own] = self._array[rows[own]]
            self._release()
        return found

    def _release(self) -> None:
        """Pages that were read count as memory of the process until they are given back."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def array_file(path: Path) -> MappedArray:
    """The array in an .npy file, whose header is checked."""
    array_shape(path)
    header = np.load(path, mmap_mode="r", allow_pickle=False)
    order: Literal["C", "F"] = "C" if header.flags.c_contiguous else "F"
    with path.open("rb") as file:
        return MappedArray(file, header.dtype, header.shape, header.offset, order)
