"""Is a site ready? What can be said of its data and of the model before the first round."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from pacfl.errors import DataError, PacflError
from pacfl.experiment.config import Run
from pacfl.federation.client_side import ClientSide
from pacfl.flower.site import Site, client_side, load_model, load_site
from pacfl.learning.client_context import SampleSubset
from pacfl.learning.losses import find_loss
from pacfl.learning.model import Model

Level = Literal["ok", "warning", "problem"]
TRIED: Final = 4  # samples that go through the model
FEW: Final = 12  # samples: noise cannot be estimated from fewer


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, and what to do."""

    item: str
    level: Level
    what: str


def ok(item: str, what: str) -> Check:
    """All is well."""
    return Check(item, "ok", what)


def warning(item: str, what: str) -> Check:
    """It works, but somebody should look at it."""
    return Check(item, "warning", what)


def problem(item: str, what: str) -> Check:
    """The site cannot take part."""
    return Check(item, "problem", what)


def of_site(task: str, run: Run, context: Context) -> Iterator[Check]:
    """The data of a site and the model, as far as one can be looked at without the other."""
    try:
        site = load_site(task, context)
    except Exception as error:  # whatever the user's function raises
        yield problem("data", f"load_data failed: {_words(error)}; see site.config and the module {task}")
        return
    try:
        model = load_model(task, run)
    except Exception as error:
        yield problem("model", f"build_model failed: {_words(error)}")
        return
    yield from of_arrays(site)
    yield from _of_both(site, model, lambda: client_side(site, task, run, 0), run)


def of_arrays(site: Site) -> Iterator[Check]:
    """Numbers of samples, their shapes, and whether they are finite."""
    n, x_train, x_test = len(site.x_train), np.asarray(site.x_train), np.asarray(site.x_test)
    shape = "x".join(map(str, x_train.shape[1:]))
    yield ok("data", f"{n:,} training samples and {len(x_test):,} test samples of shape {shape}")
    if n < FEW:
        yield warning(
            "data", f"{n} training samples are too few to distinguish this site from others; expected {FEW} or more"
        )
    if not len(x_test):
        yield warning("data", "there are no test samples, so the site is not evaluated")
    elif x_test.shape[1:] != x_train.shape[1:]:
        yield problem("data", f"test samples have shape {x_test.shape[1:]}, training samples {x_train.shape[1:]}")
    arrays = {"x_train": site.x_train, "y_train": site.y_train, "x_test": site.x_test, "y_test": site.y_test}
    broken = [_not_finite(name, np.asarray(x)) for name, x in {**arrays, "raw": site.raw}.items() if x is not None]
    found = [words for words in broken if words]
    if found:
        yield problem("finite", f"{'; '.join(found)}: fill them in, or leave out these samples")
    else:
        yield ok("finite", "no NaN and nothing infinite")


def _of_both(site: Site, model: Model, side: Callable[[], ClientSide], run: Run) -> Iterator[Check]:
    """The model with samples of the site."""
    targets = find_loss(run.learning.loss).targets
    try:
        n_outputs = _outputs(model, np.asarray(site.x_train)[:TRIED])
    except Exception as error:  # of any layer
        shape = np.asarray(site.x_train).shape[1:]
        yield problem("model", f"the model does not take samples of shape {shape}: {_words(error)}")
        return
    wrong = list(_of_classes(site, n_outputs)) if targets == "classes" else []
    yield from wrong
    if any(one.level == "problem" for one in wrong):
        return
    try:
        ready = side()
        rows = np.arange(min(TRIED, len(ready.pool.train.y)))
        _, losses = ready.engine.evaluate(model.initial, SampleSubset(ready.pool.train, rows))
        ready.metrics.check(n_outputs)
        if not np.isfinite(losses).all():
            raise DataError("its loss is not finite; scale the samples, or look for extreme values in them")
    except Exception as error:
        yield problem("model", f"the model cannot be trained on these samples: {_words(error)}")
        return
    yield ok("model", f"{len(model.initial):,} weights, {n_outputs} outputs, mean loss {losses.mean():.3g} untrained")


def _of_classes(site: Site, n_outputs: int) -> Iterator[Check]:
    labels = np.unique(np.concatenate([np.asarray(y).ravel() for y in (site.y_train, site.y_test)]))
    beyond = labels[(labels < 0) | (labels >= n_outputs)]
    if len(beyond):
        yield problem(
            "classes",
            f"there are labels {_listed(beyond)}, but the model has {n_outputs} outputs: number the classes from 0 to "
            f"{n_outputs - 1}, the same at all sites",
        )
        return
    classes, counts = np.unique(np.asarray(site.y_train), return_counts=True)
    if len(classes) == 1:
        yield warning("classes", f"all training samples are of class {_listed(classes)}")
    elif len(unseen := np.setdiff1d(site.y_test, classes)):
        yield warning("classes", f"no training sample is of class {_listed(unseen)}, which the test samples have")
    else:
        yield ok("classes", f"{len(classes)} of {n_outputs}, with {counts.min():,} to {counts.max():,} samples each")


def _outputs(model: Model, x: NDArray[Any]) -> int:
    """The number of outputs for a sample."""
    import torch

    module = model.build().eval()
    embeds = any(isinstance(layer, torch.nn.Embedding | torch.nn.EmbeddingBag) for layer in module.modules())
    with torch.no_grad():
        outputs = module(torch.from_numpy(np.asarray(x, dtype=np.int64 if embeds else np.float32)))
    return int(outputs[0].numel())


def _not_finite(name: str, array: NDArray[Any]) -> str:
    if array.dtype.kind != "f":
        return ""
    with np.errstate(over="ignore"):
        broken = ~np.isfinite(array.astype(np.float32))  # as the model takes them
    if not broken.any():
        return ""
    first = np.flatnonzero(broken.reshape(len(array), -1).any(axis=1))[0]
    return f"{name} has {int(broken.sum()):,} values that are NaN or infinite, first in sample {first}"


def _listed(values: NDArray[Any]) -> str:
    return ", ".join(f"{v:g}" for v in values[:5]) + (", ..." if len(values) > 5 else "")


def _words(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if isinstance(error, PacflError) else f"{type(error).__name__}: {words}"
