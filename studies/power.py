"""Which is the smallest difference that is found? `python -m studies.power`, ten minutes or so.

Two groups of clients differ by an angle of the leading direction, by a shift of the mean or of the means of classes, or
by the names of some classes. A difference is found if at least 90 % of federations have more than one cluster. The
smallest one of a grid is searched by bisection, for several numbers of samples and clients.

Clients are drawn from a pool of 60 of each group. Limits of chance are simulated for one federation of every cell and
used for the others, which have the same number of clients and the same noise.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import ClientSignature, class_signatures, proximity, signature, split_half_angles
from studies.guarantee import clustered
from studies.screening import Limits, recorded, replaced

Array = NDArray[np.float64]
Pool = list[ClientSignature]
Draw = Callable[[np.random.Generator, int, float], tuple[Array, NDArray[np.intp]]]

SAMPLES: Final = (20, 60, 200, 1000, 5000)
CLIENTS: Final = (2, 3, 5, 10, 30, 100)
FEDERATIONS: Final = 20
FOUND: Final = 0.9  # of the federations
POOL: Final = 60  # clients of each group
FEATURES: Final = 30
CLASSES: Final = 5
RANK: Final = 3
MEAN: Final = 4.0  # length of means of classes, in standard deviations of each feature
LEADING: Final = 3.0  # standard deviation of the leading direction, in those of others


def turned(rng: np.random.Generator, n: int, degrees: float) -> tuple[Array, NDArray[np.intp]]:
    """Normal samples with one leading direction, turned by so many degrees."""
    x = rng.standard_normal((n, FEATURES))
    leading = np.zeros(FEATURES)
    leading[:2] = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return x + LEADING * rng.standard_normal((n, 1)) * leading, np.zeros(n, dtype=np.intp)


def shifted(rng: np.random.Generator, n: int, shift: float) -> tuple[Array, NDArray[np.intp]]:
    """Normal samples with mean 4 along one axis, shifted along another."""
    mean = np.zeros(FEATURES)
    mean[:2] = MEAN, shift
    return rng.standard_normal((n, FEATURES)) + mean, np.zeros(n, dtype=np.intp)


def classes_shifted(rng: np.random.Generator, n: int, shift: float) -> tuple[Array, NDArray[np.intp]]:
    """Normal classes with means along axes of their own, all shifted along another."""
    labels = np.arange(n) % CLASSES
    mean = MEAN * np.eye(FEATURES)[labels]
    mean[:, CLASSES] = shift
    return rng.standard_normal((n, FEATURES)) + mean, labels


def relabelled(rng: np.random.Generator, n: int, number: float) -> tuple[Array, NDArray[np.intp]]:
    """The same classes, the first of which take each other's names in turn."""
    x, labels = classes_shifted(rng, n, 0.0)
    renamed = np.arange(CLASSES)
    renamed[: int(number)] = np.roll(renamed[: int(number)], 1)
    return x, renamed[labels]


class Difference(NamedTuple):
    """One kind of difference between two groups of clients."""

    name: str
    compare: str
    draw: Draw
    grid: Sequence[float]
    unit: str


STEPS: Final = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4, 3.2, 4.8)
DIFFERENCES: Final = (
    Difference("leading direction turned", "inputs", turned, (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 90), "°"),
    Difference("mean shifted", "inputs", shifted, STEPS, " sd"),
    Difference("means of classes shifted", "classes", classes_shifted, STEPS, " sd"),
    Difference("classes relabelled", "classes", relabelled, range(2, CLASSES + 1), f" of {CLASSES}"),
)


def pool(difference: Difference, n: int, size: float, group: int) -> Pool:
    """Signatures of clients with n samples each that have this difference."""
    made = []
    for client in range(POOL):
        x, labels = difference.draw(np.random.default_rng([n, group, client]), n, size)
        own = split_half_angles(x, RANK, measures=["smallest"])["smallest"]
        classes = class_signatures(x, labels) if difference.compare == "classes" else None
        made.append(ClientSignature(signature(x, RANK), own, classes))
    return made


def share_found(difference: Difference, groups: tuple[Pool, Pool], clients: int, limits: Limits) -> float:
    """The share of federations, one half of each group, that have several clusters; limits are filled if empty."""
    how: Mapping[str, Any] = {
        "compare": difference.compare,
        "measure": "smallest",
        "linkage": "average",
        "preprocess": "raw",
    }
    found = 0
    for number in range(FEDERATIONS):
        rng = np.random.default_rng([clients, number])
        sizes = (clients - clients // 2, clients // 2)
        some = [
            group[i]
            for group, size in zip(groups, sizes, strict=True)
            for i in rng.choice(POOL, size, replace=False).tolist()
        ]
        angles = proximity([client.basis for client in some])
        try:
            with replaced(limits) if limits else recorded(limits):
                labels = clustered(dict(how), some, angles).labels
        except (StopIteration, IndexError):  # other simulations than in the first federation
            labels = clustered(dict(how), some, angles).labels
        found += int(labels.max()) > 0
    return found / FEDERATIONS


def smallest_found(difference: Difference, n: int, pools: dict[float, Pool], clients: int) -> float | None:
    """The smallest difference of the grid that is found; None if the largest is not. pools: filled as needed."""
    limits: Limits = {}

    def is_found(size: float) -> bool:
        for wanted in (0.0, size):
            if wanted not in pools:
                pools[wanted] = pool(difference, n, wanted, int(wanted > 0))
        return share_found(difference, (pools[0.0], pools[size]), clients, limits) >= FOUND

    low, high = -1, len(difference.grid)  # not found, found
    while high - low > 1:
        middle = (low + high) // 2
        if is_found(difference.grid[middle]):
            high = middle
        else:
            low = middle
    return difference.grid[high] if high < len(difference.grid) else None


def table(differences: Sequence[Difference], samples: Sequence[int], clients: Sequence[int]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"| difference | compare | samples | {' | '.join(f'{n} clients' for n in clients)} |"
    yield f"|---|---|---|{'---|' * len(clients)}"
    for difference in differences:
        for n in samples:
            pools: dict[float, Pool] = {}
            cells = [smallest_found(difference, n, pools, k) for k in clients]
            shown = ["-" if cell is None else f"{cell:g}{difference.unit}" for cell in cells]
            yield f"| {difference.name} | {difference.compare} | {n} | {' | '.join(shown)} |"


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="*", default=SAMPLES)
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENTS)
    args = parser.parse_args()
    for line in table(DIFFERENCES, args.samples, args.clients):
        print(line, flush=True)


if __name__ == "__main__":
    main()
