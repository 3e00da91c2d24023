"""What a client sends that hides its samples, or its update."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.learning.randomness import stream
from pacfl.privacy import PrivateSignature, private_signature, secret, seeded
from pacfl.privacy.updates import hidden_update, secret_normal

Randomness = Literal["secret", "seeded"]  # seeded: reproducible, for experiments; it protects nobody


def check_hiding(clip: float | None, noise: float) -> None:
    """Refuse a clip or a noise that would hide nothing, though it was asked for."""
    if clip is None and noise:
        raise ConfigError(f"noise_multiplier = {noise} hides nothing without clip_norm; give both")
    if clip is not None and not clip > 0:
        raise ConfigError(f"clip_norm must be positive, got {clip}")


@dataclass(frozen=True)
class Promise:
    """The privacy guarantee and the settings of a signature: with others it is another signature, and costs again."""

    epsilon: float
    delta: float
    settings: tuple[object, ...]  # all else on which the signature depends


def promised(algorithm: Algorithm) -> Promise | None:
    """What an algorithm promises to every sample in a signature; None if nothing, or if the noise is no secret."""
    epsilon = getattr(algorithm, "signature_epsilon", None)
    if epsilon is None or getattr(algorithm, "private_noise", "seeded") != "secret":
        return None
    chosen = (getattr(algorithm, name, None) for name in ("rank", "measure"))
    return Promise(float(epsilon), float(getattr(algorithm, "signature_delta", 0.0)), tuple(chosen))


def private_profile(
    context: ClientContext, rank: int, epsilon: float, delta: float, randomness: Randomness
) -> PrivateSignature:
    """The private signature of a client's samples."""
    seed, _, client = context.key  # not the round: who comes back with the same data tells nothing new
    noise = secret if randomness == "secret" else seeded(stream(seed, "signature", client))
    return private_signature(context.raw, rank, epsilon, delta, noise)


def private_upload(
    context: ClientContext, trained: Vector, start: Vector, clip: float | None, noise: float, randomness: Randomness
) -> Message:
    """The trained weights, or, with a clip, those that the hidden update leads to."""
    if clip is None:
        return {"w": trained}
    normal = (
        secret_normal if randomness == "secret" else stream(context.key[0], "update", *context.key[1:]).standard_normal
    )
    update = trained.astype(np.float64) - start
    return {"w": (start + hidden_update(update, clip, noise, normal)).astype(np.float32)}
