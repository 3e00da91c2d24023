"""What a client sends that hides its samples, its directions, or its update."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pacfl.errors import ConfigError
from pacfl.federation.aggregation import Aggregation, Randomness
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.randomness import stream
from pacfl.privacy import PrivateSignature, private_class_signatures, private_signature, secret, seeded
from pacfl.privacy.keyed import keyed
from pacfl.privacy.updates import hidden_update, secret_normal
from pacfl.signatures.keys import key_id

KEY_ID: Final = "key_id"  # in profiles whose directions are keyed: (1,) int64


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


def keyed_profile(profile: Message, key: bytes) -> Message:
    """A profile with signatures whose directions only the clients' key shows, and the key's id."""
    if KEY_ID in profile:
        raise ConfigError("directions of this profile are keyed already; give the key once")
    directions = {"basis": keyed(profile["basis"], key).astype(np.float32)}
    if "class_directions" in profile:
        of_classes = keyed(profile["class_directions"], key, axis=1)
        directions["class_directions"] = of_classes.astype(profile["class_directions"].dtype)
    return {**profile, **directions, KEY_ID: np.frombuffer(bytes.fromhex(key_id(key)), dtype=">i8").astype(np.int64)}


def used_key(profile: Message) -> str | None:
    """The id of the key of a profile's directions; None if they are plain."""
    return profile[KEY_ID].astype(">i8").tobytes().hex() if KEY_ID in profile else None


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
