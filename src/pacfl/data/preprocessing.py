"""What is done to a sample before a model takes it, as values that a file can hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.data.dataset import Dataset
from pacfl.data.normalisation import Normalisation
from pacfl.errors import DataError

SampleType = Literal["uint8", "float32", "int64"]
Layout = Literal["hw", "hwc", "input"]  # height and width; with channels last; as the model takes it

_AXES: Final[Mapping[Layout, int | None]] = {"hw": 2, "hwc": 3, "input": None}  # of one sample


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """From samples as a data set has them to the input of a model: (sample - mean) factor, then channels first.

    shape and dtype are those of one sample before it. mean and factor are broadcast against it; both are None for
    samples that are not normalised. Layout hw becomes (1, h, w), hwc becomes (channels, h, w), input stays.
    """

    shape: tuple[int, ...]
    dtype: SampleType
    layout: Layout
    mean: NDArray[np.float64] | None = None
    factor: NDArray[np.float64] | None = None  # 0 for columns that are constant in training

    def __post_init__(self) -> None:
        if _AXES[self.layout] not in (None, len(self.shape)):
            raise DataError(f"samples of layout {self.layout} have {_AXES[self.layout]} axes, got shape {self.shape}")
        if (self.mean is None) != (self.factor is None):
            raise DataError("a preprocessing has both a mean and a factor, or none of them")

    @classmethod
    def of(cls, dataset: Dataset, normalisation: Normalisation) -> "Preprocessing":
        """What was done to the samples of one source of a data set."""
        layout: Layout = {2: "hw", 3: "hwc"}.get(len(dataset.shape), "input")  # type: ignore[assignment]  # by axes
        dtype: Any = str(dataset.x_train.dtype)
        if normalisation.mean is None or normalisation.scale is None:
            unit = None if dtype != "uint8" else (np.zeros(()), np.array(normalisation.unit))
            return cls(dataset.shape, dtype, layout, *(unit or (None, None)))
        moments = normalisation.mean / normalisation.unit, normalisation.unit / normalisation.scale
        return cls(dataset.shape, "float32" if dtype == "int64" else dtype, layout, *moments)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input of the model."""
        if self.layout == "hwc":
            return (self.shape[2], *self.shape[:2])
        return (1, *self.shape) if self.layout == "hw" else self.shape

    def apply(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Samples (n, *shape) -> inputs of the model (n, *input_shape), float32 or int64; computed in float64."""
        x = self.checked(samples)
        if self.mean is not None and self.factor is not None:
            x = ((x.astype(np.float64) - self.mean) * self.factor).astype(np.float32)
        if self.layout == "hwc":
            x = np.moveaxis(x, -1, 1)
        return np.ascontiguousarray(x[:, None] if self.layout == "hw" else x)

    def checked(self, samples: ArrayLike) -> NDArray[Any]:
        """Samples as files of models take them: float32, or int64 for tokens. What they cannot mean is refused."""
        x = np.asarray(samples)
        if x.dtype.kind not in "uifb" or x.shape[1:] != self.shape or x.ndim != len(self.shape) + 1:
            raise DataError(f"the model takes samples of shape {self.described()}, got shape {x.shape} of {x.dtype}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise DataError("samples must be finite, got NaN or infinity; drop or fill such samples")
        if self.dtype == "float32":
            return x.astype(np.float32)
        whole = x.dtype.kind in "uib" or bool((x == np.rint(x)).all())
        if self.dtype == "int64" and not whole:
            raise DataError("the model takes integers, such as token ids; got numbers with fractions")
        if self.dtype == "uint8" and x.size and (not whole or x.min() < 0 or x.max() > 255):
            raise DataError(
                f"the model takes pixels of 8 bits, integers from 0 to 255; got {x.dtype} from {x.min():g} to "
                f"{x.max():g}; scale and round them"
            )
        return x.astype(np.int64 if self.dtype == "int64" else np.float32)

    def described(self) -> str:
        """The shape of a batch, for messages.

        >>> Preprocessing((28, 28), "uint8", "hw").described()
        '(n, 28, 28), uint8'
        """
        return f"({', '.join(['n', *map(str, self.shape)])}), {self.dtype}"

    def content(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "shape": list(self.shape),
            "dtype": self.dtype,
            "layout": self.layout,
            "mean": None if self.mean is None else self.mean.tolist(),
            "factor": None if self.factor is None else self.factor.tolist(),
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "Preprocessing":
        """The preprocessing that plain values describe."""
        dtype, layout = content["dtype"], content["layout"]
        if dtype not in get_args(SampleType) or layout not in _AXES:
            raise DataError(f"samples of type {dtype!r} and layout {layout!r} are not known to this release of pacfl")
        moments = (None if content[key] is None else np.array(content[key], np.float64) for key in ("mean", "factor"))
        return cls(tuple(map(int, content["shape"])), dtype, layout, *moments)
