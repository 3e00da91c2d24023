"""The eager engine: any nn.Module, one thread. Every other engine must agree with it."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from pacfl.errors import ModelError
from pacfl.learning.client_context import NO_TERMS, GradientTerms, LocalTraining, Samples
from pacfl.learning.model import Model, Vector

EVALUATION_BATCH = 500


class Eager:
    """A module whose weights and gradients are views of two flat tensors: a step is a few operations on vectors."""

    batch_dependent = True

    def __init__(self, model: Model, device: str = "cpu") -> None:
        """Build the module on the device. Only the CPU is tested."""
        self._device = torch.device(device)
        self._module = model.build().to(self._device)
        self._w = torch.empty(len(model.initial), device=self._device)
        self._g = torch.zeros_like(self._w)
        start = 0
        for p in self._module.parameters():
            end = start + p.numel()
            p.data = self._w[start:end].view_as(p)
            p.grad = self._g[start:end].view_as(p)
            start = end

    def sgd(
        self,
        w: Vector,
        samples: Samples,
        order: NDArray[np.int64],
        learning: LocalTraining,
        terms: GradientTerms = NO_TERMS,
        seed: int = 0,
    ) -> Vector:
        """Train from w on batches in the given order."""
        x, y = self._tensors(samples)
        mu, anchor = (terms.prox[0], self._tensor(terms.prox[1])) if terms.prox is not None else (0.0, None)
        correction = None if terms.gradient_correction is None else self._tensor(terms.gradient_correction)
        velocity = torch.zeros_like(self._w)
        self._w.copy_(self._tensor(w))
        self._module.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # for random layers such as dropout
            for rows in _batches(order, learning.batch_size):
                g = self._batch_gradient(x[rows], y[rows], terms.inner_step)
                if learning.weight_decay:
                    g.add_(self._w, alpha=learning.weight_decay)
                if anchor is not None:
                    g.add_(self._w - anchor, alpha=mu)
                if correction is not None:
                    g.add_(correction)
                velocity.mul_(learning.momentum).add_(g)
                self._w.sub_(velocity, alpha=learning.lr)
        return np.array(self._w.cpu().numpy())

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Gradient of the mean loss over all samples."""
        x, y = self._tensors(samples)
        self._w.copy_(self._tensor(w))
        self._module.train()
        total = torch.zeros_like(self._g)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # for random layers: the same arguments give the same gradient
            for start in range(0, len(y), EVALUATION_BATCH):
                batch = slice(start, start + EVALUATION_BATCH)
                total.add_(self._gradient(x[batch], y[batch]), alpha=len(y[batch]) / len(y))
        return np.array(total.cpu().numpy())

    @torch.no_grad()
    def evaluate(self, w: Vector, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For every sample: the outputs of the model, and the loss."""
        self._w.copy_(self._tensor(w))
        self._module.eval()
        outputs, losses = [], []
        for start in range(0, len(samples.y), EVALUATION_BATCH):
            batch = slice(start, start + EVALUATION_BATCH)
            x, y = self._tensors(Samples(samples.x[batch], samples.y[batch]))
            logits = self._module(x)
            outputs.append(logits.cpu().numpy())
            losses.append(cross_entropy(logits, y, reduction="none").cpu().numpy())
        return np.concatenate(outputs), np.concatenate(losses)

    def _batch_gradient(self, x: Tensor, y: Tensor, inner_step: float | None) -> Tensor:
        if inner_step is None:
            return self._gradient(x, y)
        half = max(1, len(y) // 2)
        start = self._w.clone()
        self._w.sub_(self._gradient(x[:half], y[:half]), alpha=inner_step)
        ahead = self._gradient(x[half:], y[half:]) if len(y) > 1 else self._gradient(x, y)
        self._w.copy_(start)
        return ahead

    def _gradient(self, x: Tensor, y: Tensor) -> Tensor:
        self._g.zero_()
        loss: Tensor = cross_entropy(self._module(x), y)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return self._g

    def _tensors(self, samples: Samples) -> tuple[Tensor, Tensor]:
        return self._tensor(samples.x), self._tensor(samples.y)

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self._device)


def _batches(order: NDArray[np.int64], size: int) -> Iterator[Tensor]:
    for epoch in order:
        rows = torch.from_numpy(epoch)
        for start in range(0, len(rows), size):
            yield rows[start : start + size]


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ModelError(f"device {device!r} cannot be used here ({first}); use 'cpu'") from None


def check_outputs(module: nn.Module, samples: Samples, n_classes: int) -> None:
    """Refuse a model that does not turn samples into one logit per class at least, before training starts.

    One sample is sent through, in training and in evaluation: the last batch of an epoch may have no more.
    """
    shape = ", ".join(map(str, samples.x.shape[1:]))
    expected = f"it must take one float32 tensor of shape (n, {shape}) and return logits of shape (n, {n_classes})"
    x = torch.tensor(samples.x[:1])  # a copy, for the samples may be read-only
    for training in (True, False):
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                outputs = module.train(training)(x)
        except Exception as error:  # whatever a forward function may raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise ModelError(
                f"the model failed on one sample of shape ({shape}): {reason}; {expected}. {_hint(module, error)}"
            ) from error
        if not isinstance(outputs, Tensor):
            raise ModelError(f"the model returns a {type(outputs).__name__}; {expected}. Return the logits alone")
        if outputs.ndim != 2 or len(outputs) != 1 or outputs.shape[1] < n_classes:
            returned = f"a tensor of shape {tuple(outputs.shape)} for one sample"
            raise ModelError(f"the model returns {returned}, the data have {n_classes} classes; {expected}")


def _hint(module: nn.Module, error: Exception) -> str:
    """What to do about a failure of the forward function, by its likely cause."""
    layers = list(module.modules())
    if any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in layers):
        return "Samples are normalised numbers, never token ids: embed tokens before, and give the vectors as samples"
    if isinstance(error, TypeError):
        return "If it has several inputs, concatenate the inputs in one array and split them in forward"
    if isinstance(error, ValueError) and any(isinstance(layer, _BatchNorm) for layer in layers):
        return "A batch of one sample has no batch statistics: use nn.GroupNorm(1, channels) for batch normalisation"
    return "Change the model or the shape of the samples"
