"""What a client sends that hides its samples, or its update."""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from pacfl.errors import ConfigError
from pacfl.federation.aggregation import Aggregation, Randomness
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.randomness import stream
from pacfl.privacy import PrivateSignature, private_class_signatures, private_signature, secret, seeded
from pacfl.privacy.updates import hidden_update, secret_normal


@dataclass(frozen=True)
class Promise:
    """The privacy guarantee and the settings of a signature: with others it is another signature, and costs again."""

    epsilon: float
    delta: float
    settings: tuple[object, ...]  # all else on which the signature depends
    of_labels: bool = field(default=False, repr=False)  # whether it depends on labels as on samples


def private_profile(
    context: ClientContext, rank: int, epsilon: float, delta: float, randomness: Randomness, with_classes: bool
) -> PrivateSignature:
    """The private signature of a client's samples, and of their classes: those that the model has outputs for."""
    seed, _, client = context.key  # not the round: a client that returns with the same data reveals nothing new
    noise = secret if randomness == "secret" else seeded(stream(seed, "signature", client))
    if not with_classes:
        return private_signature(context.raw, rank, epsilon, delta, noise)
    outputs, _ = context.engine.evaluate(context.model.initial, context.subset(np.arange(1)).train)
    agreed = range(outputs.shape[1])
    return private_class_signatures(context.raw, context.train.y, agreed, rank, epsilon, delta, noise)


def private_upload(
    context: ClientContext, up: Message, start: Message, public: Collection[str], aggregation: Aggregation
) -> Message:
    """An upload whose update, over all arrays that are not public together, is clipped and noisy where asked.

    start: what arrays started from; those that it lacks started from 0.
    """
    hidden = [name for name in up if name not in public]
    if aggregation.clip_norm is None or not hidden:
        return up
    for name in hidden:
        if up[name].dtype.kind != "f":
            raise ConfigError(
                f"clip-norm cannot hide the upload {name!r}: it is {up[name].dtype}, and only floating-point numbers "
                "can be clipped; leave out clip-norm, or declare it in public_uploads if it depends on no sample"
            )
    seed, *key = context.key
    normal = secret_normal if aggregation.noise == "secret" else stream(seed, "update", *key).standard_normal
    updates = [np.ravel(up[name].astype(np.float64) - start.get(name, 0.0)) for name in hidden]
    private = hidden_update(np.concatenate(updates), aggregation.clip_norm, aggregation.noise_multiplier, normal)
    parts = np.split(private, np.cumsum([update.size for update in updates])[:-1])
    sent = {
        name: (start.get(name, 0.0) + part.reshape(up[name].shape)).astype(up[name].dtype)
        for name, part in zip(hidden, parts, strict=True)
    }
    return {**up, **sent}
