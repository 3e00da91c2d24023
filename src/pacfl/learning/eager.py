"""The eager engine: any nn.Module, one thread. Every other engine must agree with it."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pacfl.errors import ModelError
from pacfl.learning.client_context import NO_TERMS, GradientTerms, LocalStep, LocalTraining, Samples
from pacfl.learning.losses import LOSSES, Loss
from pacfl.learning.model import Model, Vector, has_statistics, slots
from pacfl.learning.optimisers import find_optimiser
from pacfl.learning.randomness import batches

EVALUATION_BATCH = 500
CROSS_ENTROPY = LOSSES["cross-entropy"]


class Eager:
    """A module whose weights and gradients are views of two flat tensors: a step is a few operations on vectors."""

    batch_dependent = True

    def __init__(self, model: Model, device: str = "cpu", loss: Loss = CROSS_ENTROPY) -> None:
        """Build the module on the device. Only the CPU is tested."""
        self._loss = loss
        self._device = torch.device(device)
        self._module = model.build().to(self._device)
        self._w = torch.empty(len(model.initial), device=self._device)
        self._g = torch.zeros_like(self._w)
        self._least_batch = model.least_batch
        self._statistics = self._tensor(model.statistics) if model.statistics.any() else None
        self._fixed = torch.zeros_like(self._w, dtype=torch.bool)  # what no step changes
        start = 0
        for layer, name, tensor in slots(self._module):
            end = start + tensor.numel()
            view = self._w[start:end].view_as(tensor)
            if isinstance(tensor, nn.Parameter):
                tensor.data = view
                tensor.grad = self._g[start:end].view_as(tensor)
            else:
                setattr(layer, name, view)
            self._fixed[start:end] = not tensor.requires_grad
            start = end

    @torch.enable_grad()  # also where the caller only wants predictions, of a personal model
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
        weight = None if terms.sample_weight is None else self._tensor(terms.sample_weight)
        mu, anchor = (terms.prox[0], self._tensor(terms.prox[1])) if terms.prox is not None else (0.0, None)
        correction = None if terms.gradient_correction is None else self._tensor(terms.gradient_correction)
        fixed = self._fixed if terms.mask is None else self._fixed | ~self._tensor(terms.mask)
        some_fixed = bool(fixed.any())
        optimiser = find_optimiser(learning.optimiser)
        self._w.copy_(self._tensor(w))
        step = optimiser.start(self._w, learning)

        def gradient(rows: Tensor) -> Tensor:
            weighed = None if weight is None else weight[rows]
            g = self._gradient(x[rows], y[rows], weighed, terms.local_step)
            return g.masked_fill_(fixed, 0) if some_fixed else g

        self._module.train()
        with torch.random.fork_rng(devices=[]):
            self._seed(seed)
            for rows in _batches(order, learning.batch_size, self._least_batch):
                g = self._batch_gradient(gradient, rows, terms.inner_step)
                if learning.weight_decay and not optimiser.decoupled:
                    g.add_(self._w, alpha=learning.weight_decay)
                if anchor is not None:
                    g.add_(self._w - anchor, alpha=mu)
                if correction is not None:
                    g.add_(correction)
                if not some_fixed:
                    step(self._w, g)
                    continue
                before = self._w.clone()
                step(self._w, g.masked_fill_(fixed, 0))
                self._w.copy_(torch.where(fixed, before, self._w))  # whatever the optimiser does to weights
        trained = np.array(self._w.cpu().numpy())
        # A mask also excludes statistics, which change without a step
        return trained if terms.mask is None or self._statistics is None else np.where(terms.mask, trained, w)

    @torch.enable_grad()
    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Gradient of the mean loss over all samples."""
        x, y = self._tensors(samples)
        self._w.copy_(self._tensor(w))
        self._module.train()
        total = torch.zeros_like(self._g)
        with torch.random.fork_rng(devices=[]):
            self._seed(0)  # the same arguments give the same gradient
            for batch in batches(len(y), EVALUATION_BATCH, self._least_batch):
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
            predicted = self._module(x)
            outputs.append(predicted.reshape(len(y), -1).cpu().numpy())
            losses.append(self._loss.per_sample(predicted, y).cpu().numpy())
        return np.concatenate(outputs), np.concatenate(losses)

    def _seed(self, seed: int) -> None:
        """Decide what random layers such as dropout draw."""
        if self._device.type == "cpu":
            # The stream of torch.manual_seed, which also seeds devices that are not used: a hundred times slower
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def _batch_gradient(self, gradient: Callable[[Tensor], Tensor], rows: Tensor, inner_step: float | None) -> Tensor:
        if inner_step is None:
            return gradient(rows)
        half = len(rows) // 2
        first, second = (rows[:half], rows[half:]) if half >= self._least_batch else (rows, rows)
        start = self._w.clone()
        self._w.sub_(gradient(first), alpha=inner_step)
        ahead = gradient(second)
        self._w.copy_(start if self._statistics is None else torch.where(self._statistics, self._w, start))
        return ahead

    def _gradient(
        self, x: Tensor, y: Tensor, weight: Tensor | None = None, local_step: LocalStep | None = None
    ) -> Tensor:
        self._g.zero_()
        if local_step is not None:
            loss = _scalar(local_step(self._module, x, y))
        elif weight is not None:
            loss = (weight * self._loss.per_sample(self._module(x), y)).mean()
        else:
            loss = self._loss.mean(self._module(x), y)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return self._g

    def _tensors(self, samples: Samples) -> tuple[Tensor, Tensor]:
        return self._tensor(samples.x), self._tensor(samples.y)

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self._device)


def _scalar(loss: Tensor) -> Tensor:
    """The loss of a local step, checked."""
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise ModelError(f"local_step must return a scalar tensor that depends on the weights, got {got}")
    return loss


def _batches(order: NDArray[np.int64], size: int, least: int) -> Iterator[Tensor]:
    for epoch in order:
        rows = torch.from_numpy(epoch)
        for batch in batches(len(rows), size, least):
            yield rows[batch]


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ModelError(f"device {device!r} cannot be used here ({first}); use 'cpu'") from None


def check_outputs(module: nn.Module, samples: Samples, n_classes: int, loss: Loss = CROSS_ENTROPY) -> int:
    """How many outputs a model has; refused if they do not fit the samples and the loss, before training starts.

    One sample is sent through, in training and in evaluation: the last batch of an epoch may have no more. A model
    with batch normalisation, whose batches have two at least, gets it twice.
    """
    n = 2 if any(isinstance(layer, _BatchNorm) and has_statistics(layer) for layer in module.modules()) else 1
    what = "one sample" if n == 1 else f"{n} samples"
    check_targets(samples.y, loss)
    kind = "int64" if samples.x.dtype.kind == "i" else "float32"
    shape = ", ".join(map(str, samples.x.shape[1:]))
    expected = f"it must take one {kind} tensor of shape (n, {shape}) and return {_outputs(samples.y, n_classes, loss)}"
    # The sample with the largest token id, for an embedding may have too few rows
    at = int(samples.x.reshape(len(samples.x), -1).max(axis=1).argmax()) if kind == "int64" else 0
    x, y = (torch.tensor(np.repeat(array[at : at + 1], n, axis=0)) for array in (samples.x, samples.y))
    for training in (True, False):
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                outputs = module.train(training)(x)
        except Exception as error:  # whatever a forward function may raise
            raise ModelError(
                f"the model failed on {what} of shape ({shape}): {_reason(error)}; {expected}. "
                f"{_hint(module, samples, error)}"
            ) from error
        if not isinstance(outputs, Tensor):
            raise ModelError(f"the model returns a {type(outputs).__name__}; {expected}. Return the outputs alone")
        returned = f"the model returns a tensor of shape {tuple(outputs.shape)} for {what}"
        if loss.targets == "classes":
            if outputs.ndim != 2 or len(outputs) != n or outputs.shape[1] < n_classes:
                raise ModelError(f"{returned}, the data have {n_classes} classes; {expected}")
        elif outputs.ndim < 1 or len(outputs) != n or outputs.numel() != y.numel():
            raise ModelError(f"{returned}, a target has {y.numel() // n} values; {expected}")
        _check_losses(loss, outputs, y)
    return int(outputs.numel()) // n


def check_targets(y: NDArray[np.generic], loss: Loss) -> None:
    """Refuse targets that are not of the loss's kind."""
    if loss.targets == "classes" and not (y.dtype.kind in "iu" and y.ndim == 1):
        raise ModelError(
            f"the loss is for classes, integers of shape (n,); the targets are {y.dtype} of shape {y.shape}; "
            "set loss to squared-error or absolute-error for numbers, to binary-cross-entropy for labels of 0 and 1"
        )
    if loss.targets == "labels" and not np.isin(y, (0, 1)).all():
        raise ModelError(
            f"the loss is for labels that are 0 or 1, the targets have {y[~np.isin(y, (0, 1))].flat[0]}; "
            "set loss to cross-entropy for classes, to squared-error for numbers"
        )


def _check_losses(loss: Loss, outputs: Tensor, y: Tensor) -> None:
    try:
        losses = loss.per_sample(outputs, y)
    except Exception as error:  # whatever a plug-in may raise
        raise ModelError(f"the loss failed on the outputs of {len(y)} samples: {_reason(error)}") from error
    if not isinstance(losses, Tensor) or losses.shape != (len(y),):
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
        raise ModelError(f"the loss must return one number for each sample, shape (n,); for n = {len(y)} it gave {got}")


def _outputs(y: NDArray[np.generic], n_classes: int, loss: Loss) -> str:
    """What a model must return."""
    if loss.targets == "classes":
        return f"logits of shape (n, {n_classes})"
    size = loss.n_outputs(y.shape[1:], n_classes)
    return f"{'logits' if loss.targets == 'labels' else 'values'} of shape (n, {size})"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _hint(module: nn.Module, samples: Samples, error: Exception) -> str:
    """What to do about a failure of the forward function, by its likely cause."""
    layers = list(module.modules())
    embeds = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in layers)
    if embeds and samples.x.dtype.kind != "i":
        return "An embedding takes token ids: give integer samples, and normalise = none"
    if embeds and isinstance(error, IndexError):
        return f"An embedding needs a row for every token id; the largest one is {samples.x.max()}"
    if not embeds and samples.x.dtype.kind == "i":
        return (
            "Integers are for models that begin with nn.Embedding; for others normalise them, or give float32 samples"
        )
    if isinstance(error, TypeError):
        return "If it has several inputs, concatenate the inputs in one array and split them in forward"
    if isinstance(error, ValueError) and any(isinstance(layer, _BatchNorm) for layer in layers):
        return "A batch of one sample has no batch statistics: let the layer track running statistics, or use GroupNorm"
    return "Change the model or the shape of the samples"
