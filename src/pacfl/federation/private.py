"""What a client sends that hides its samples, or its update."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.learning.randomness import stream
from pacfl.privacy import PrivateSignature, private_signature, secret, seeded
from pacfl.privacy.updates import hidden_update, secret_normal

Randomness = Literal["secret", "seeded"]  # seeded: reproducible, for experiments; it protects nobody


@dataclass(frozen=True)
class Promise:
    """The privacy guarantee and the settings of a signature: with others it is another signature, and costs again."""

    epsilon: float
    delta: float
    settings: tuple[object, ...]  # all else on which the signature depends


def promised(algorithm: Algorithm) -> Promise | None:
    """What an algorithm promises every sample in a signature; None if nothing, or if the noise is not secret."""
    epsilon = getattr(algorithm, "signature_epsilon", None)
    if epsilon is None or getattr(algorithm, "private_noise", "seeded") != "secret":
        return None
    chosen = (getattr(algorithm, name, None) for name in ("rank", "measure"))
    return Promise(float(epsilon), float(getattr(algorithm, "signature_delta", 0.0)), tuple(chosen))


def private_profile(
    context: ClientContext, rank: int, epsilon: float, delta: float, randomness: Randomness
) -> PrivateSignature:
    """The private signature of a client's samples."""
    seed, _, client = context.key  # not the round: a client that returns with the same data reveals nothing new
    noise = secret if randomness == "secret" else seeded(stream(seed, "signature", client))
    return private_signature(context.raw, rank, epsilon, delta, noise)


def private_upload(
    context: ClientContext, trained: Vector, start: Vector, clip: float, noise: float, randomness: Randomness
) -> Message:
    """The weights that the clipped and noisy update leads to."""
    seed, *key = context.key
    normal = secret_normal if randomness == "secret" else stream(seed, "update", *key).standard_normal
    update = trained.astype(np.float64) - start
    return {"w": (start + hidden_update(update, clip, noise, normal)).astype(np.float32)}
