"""What do signatures reveal about single records? `python -m studies.leakage [--clients 20] [--keyed]`.

--keyed: the same attacks on keyed signatures, by a server without the key, and by one to which a client gave it.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from pacfl.privacy import private_signature, seeded
from pacfl.privacy.keyed import keyed, unkeyed
from pacfl.privacy.reduction import reduced
from pacfl.subspace import principal_angles, signature, split_half_angles
from studies.scenarios import load

Array = NDArray[np.float64]

RANKS = (1, 3, 5, 10)
SIZES = (5, 20, 100, 500)  # samples of a client
EPSILONS = (None, 8.0, 1.0)
REFERENCE = 4000  # images of the same population that the attacker has
PROBES = 100  # at most so many members and non-members are tested per client
TRIALS = 100  # of the attacker who knows all records but one
KEY = b"the key of all clients"


class Attack(NamedTuple):
    """Scores of members, which were in a client's data, and of others."""

    members: Array
    others: Array

    def area(self) -> float:
        """Area under the ROC curve: the probability that a member scores above another; 0.5 is guessing."""
        ranks = rankdata(np.concatenate([self.members, self.others]))[: len(self.members)]
        n, m = len(self.members), len(self.others)
        return float((ranks.sum() - n * (n + 1) / 2) / (n * m))

    def true_positives(self, false_positives: float = 0.01) -> float:
        """True positive rate at a false positive rate."""
        return float(np.mean(self.members > np.quantile(self.others, 1 - false_positives)))


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


def drawn_population(
    size: int, rank: int
) -> tuple[NDArray[np.generic], np.random.Generator, NDArray[np.generic], NDArray[np.intp]]:
    """All images, the randomness of an attack, images that the attacker has, and the positions of all others."""
    images, _ = load("fmnist")
    rng = np.random.default_rng([size, rank])
    order = rng.permutation(len(images))
    return images, rng, images[order[:REFERENCE]], order[REFERENCE:]


def attacks(size: int, rank: int, epsilon: float | None, n_clients: int) -> tuple[Attack, Attack]:
    """Two attacks by one who knows the population: membership and reconstruction.

    Membership: how much more of a record does the signature explain than the population's does? Reconstruction: the
    share of a record's difference from the mean that lies in the signature's span, an upper bound.
    """
    images, rng, population, rest = drawn_population(size, rank)
    usual = signature(unit(features(population, epsilon)), rank)
    mean = features(population, epsilon).mean(axis=0)
    membership: tuple[list[Array], list[Array]] = ([], [])
    inside: tuple[list[Array], list[Array]] = ([], [])
    for _ in range(n_clients):
        drawn = rng.permutation(rest)
        members, others = images[drawn[:size]], images[drawn[size : size + PROBES]]
        basis = basis_of(members, rank, epsilon, rng)
        for side, tested in enumerate((members[:PROBES], others)):
            rows = features(tested, epsilon)
            explained = np.square(unit(rows) @ basis).sum(axis=1) - np.square(unit(rows) @ usual).sum(axis=1)
            membership[side].append(explained)
            inside[side].append(np.square(unit(rows - mean) @ basis).sum(axis=1))
    attack, span = (Attack(*(np.concatenate(side) for side in sides)) for sides in (membership, inside))
    return attack, span


def keyed_attacks(size: int, rank: int, n_clients: int) -> dict[str, tuple[Attack, Attack]]:
    """The same two attacks on plain signatures, and on keyed ones without and with the key.

    Without the key: the server knows that signatures of images like its own have nearly the same mean, column by
    column. So it signs as many sets of images of its own as there are clients, and takes the map between the two means
    for the transform, where they span.
    """
    images, rng, population, rest = drawn_population(size, rank)
    usual = signature(unit(features(population, None)), rank)
    mean = features(population, None).mean(axis=0)
    drawn = [rng.permutation(rest) for _ in range(n_clients)]
    plain = [basis_of(images[one[:size]], rank, None, rng) for one in drawn]
    sent = [keyed(basis, KEY) for basis in plain]
    own = [basis_of(population[rng.permutation(REFERENCE)[:size]], rank, None, rng) for _ in range(n_clients)]
    of_own, of_sent = np.mean(own, axis=0), np.mean(sent, axis=0)
    seen = {
        "plain": plain,
        "without": [of_own @ np.linalg.lstsq(of_sent, basis, rcond=None)[0] for basis in sent],
        "with": [unkeyed(basis, KEY) for basis in sent],
    }
    found = {}
    for who, bases in seen.items():
        membership: tuple[list[Array], list[Array]] = ([], [])
        inside: tuple[list[Array], list[Array]] = ([], [])
        for one, basis in zip(drawn, bases, strict=True):
            span = np.linalg.qr(basis)[0]
            for side, at in enumerate((one[: min(size, PROBES)], one[size : size + PROBES])):
                rows = features(images[at], None)
                explained = np.square(unit(rows) @ basis).sum(axis=1) - np.square(unit(rows) @ usual).sum(axis=1)
                membership[side].append(explained)
                inside[side].append(np.square(unit(rows - mean) @ span).sum(axis=1))
        found[who] = (
            Attack(*(np.concatenate(side) for side in membership)),
            Attack(*(np.concatenate(side) for side in inside)),
        )
    return found


def keyed_guessed(size: int, rank: int) -> dict[str, float]:
    """How often one without the key who knows all other records identifies which of two was the last.

    By directions, taken as they are; by the split-half angles that are sent with them; and by the angles to another
    client, all of whose records are known.
    """
    images, _ = load("fmnist")
    rng = np.random.default_rng([size, rank, 7])
    right: dict[str, list[bool]] = {"directions": [], "split-half angles": [], "angles to a known client": []}
    for _ in range(TRIALS):
        drawn = images[rng.permutation(len(images))[: 2 * size + 1]].reshape(2 * size + 1, -1).astype(np.float64)
        cases = [np.concatenate([drawn[:size], last[None]]) for last in (drawn[size], 255 - drawn[size])]
        actual = int(rng.integers(2))
        clean, known = [signature(case, rank) for case in cases], signature(drawn[size + 1 :], rank)
        released = keyed(clean[actual].astype(np.float32), KEY)
        halves = [split_half_angles(case, rank)["smallest"] for case in cases]
        angles = principal_angles(released, keyed(known, KEY))
        nearness = {
            "directions": [float(np.square(released.T @ own).sum()) for own in clean],
            "split-half angles": [-float(np.abs(own - halves[actual]).sum()) for own in halves],
            "angles to a known client": [-float(np.abs(principal_angles(own, known) - angles).sum()) for own in clean],
        }
        for how, near in nearness.items():
            right[how].append(int(np.argmax(near)) == actual)
    return {how: float(np.mean(found)) for how, found in right.items()}


def keyed_table(n_clients: int) -> Iterator[str]:
    """Rows in Markdown of attacks on keyed signatures."""
    who = ("plain", "without", "with")
    yield (
        "| samples | p | area: plain | keyed | with the key "
        "| caught at 1 % false alarms: plain | keyed | with the key "
        "| in the span, members / others: plain | keyed | with the key |"
    )
    yield f"|{'---|' * 11}"
    for size in SIZES:
        for rank in RANKS:
            found = keyed_attacks(size, rank, n_clients)
            areas = " | ".join(f"{found[one][0].area():.2f}" for one in who)
            caught = " | ".join(f"{found[one][0].true_positives():.1%}" for one in who)
            spans = [found[one][1] for one in who]
            inside = " | ".join(f"{span.members.mean():.2f} / {span.others.mean():.2f}" for span in spans)
            yield f"| {size} | {rank} | {areas} | {caught} | {inside} |"
    yield ""
    yield "| samples | p | by directions | by split-half angles | by angles to a known client |"
    yield "|---|---|---|---|---|"
    for size in (20, 500):
        for rank in RANKS:
            yield f"| {size} | {rank} | {' | '.join(f'{share:.0%}' for share in keyed_guessed(size, rank).values())} |"


def guessed(size: int, rank: int, epsilon: float | None) -> float:
    """How often one who knows all other records identifies which of two was the last: 0.5 is guessing.

    The attacker computes the noiseless signature of both cases and takes the one nearer to the released signature.
    The two candidates differ as much as possible: an image and its negative.
    """
    images, _ = load("fmnist")
    rng = np.random.default_rng([size, rank, 7])
    right = []
    for _ in range(TRIALS):
        drawn = images[rng.permutation(len(images))[: size + 1]]
        cases = [np.concatenate([drawn[:size], last[None]]) for last in (drawn[size], 255 - drawn[size])]
        actual = int(rng.integers(2))
        released = basis_of(cases[actual], rank, epsilon, rng)
        clean = [signature(unit(features(c, epsilon)) if epsilon else features(c, None), rank) for c in cases]
        nearness = [float(np.square(released.T @ own).sum()) for own in clean]
        right.append(int(np.argmax(nearness)) == actual)
    return float(np.mean(right))


def table(n_clients: int) -> Iterator[str]:
    """Rows in Markdown."""
    yield "| samples | p | epsilon | membership: AUC | TPR at 1 % FPR | in the span: members | others |"
    yield "|---|---|---|---|---|---|---|"
    for size in SIZES:
        for rank in RANKS:
            for epsilon in EPSILONS:
                attack, span = attacks(size, rank, epsilon, n_clients)
                word = "none" if epsilon is None else f"{epsilon:g}"
                inside = f"{span.members.mean():.2f} | {span.others.mean():.2f}"
                yield f"| {size} | {rank} | {word} | {attack.area():.2f} | {attack.true_positives():.1%} | {inside} |"
    yield ""
    yield "| samples | p | epsilon | identified which of two, knowing all other records |"
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
    parser.add_argument("--keyed", action="store_true")
    given = parser.parse_args()
    for row in (keyed_table if given.keyed else table)(given.clients):
        print(row, flush=True)


if __name__ == "__main__":
    main()
