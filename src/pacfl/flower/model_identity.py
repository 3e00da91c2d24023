"""The model is part of a federation's identity: names and shapes of what is in its vector of weights."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pacfl.errors import ModelError
from pacfl.learning.model import Model, slots

MOST: Final = 4  # differences that a message names
Shapes = Mapping[str, list[int]]


@lru_cache(maxsize=4)
def shapes(model: Model) -> Shapes:
    """The shape of every array of weights, by the name that `state_dict()` gives it."""
    module = model.build()
    names = {layer: name for name, layer in module.named_modules()}
    return {".".join(filter(None, (names[layer], own))): list(tensor.shape) for layer, own, tensor in slots(module)}


@lru_cache(maxsize=4)
def as_text(model: Model) -> str:
    """The shapes for the header of a message."""
    return json.dumps(shapes(model))


def check(expected: object, model: Model) -> None:
    """Refuse to train a model for a server that has another one."""
    try:
        known = json.loads(str(expected))
    except ValueError:
        raise ModelError(f"the server describes its model as {expected!r}") from None
    if found := differences(known, shapes(model)):
        raise ModelError(
            f"the model of this site is not that of the server: {found}; install the same module with build_model, and "
            "the same versions of its libraries"
        )


def differences(known: Shapes, here: Shapes) -> str:
    """What differs between the model of a federation and the one here; empty if nothing does."""
    lines = [
        *(
            f"{name} is {_size(here[name])}, expected {_size(known[name])}"
            for name in known
            if name in here and list(known[name]) != list(here[name])
        ),
        *(f"{name} ({_size(known[name])}) is missing" for name in known if name not in here),
        *(f"{name} ({_size(here[name])}) is new" for name in here if name not in known),
    ]
    if not lines and list(known) != list(here):
        lines = [f"its layers are in another order: {', '.join(here)}, expected {', '.join(known)}"]
    more = f", and {len(lines) - MOST} more" if len(lines) > MOST else ""
    return "; ".join(lines[:MOST]) + more


def _size(shape: list[int]) -> str:
    return "x".join(map(str, shape)) or "one number"
