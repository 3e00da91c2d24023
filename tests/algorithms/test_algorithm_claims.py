"""Every personalised method does what it claims, and FedAvg does not: whoever removes its idea fails here."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.learning.model import Vector
from tests.small_federation import LEARNING, SEED, lively, local, model, model_of, pool, same, side

CLIENTS = range(6)
CUT = model().body_size(1)  # the last layer is the head


@dataclass(frozen=True)
class Seen:
    """What clients have after three rounds of all of them."""

    shared: Vector  # the first model of the server
    received: dict[ClientId, Vector]
    personal: dict[ClientId, Vector]
    tuned: dict[ClientId, Vector]  # the received model after the local epochs
    memory: dict[ClientId, Message]


@cache
def seen(name: str) -> Seen:
    algorithm, clients, own = lively(name), side(lively(name)), model_of(lively(name))
    with local(algorithm, own, pool(), LEARNING, SEED) as backend:
        plan = round_plans(Schedule(rounds=3, participation=1.0), 6, SEED)
        *_, last = rounds(algorithm, backend, algorithm.init_server(own), plan)
        memory = dict(backend.memory)
    down = {c: algorithm.download(last.state, c) for c in CLIENTS}
    known = {c: memory.get(c, {}) for c in CLIENTS}
    received = {c: clients.received(3, c, down[c], known[c]) for c in CLIENTS}
    personal = {c: clients.personal(3, c, down[c], known[c]) for c in CLIENTS}
    tuned = {c: clients._context(3, c).sgd(received[c], purpose="personal")[0] for c in CLIENTS}
    return Seen(last.state.models[0], received, personal, tuned, known)


def differ(vectors: list[Vector]) -> bool:
    return len({w.tobytes() for w in vectors}) == len(vectors)


def far(one: dict[ClientId, Vector], other: dict[ClientId, Vector]) -> float:
    return float(np.mean([np.linalg.norm(one[c] - other[c]) for c in CLIENTS]))


def own_heads_on_one_body(s: Seen) -> bool:
    bodies = [w[:CUT] for w in s.received.values()]
    return all(same(body, s.shared) for body in bodies) and differ([w[CUT:] for w in s.received.values()])


def between(s: Seen) -> bool:
    """Whether the last layer of every received model is between the shared one and the client's own."""
    shared, inner = s.shared[CUT:], []
    for c in CLIENTS:
        if "w" not in s.memory[c] or not same(s.received[c][:CUT], s.shared[:CUT]):
            return False
        low, high = np.minimum(shared, own := s.memory[c]["w"][CUT:]), np.maximum(shared, own)
        inner.append((low - 1e-6 <= (w := s.received[c][CUT:])).all() and (w <= high + 1e-6).all())
    return all(inner) and differ([w[CUT:] for w in s.received.values()])


def mixed(s: Seen) -> bool:
    """Whether personal models are mixtures, with weights that clients have learned."""
    if not all("alpha" in s.memory[c] for c in CLIENTS):
        return False
    alpha = {c: s.memory[c]["alpha"][0] for c in CLIENTS}
    parts = {c: alpha[c] * s.memory[c]["v"] + (1 - alpha[c]) * s.received[c] for c in CLIENTS}
    return far(s.personal, parts) < 1e-6 and len(set(alpha.values())) == 6 and far(parts, s.received) > 1e-3


def own_normalisation(s: Seen) -> bool:
    """Whether received models differ in their normalisation, and in nothing else."""
    own = model("fedbn").normalisation
    if any(w.shape != own.shape for w in s.received.values()):
        return False
    return differ([w[own] for w in s.received.values()]) and all(same(w[~own], s.shared) for w in s.received.values())


CLAIMS: dict[str, Callable[[Seen], bool]] = {
    "ditto": lambda s: all(same(s.personal[c], s.memory[c].get("v")) for c in CLIENTS),
    "apfl": mixed,
    "fedper": own_heads_on_one_body,
    "fedrep": lambda s: (
        own_heads_on_one_body(s)
        and all(same(s.personal[c][:CUT], s.shared) for c in CLIENTS)
        and differ([*s.personal.values()])
    ),
    "fedbabu": lambda s: (
        all(same(w[CUT:], model().initial[CUT:]) for w in s.received.values())
        and differ([w[CUT:] for w in s.personal.values()])
    ),
    "pfedme": lambda s: 0 < far(s.personal, s.received) < 0.95 * far(s.tuned, s.received),
    "fedala": between,
    "fedbn": own_normalisation,
}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_method_differs_from_fedavg_in_what_it_claims(name: str) -> None:
    assert CLAIMS[name](seen(name))
    assert not CLAIMS[name](seen("fedavg"))
