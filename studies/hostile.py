"""What damage do hostile clients do, what prevents it? `python -m studies.hostile [--seeds 3] [--only claims]`."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl import PACFL, Aggregation, Algorithm, BySet, FedAvg, LocalTraining, digits, federate, partition
from pacfl.data import Dataset, Partition
from pacfl.federation.aggregation import Rule
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import ClientContext, Samples
from pacfl.learning.model import Model, Vector
from pacfl.learning.nets import mlp
from pacfl.learning.randomness import stream
from pacfl.subspace import adjusted_rand_index, signature, split_half_angles

Array = NDArray[np.float64]
Profiles = dict[ClientId, Message]

DOMAINS, PER_DOMAIN, SIZE = 4, 10, 140
SHARES = (0.1, 0.3)
RULES: tuple[Rule, ...] = ("mean", "norm-clipping", "trimmed-mean", "median")
LEARNING = LocalTraining(epochs=2, lr=0.1)
THRESHOLD = 5.5  # degrees: below the angles between domains, above those within one


# Poisoned updates: what a hostile client uploads instead of w, having downloaded w0


def _noise(task: ClientContext, w0: Vector, w: Vector) -> Vector:
    drawn = stream(task.key[0], "hostile", *task.key[1:]).standard_normal(len(w))
    return np.asarray(w0 + 10 * np.linalg.norm(w - w0) * drawn / np.sqrt(len(w)), dtype=np.float32)


UPDATES: Mapping[str, Callable[[ClientContext, Vector, Vector], Vector]] = {
    "sign flip": lambda task, w0, w: w0 - (w - w0),  # noqa: ARG005 - one signature for all
    "sign flip, tenfold": lambda task, w0, w: w0 - 10 * (w - w0),  # noqa: ARG005
    "scaling tenfold": lambda task, w0, w: w0 + 10 * (w - w0),  # noqa: ARG005
    "noise tenfold": _noise,
    "label flip": lambda task, w0, w: w,  # noqa: ARG005 - its training labels are flipped
}


# Poisoned signatures: what hostile clients send instead of their own


def _copying(honest: Profiles, hostile: Sequence[ClientId]) -> Profiles:
    """Every hostile client sends the signature of the first client of the next domain."""
    return {c: honest[(c // PER_DOMAIN + 1) % DOMAINS * PER_DOMAIN] for c in hostile}


def _bridging(honest: Profiles, hostile: Sequence[ClientId]) -> Profiles:
    """Points at equal distances on the geodesic from the first domain to the second."""
    start, end = honest[0], honest[PER_DOMAIN]
    steps = np.linspace(0, 1, len(hostile) + 2)[1:-1]
    return {
        c: {**start, "basis": between(start["basis"], end["basis"], step).astype(np.float32)}
        for c, step in zip(hostile, steps, strict=True)
    }


def _midpoint(honest: Profiles, hostile: Sequence[ClientId]) -> Profiles:
    middle = between(honest[0]["basis"], honest[PER_DOMAIN]["basis"], 0.5).astype(np.float32)
    return {c: {**honest[0], "basis": middle} for c in hostile}


def _claiming_noise(honest: Profiles, hostile: Sequence[ClientId]) -> Profiles:
    """The midpoint, with such large split-half angles that every angle to it looks like noise."""
    forged = _midpoint(honest, hostile)
    return {c: {**own, "split_half_angles": np.full_like(own["split_half_angles"], 89.0)} for c, own in forged.items()}


def _flooding(honest: Profiles, hostile: Sequence[ClientId]) -> Profiles:
    """Random subspaces."""
    rng = np.random.default_rng(0)
    drawn = {c: np.linalg.qr(rng.standard_normal(honest[c]["basis"].shape))[0] for c in hostile}
    return {c: {**honest[c], "basis": basis.astype(np.float32)} for c, basis in drawn.items()}


SIGNATURES: Mapping[str, Callable[[Profiles, Sequence[ClientId]], Profiles]] = {
    "copying": _copying,
    "a chain of bridges": _bridging,
    "all at the middle": _midpoint,
    "the same, claiming much noise": _claiming_noise,
    "flooding with random ones": _flooding,
}


# Split-half angles that a hostile client claims; its basis is true

CLAIMS: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "none": lambda own: own,
    "89 degrees": lambda own: np.full_like(own, 89.0),
    "16 degrees": lambda own: np.full_like(own, 16.0),
    "89 degrees in one of 32 halvings, 0 in the others": lambda own: 89 * np.eye(1, len(own), dtype=own.dtype)[0],
}


def between(a: Array, b: Array, share: float) -> Array:
    """The subspace at a share of the geodesic from span a to span b: (d, p), (d, p) -> (d, p)."""
    u, cosines, vt = np.linalg.svd(a.T.astype(np.float64) @ b)
    start, end = a @ u, b @ vt.T
    angles = np.arccos(np.clip(cosines, -1, 1))
    away = end - start * cosines
    away /= np.maximum(np.linalg.norm(away, axis=0), 1e-12)
    basis, _ = np.linalg.qr(start * np.cos(share * angles) + away * np.sin(share * angles))
    return np.asarray(basis)


@dataclass(frozen=True, eq=False)
class Infiltrated(Algorithm):
    """An algorithm with some hostile clients."""

    inner: Algorithm
    hostile: frozenset[int]
    update: str | None = None
    signature: str | None = None

    def init_server(self, model: Model) -> Any:
        """As the inner."""
        return self.inner.init_server(model)

    def admit(self, state: Any, profiles: Mapping[ClientId, Message]) -> Any:
        """As the inner, with the forged profiles of hostile clients."""
        if self.signature is not None:
            profiles = {**profiles, **SIGNATURES[self.signature](dict(profiles), sorted(self.hostile))}
        return self.inner.admit(state, profiles)

    def download(self, state: Any, client: ClientId) -> Message:
        """As the inner."""
        return self.inner.download(state, client)

    def aggregate(self, state: Any, uploads: Any) -> Any:
        """As the inner."""
        return self.inner.aggregate(state, uploads)

    def profile(self, task: ClientContext) -> Message:
        """As the inner."""
        return self.inner.profile(task)

    def train(self, task: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        """As the inner; hostile clients then replace their update."""
        if self.update is None or task.key[2] not in self.hostile:
            return self.inner.train(task, down, memory)
        if self.update == "label flip":
            task = replace(task, train=Samples(task.train.x, 9 - task.train.y))
        up, memory = self.inner.train(task, down, memory)
        forged = UPDATES[self.update](task, down["w"], up["w"])
        return {**up, "w": np.asarray(forged, dtype=np.float32)}, memory


def federation(seed: int) -> tuple[Dataset, Partition]:
    """Digits in four domains, ten clients of 140 samples in each."""
    dataset = digits()
    counts = (PER_DOMAIN,) * DOMAINS
    return dataset, partition(dataset, BySet(counts, SIZE), DOMAINS * PER_DOMAIN, np.random.default_rng(seed))


def infiltrators(share: float) -> frozenset[int]:
    """The last clients of each domain."""
    n = round(share * PER_DOMAIN)
    return frozenset(d * PER_DOMAIN + i for d in range(DOMAINS) for i in range(PER_DOMAIN - n, PER_DOMAIN))


def accuracy(algorithm: Algorithm, hostile: frozenset[int], seed: int) -> float:
    """Mean accuracy of the models that honest clients receive after the last round."""
    dataset, clients = federation(seed)
    result = federate(
        (dataset, clients), lambda: mlp((1, 8, 8), 10, 32), algorithm, LEARNING, rounds=8, participation=1.0, seed=seed
    )
    scores = result.by_client["received"]["accuracy"]
    return float(np.mean([score for c, score in scores.items() if c not in hostile]))


def of_updates(seeds: int) -> Iterator[str]:
    """Accuracy of honest clients under poisoned updates."""
    yield "| method | hostile | attack | " + " | ".join(RULES) + " |"
    yield "|---|---|---|" + "---|" * len(RULES)
    cases = [(0.0, None), *product(SHARES, UPDATES)]
    methods: dict[str, Callable[[Rule], Algorithm]] = {
        "FedAvg": lambda rule: FedAvg(aggregation=Aggregation(rule)),
        "PACFL": lambda rule: PACFL(clusters=DOMAINS, aggregation=Aggregation(rule)),
    }
    for (name, method), (share, attack) in product(methods.items(), cases):
        hostile = infiltrators(share)
        cells = [
            np.mean([accuracy(Infiltrated(method(rule), hostile, attack), hostile, seed) for seed in range(seeds)])
            for rule in RULES
        ]
        numbers = " | ".join(f"{100 * cell:.1f}" for cell in cells)
        yield f"| {name} | {share:.0%} | {attack or 'none'} | {numbers} |"


@cache
def honest_profiles(seed: int) -> Profiles:
    """The profile of every client, if all are honest."""
    dataset, clients = federation(seed)
    profiles: Profiles = {}
    for c, indices in enumerate(clients.train_indices):
        x = dataset.x_train[indices]
        basis, own = signature(x, 3), split_half_angles(x, 3)["smallest"]
        profiles[c] = {"basis": basis.astype(np.float32), "split_half_angles": own.astype(np.float32)}
    return profiles


def clustered(pacfl: PACFL, share: float, attack: str | None, seed: int) -> tuple[float, int]:
    """Adjusted Rand index of the honest clients' clusters with their domains, and the number of clusters."""
    hostile = infiltrators(share)
    algorithm = Infiltrated(pacfl, hostile, None, attack)
    state = algorithm.admit(algorithm.init_server(_OneWeight()), honest_profiles(seed))  # type: ignore[arg-type]  # initial weights suffice
    honest = [c for c in range(DOMAINS * PER_DOMAIN) if c not in hostile]
    labels = [state.cluster_of[c] for c in honest]
    return adjusted_rand_index(labels, [c // PER_DOMAIN for c in honest]), len(set(labels))


def of_signatures(seeds: int) -> Iterator[str]:
    """How honest clients are clustered when others forge their signatures."""
    variants = {
        "average": PACFL(),
        "complete": PACFL(linkage="complete"),
        "single": PACFL(linkage="single"),
        f"average, cut at {THRESHOLD:g} degrees": PACFL(threshold=THRESHOLD),
        "average, cut into 4": PACFL(clusters=DOMAINS),
    }
    yield "| hostile | attack | " + " | ".join(variants) + " |"
    yield "|---|---|" + "---|" * len(variants)
    for share, attack in [(0.0, None), *product(SHARES, SIGNATURES)]:
        cells = []
        for pacfl in variants.values():
            aris, counts = zip(*(clustered(pacfl, share, attack, seed) for seed in range(seeds)), strict=True)
            cells.append(f"{np.mean(aris):.2f} ({', '.join(map(str, counts))})")
        yield f"| {share:.0%} | {attack or 'none'} | " + " | ".join(cells) + " |"


def of_claims(seeds: int) -> Iterator[str]:
    """How the others are clustered when one client claims false noise, in federations of several sizes."""
    variants = {"automatic threshold": PACFL(), f"cut at {THRESHOLD:g} degrees": PACFL(threshold=THRESHOLD)}
    yield "| clients | claim of one of them | " + " | ".join(variants) + " |"
    yield "|---|---|" + "---|" * len(variants)
    for per_domain, (claim, lie) in product((2, 3, 4, 5, PER_DOMAIN), CLAIMS.items()):
        cells = []
        for pacfl in variants.values():
            aris = [claimed(pacfl, per_domain, lie, seed) for seed in range(seeds)]
            cells.append(f"{np.mean(aris):.2f} ({sum(ari == 1 for ari in aris)} of {seeds} right)")
        yield f"| {DOMAINS * per_domain} | {claim} | " + " | ".join(cells) + " |"


def claimed(pacfl: PACFL, per_domain: int, lie: Callable[[NDArray[Any]], NDArray[Any]], seed: int) -> float:
    """Adjusted Rand index of the others' clusters with their domains."""
    *others, liar = (c for c in range(DOMAINS * PER_DOMAIN) if c % PER_DOMAIN < per_domain)
    honest = honest_profiles(seed)
    profiles = {c: honest[c] for c in others}
    profiles[liar] = {**honest[liar], "split_half_angles": lie(honest[liar]["split_half_angles"])}
    state = pacfl.admit(pacfl.init_server(_OneWeight()), profiles)  # type: ignore[arg-type]  # initial weights suffice
    return adjusted_rand_index([state.cluster_of[c] for c in others], [c // PER_DOMAIN for c in others])


class _OneWeight:
    """A model of one weight: clusters do not depend on the model."""

    initial = np.zeros(1, dtype=np.float32)


def of_copies(seeds: int) -> Iterator[str]:
    """Accuracy of honest clients when hostile ones copy signatures of another domain and train there."""
    yield "| hostile | their updates | " + " | ".join(RULES) + " |"
    yield "|---|---|" + "---|" * len(RULES)
    for share, update in product(SHARES, (None, "sign flip, tenfold")):
        hostile = infiltrators(share)
        cells = []
        for rule in RULES:
            algorithm = Infiltrated(PACFL(clusters=DOMAINS, aggregation=Aggregation(rule)), hostile, update, "copying")
            cells.append(np.mean([accuracy(algorithm, hostile, seed) for seed in range(seeds)]))
        yield (
            f"| {share:.0%} | {update or 'honest, of their own domain'} | "
            + " | ".join(f"{100 * cell:.1f}" for cell in cells)
            + " |"
        )


TABLES = {"signatures": of_signatures, "claims": of_claims, "updates": of_updates, "copies": of_copies}


def main() -> None:
    """Print tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    args = parser.parse_args()
    for name in [args.only] if args.only else TABLES:
        for row in TABLES[name](args.seeds):
            print(row, flush=True)
        print()


if __name__ == "__main__":
    main()
