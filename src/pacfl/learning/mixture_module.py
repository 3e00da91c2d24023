"""A mixture as one module, for exports."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from pacfl.learning.losses import Targets


class MixtureModule(nn.Module):
    """The outputs of a mixture, in the form of those of its models: (n, ...)."""

    weights: Tensor

    def __init__(self, models: Sequence[nn.Module], weights: NDArray[np.float32], targets: Targets) -> None:
        """Models, and weights above 0."""
        super().__init__()
        self.models = nn.ModuleList(models)
        self.targets = targets
        self.register_buffer("weights", torch.tensor(weights))

    def forward(self, x: Tensor) -> Tensor:
        """As `mixture.mixed`."""
        own = torch.stack([model(x) for model in self.models], dim=-1)  # (n, ..., k)
        if self.targets == "values":
            return (own * self.weights).sum(dim=-1)
        shares = self.weights.log()
        if self.targets == "classes":
            return torch.logsumexp(F.log_softmax(own, dim=1) + shares, dim=-1)
        there, absent = (torch.logsumexp(F.logsigmoid(sign * own) + shares, dim=-1) for sign in (1, -1))
        return there - absent
