"""What do signatures tell of single records? `python -m studies.leakage [--clients 20]`."""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from pacfl.privacy import private_signature, seeded
from pacfl.privacy.reduction import reduced
from pacfl.subspace import signature
from studies.scenarios import load

Array = NDArray[np.float64]

RANKS = (1, 3, 5, 10)
SIZES = (5, 20, 100, 500)  # samples of a client
EPSILONS = (None, 8.0, 1.0)
REFERENCE = 4000  # images that the attacker has of the same population
PROBES = 100  # members, and others, that are tried at most with each client
KNOWN_RUNS = 100  # trials of the attacker who knows all records but one


class Attack(NamedTuple):
    """Scores of records that were in a client's data, and of others."""

    members: Array
    others: Array

    def area(self) -> float:
        """Probability that a member scores above another: 0.5 is guessing."""
        ranks = rankdata(np.concatenate([self.members, self.others]))[: len(self.members)]
        n, m = len(self.members), len(self.others)
        return float((ranks.sum() - n * (n + 1) / 2) / (n * m))

    def caught(self, alarms: float = 0.01) -> float:
        """Share of members above the level that only `alarms` of the others pass."""
        return float(np.mean(self.members > np.quantile(self.others, 1 - alarms)))


def unit(rows: Array) -> Array:
    """Rows of length 1."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def features(images: NDArray[np.generic], epsilon: float | None) -> Array:
    """Records as the signature sees them."""
    return images.reshape(len(images), -1).astype(np.float64) if epsilon is None else reduced(images)[0]


def basis_of(images: NDArray[np.generic], rank: int, epsilon: float | None, rng: np.random.Generator) -> Array:
    """The signature that the attacker sees."""
    if epsilon is None:
        return signature(features(images, None), min(rank, len(images)))
    return private_signature(images, rank, epsilon, noise=seeded(rng)).basis


def attacked(size: int, rank: int, epsilon: float | None, n_clients: int) -> tuple[Attack, Attack]:
    """Two attacks by one who knows the population.

    Membership: how much better than usual is a record explained? Reconstruction: the share of what makes a record
    different from the mean that lies in the span of the signature, which no reconstruction from it can pass.
    """
    images, _ = load("fmnist")
    rng = np.random.default_rng([size, rank])
    order = rng.permutation(len(images))
    population, rest = images[order[:REFERENCE]], order[REFERENCE:]
    usual = signature(unit(features(population, epsilon)), rank)
    mean = features(population, epsilon).mean(axis=0)
    membership: tuple[list[Array], list[Array]] = ([], [])
    inside: tuple[list[Array], list[Array]] = ([], [])
    for _ in range(n_clients):
        drawn = rng.permutation(rest)
        members, others = images[drawn[:size]], images[drawn[size : size + PROBES]]
        basis = basis_of(members, rank, epsilon, rng)
        for side, shown in enumerate((members[:PROBES], others)):
            rows = features(shown, epsilon)
            explained = np.square(unit(rows) @ basis).sum(axis=1) - np.square(unit(rows) @ usual).sum(axis=1)
            membership[side].append(explained)
            inside[side].append(np.square(unit(rows - mean) @ basis).sum(axis=1))
    attack, span = (Attack(*(np.concatenate(side) for side in sides)) for sides in (membership, inside))
    return attack, span


def guessed(size: int, rank: int, epsilon: float | None) -> float:
    """How often one who knows all other records tells which of two was the last: 0.5 is guessing.

    It computes the noiseless signature of either case, and takes the one to which the released one is nearer. The two
    candidates are as different as they can be: an image and its negative.
    """
    images, _ = load("fmnist")
    rng = np.random.default_rng([size, rank, 7])
    right = []
    for _ in range(KNOWN_RUNS):
        drawn = images[rng.permutation(len(images))[: size + 1]]
        cases = [np.concatenate([drawn[:size], last[None]]) for last in (drawn[size], 255 - drawn[size])]
        true_cluster = int(rng.integers(2))
        released = basis_of(cases[true_cluster], rank, epsilon, rng)
        clean = [signature(unit(features(c, epsilon)) if epsilon else features(c, None), rank) for c in cases]
        nearness = [float(np.square(released.T @ own).sum()) for own in clean]
        right.append(int(np.argmax(nearness)) == true_cluster)
    return float(np.mean(right))


def table(n_clients: int) -> Iterator[str]:
    """Rows in Markdown."""
    yield "| samples | p | epsilon | membership: area | caught at 1 % false alarms | in the span: members | others |"
    yield "|---|---|---|---|---|---|---|"
    for size in SIZES:
        for rank in RANKS:
            for epsilon in EPSILONS:
                attack, span = attacked(size, rank, epsilon, n_clients)
                word = "none" if epsilon is None else f"{epsilon:g}"
                inside = f"{span.members.mean():.2f} | {span.others.mean():.2f}"
                yield f"| {size} | {rank} | {word} | {attack.area():.2f} | {attack.caught():.1%} | {inside} |"
    yield ""
    yield "| samples | p | epsilon | told which of two, knowing all other records |"
    yield "|---|---|---|---|"
    for size in (20, 500):
        for rank in RANKS:
            for epsilon in EPSILONS:
                word = "none" if epsilon is None else f"{epsilon:g}"
                yield f"| {size} | {rank} | {word} | {guessed(size, rank, epsilon):.0%} |"


def main() -> None:
    """Print tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=20)
    for row in table(parser.parse_args().clients):
        print(row, flush=True)


if __name__ == "__main__":
    main()
