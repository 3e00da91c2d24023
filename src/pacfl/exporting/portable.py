"""A model whose first step is its preprocessing: it takes samples as the data set has them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pacfl.data.preprocessing import Preprocessing


class Portable(nn.Module):
    """Samples (n, *shape), float32 or int64 -> the outputs of the model (n, ...). Byte values are floats 0..255."""

    mean: Tensor
    mean_rest: Tensor
    factor: Tensor

    def __init__(self, model: nn.Module, preprocessing: Preprocessing) -> None:
        """Put the preprocessing before the model."""
        super().__init__()
        self.model = model
        self.layout = preprocessing.layout
        self.normalises = preprocessing.mean is not None
        if preprocessing.mean is not None and preprocessing.factor is not None:
            # The mean in two parts, so that float32 loses nothing where samples are far from 0 and close together
            high = preprocessing.mean.astype(np.float32)
            self.register_buffer("mean", torch.tensor(high))
            self.register_buffer("mean_rest", torch.tensor((preprocessing.mean - high).astype(np.float32)))
            self.register_buffer("factor", torch.tensor(preprocessing.factor.astype(np.float32)))

    def forward(self, samples: Tensor) -> Tensor:
        """The outputs of the model for samples as the data set has them."""
        x = (samples - self.mean - self.mean_rest) * self.factor if self.normalises else samples
        if self.layout == "hwc":
            x = x.permute(0, 3, 1, 2).contiguous()
        elif self.layout == "hw":
            x = x.unsqueeze(1)
        outputs: Tensor = self.model(x)
        return outputs


def portable(module: nn.Module, preprocessing: Preprocessing) -> Portable:
    """The model for inference, its weights unchanged."""
    return Portable(module, preprocessing).eval().requires_grad_(False)


def examples(preprocessing: Preprocessing, n: int, seed: int = 0) -> NDArray[np.float32 | np.int64]:
    """Random samples of the kind that a model takes, (n, *shape); none of anybody's data."""
    rng = np.random.default_rng(seed)
    size = (n, *preprocessing.shape)
    if preprocessing.dtype == "int64":
        return rng.integers(0, 2, size)  # every vocabulary has so many tokens
    if preprocessing.dtype == "uint8":
        return rng.integers(0, 256, size).astype(np.float32)
    x = rng.normal(size=size)
    if preprocessing.mean is not None and preprocessing.factor is not None:
        varies = preprocessing.factor > 0
        x = preprocessing.mean + np.divide(x, preprocessing.factor, out=np.zeros_like(x), where=varies)
    return x.astype(np.float32)
