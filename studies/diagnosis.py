"""Is the kind of difference named correctly? `python -m studies.diagnosis`: a confusion matrix over made federations.

Every federation has one kind of difference by construction. Data are Gaussian classes and tables (simulated), digits
of scikit-learn, and Fashion-MNIST, CIFAR-10, USPS and MNIST-M.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import ClientSignature, class_signatures, cluster_clients, signature, split_half_angles
from pacfl.subspace.diagnosis import KINDS, Diagnosis, diagnose
from studies.scenarios import load

Samples = tuple[NDArray[Any], NDArray[np.intp]]

KIND_OF = {
    "IID": "none",
    "rotations": "inputs",
    "unit of a column": "inputs",
    "shifted feature": "inputs",
    "Dirichlet 0.1": "labels",
    "Dirichlet 0.5": "labels",
    "label skew": "labels",
    "2 label maps": "concept",
    "4 label maps": "concept",
    "two classes swapped": "concept",
    "sizes Dirichlet": "quantity",
    "sizes 1 : 10": "quantity",
}
IMAGES = ("fmnist", "cifar10", "usps", "mnist_m", "digits")
TABLES = ((5, 3), (10, 2), (20, 5), (60, 10), (100, 3), (200, 5))  # features, classes
SIZES = ((4, 400), (6, 200), (10, 100), (20, 100), (20, 200), (40, 60), (60, 40))  # clients, samples each


@dataclass(frozen=True)
class Case:
    """One federation to make."""

    data: str
    difference: str
    n_clients: int
    n_samples: int  # of each client, on average
    seed: int


def cases(seeds: list[int]) -> Iterator[Case]:
    """The grid. Sizes rotate over the cases, so that each occurs with each difference over data sets and seeds."""
    turn = 0
    for seed in seeds:
        for difference in KIND_OF:
            for data in (*IMAGES, *(f"table {f} x {c}" for f, c in TABLES)):
                turn += 1
                if not possible(data, difference):
                    continue
                n, size = SIZES[(turn * 5 + seed * 3) % len(SIZES)]
                if data in IMAGES or data.endswith(" 10"):  # ten classes
                    size = max(size, 100)
                if difference == "label skew":  # few clients may have no class in common, and only inputs to compare
                    n, size = max(n, 10), min(size, 200)
                if data == "digits":  # 1,797 samples
                    n, size = min(n, 10), min(size, 170)
                yield Case(data, difference, n, size, seed)


def possible(data: str, difference: str) -> bool:
    """Whether such a difference exists for these data."""
    if data in IMAGES:
        return difference not in ("unit of a column", "shifted feature")
    if difference == "4 label maps":
        return int(data.split()[-1]) >= 5
    if difference == "two classes swapped":
        return int(data.split()[-1]) >= 3
    return difference != "rotations" or int(data.split()[1]) >= 4


@cache
def images(name: str) -> Samples:
    """All samples of one set."""
    if name != "digits":
        return load(name)
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return np.asarray(x).reshape(-1, 8, 8), np.asarray(y, dtype=np.intp)


class Source:
    """Samples of given classes: drawn from a set without replacement, or from Gaussian classes."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        """For one federation."""
        self.rng = rng
        self.table = case.data not in IMAGES
        if self.table:
            _, features, _, classes = case.data.split()
            self.n_classes = int(classes)
            # columns with means and scales of their own, as tables have; classes differ by about two deviations in some
            self.level, self.scale = rng.normal(2, 1, int(features)), rng.uniform(0.5, 2, int(features))
            self.means = rng.normal(0, 1.5, (self.n_classes, int(features)))
            self.mixing = np.linalg.qr(rng.normal(size=(int(features), int(features))))[0]
            self.spread = rng.uniform(0.3, 1.5, int(features))
        else:
            x, y = images(case.data)
            self.n_classes = int(y.max()) + 1
            self.pools = [x[rng.permutation(np.flatnonzero(y == c))] for c in range(self.n_classes)]
            self.used = [0] * self.n_classes

    def draw(self, counts: NDArray[np.intp]) -> Samples:
        """Samples and labels for counts (classes,); fewer where a class of a set is used up."""
        parts, labels = [], []
        for c, count in enumerate(counts.tolist()):
            if self.table:
                noise = self.rng.normal(size=(count, len(self.level))) * self.spread @ self.mixing.T
                parts.append((self.level + self.means[c] + noise) * self.scale)
            else:
                parts.append(self.pools[c][self.used[c] : self.used[c] + count])
                self.used[c] += count
            labels += [c] * len(parts[-1])
        return np.concatenate(parts), np.array(labels, dtype=np.intp)

    def shares(self) -> NDArray[np.float64]:
        """Of classes."""
        if self.table:
            return np.full(self.n_classes, 1 / self.n_classes)
        sizes = np.array([len(pool) for pool in self.pools], dtype=float)
        return np.asarray(sizes / sizes.sum())

    def most(self, n_clients: int) -> int:
        """Samples that each of so many clients can have."""
        return 10**9 if self.table else sum(len(pool) for pool in self.pools) // n_clients


def federation(case: Case) -> list[Samples]:
    """The samples and labels of all clients."""
    rng = np.random.default_rng((case.seed, case.n_clients, crc32(f"{case.data} {case.difference}".encode())))
    source = Source(case, rng)
    size = min(case.n_samples, source.most(case.n_clients))
    sizes = np.full(case.n_clients, size)
    if case.difference == "sizes Dirichlet":
        # at least 20 samples each, else a client has no class to compare
        sizes = np.maximum(rng.dirichlet(np.ones(case.n_clients) * 0.5) * case.n_clients * size, 20).astype(int)
    elif case.difference == "sizes 1 : 10":
        few = max(int(size / 5.5), 20)
        sizes = np.where(np.arange(case.n_clients) % 2, few, 10 * few)
    change = Change(case, source, rng)
    return [change(i, *source.draw(rng.multinomial(sizes[i], change.shares(i)))) for i in range(case.n_clients)]


class Change:
    """What differs between clients."""

    def __init__(self, case: Case, source: Source, rng: np.random.Generator) -> None:
        """For one federation."""
        self.case, self.rng, self.base, self.n_classes = case, rng, source.shares(), source.n_classes
        kind = case.difference
        n_maps = int(kind[0]) if kind.endswith("maps") else 2
        first = np.arange(self.n_classes)
        self.maps = [first, *(rng.permutation(self.n_classes) for _ in range(n_maps - 1))]
        while kind.endswith("maps") and len({tuple(m) for m in self.maps}) < n_maps:
            self.maps = [first, *(rng.permutation(self.n_classes) for _ in range(n_maps - 1))]
        if kind == "two classes swapped":
            a, b = rng.choice(self.n_classes, 2, replace=False)
            self.maps[1] = first.copy()
            self.maps[1][[a, b]] = b, a
        self.column = int(rng.integers(len(source.level))) if source.table else 0
        self.factor = float(rng.choice([0.01, 0.1, 10.0, 88.4, 1000.0]))
        self.turn = np.linalg.qr(rng.normal(size=(len(source.level),) * 2))[0] if source.table else None
        self.deviation = 4 * source.scale[self.column] if source.table else 0.0

    def shares(self, i: int) -> NDArray[np.float64]:
        """Class shares of client i."""
        kind = self.case.difference
        if kind.startswith("Dirichlet"):
            return self.rng.dirichlet(np.full(self.n_classes, float(kind.split()[1])))
        if kind == "label skew":
            owned = np.zeros(self.n_classes)
            n_owned = max(1, round(0.3 * self.n_classes)) if self.n_classes > 3 else 2
            chosen = self.rng.choice(self.n_classes, n_owned, replace=False)
            owned[[i % self.n_classes, *(c for c in chosen if c != i % self.n_classes)][:n_owned]] = 1 / n_owned
            if self.n_classes == 2:  # both classes, three quarters in one
                owned = np.where(np.arange(2) == i % 2, 0.75, 0.25)
            return np.asarray(owned / owned.sum())
        return self.base

    def __call__(self, i: int, x: NDArray[Any], y: NDArray[np.intp]) -> Samples:
        """The samples of client i as it has them."""
        kind, other = self.case.difference, i % 2 == 1
        if kind == "rotations":
            turned = (x @ self.turn if other else x) if self.turn is not None else np.rot90(x, i % 4, axes=(1, 2))
            return np.ascontiguousarray(turned), y
        if kind in ("unit of a column", "shifted feature") and other:
            x = x.copy()
            if kind == "shifted feature":
                x[:, self.column] += self.deviation
            else:
                x[:, self.column] *= self.factor
        return x, self.maps[i % len(self.maps)][y] if KIND_OF[kind] == "concept" else y


def sign(x: NDArray[Any], y: NDArray[np.intp]) -> ClientSignature:
    """As a client does it: rank 3 of all data."""
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    rank = min(3, rows.shape[1] - 1)
    angles = split_half_angles(rows, rank, measures=["smallest"])["smallest"]
    return ClientSignature(signature(rows, rank), angles, class_signatures(rows, y))


def diagnosed(case: Case) -> tuple[Diagnosis, int]:
    """What is found, and in how many clusters."""
    made = federation(case)
    clients = [sign(x, y) for x, y in made]
    clustering = cluster_clients(clients)
    return diagnose(clients, clustering, [len(y) for _, y in made]), int(clustering.labels.max(initial=-1)) + 1


def main() -> None:
    """Print the confusion matrix, the share that is correct by difference, and every failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="federations of each data set and difference")
    parser.add_argument(
        "--first", type=int, default=2000, help="first seed; the method was developed on those below 1100"
    )
    parser.add_argument("--only", default="", help="data sets or differences that contain this")
    options = parser.parse_args()
    started, failures, by_difference = time.monotonic(), [], Counter[tuple[str, bool]]()
    matrix = Counter[tuple[str, str]]()
    for case in cases(list(range(options.first, options.first + options.seeds))):
        if options.only not in f"{case.data} {case.difference}":
            continue
        found, n_clusters = diagnosed(case)
        wanted = KIND_OF[case.difference]
        matrix[wanted, found.kind] += 1
        by_difference[case.difference, found.kind == wanted] += 1
        if found.kind != wanted:
            failures.append(f"{case}: {found.kind}, {n_clusters} clusters")
    print("| made | " + " | ".join(KINDS) + " | correct |\n|---|" + "---|" * (len(KINDS) + 1))
    for wanted in KINDS:
        row = [matrix[wanted, kind] for kind in KINDS]
        share = matrix[wanted, wanted] / max(sum(row), 1)
        print(f"| `{wanted}` | " + " | ".join(map(str, row)) + f" | {share:.1%} |")
    right, total = sum(matrix[kind, kind] for kind in KINDS), sum(matrix.values())
    print(f"\n{right} of {total} correct: {right / max(total, 1):.1%}; {time.monotonic() - started:.0f} s\n")
    print("| difference | federations | correct |\n|---|---|---|")
    for difference in KIND_OF:
        good, bad = by_difference[difference, True], by_difference[difference, False]
        if good + bad:
            print(f"| {difference} | {good + bad} | {good / (good + bad):.1%} |")
    print("\nNot correct:" if failures else "\nAll correct.")
    for failure in failures:
        print(f"- {failure}")


if __name__ == "__main__":
    main()
