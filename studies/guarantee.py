"""Is a federation that is guaranteed ever split by chance? `python -m studies.guarantee [--seeds 3]`."""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import MEASURES, choose_threshold, null, proximity, signature, split_half_angles

KINDS: Final = ("offset", "mixture", "counts", "power", "heavy")
CLIENTS: Final = 12


def samples(kind: str, rng: np.random.Generator, n: int, features: int) -> NDArray[np.float64]:
    """Samples of one distribution: (n, features)."""
    x, order = rng.standard_normal((n, features)), np.arange(1, features + 1)
    match kind:
        case "offset":
            return x + 0.5
        case "power":
            return np.asarray(x * order**-0.7)
        case "heavy":
            return np.asarray(rng.standard_t(3, (n, features)) * order**-0.7 + 0.3)
        case "mixture":
            second = np.where(rng.random((n, 1)) < 0.5, 1, 0) * np.sin(order / 5)
            return np.asarray(x * 0.3 + second + np.cos(order / 9))
        case _:
            return rng.poisson(np.exp(np.sin(order / 7)), (n, features)).astype(np.float64)


def outcomes(seeds: int) -> Iterator[tuple[str, bool, bool]]:
    """Distribution, whether its clients were split, and whether that was guaranteed not to happen."""
    for seed, kind in ((seed, kind) for seed in range(seeds) for kind in KINDS):
        for n, rank in ((n, rank) for n in (200, 1500) for rank in (2, 4, 8)):
            rng = np.random.default_rng([1, seed, n, rank])
            clients = [samples(kind, rng, n, 50) for _ in range(CLIENTS)]
            bases, own = [signature(x, rank) for x in clients], [split_half_angles(x, rank) for x in clients]
            for measure in MEASURES:
                angles, halves = proximity(bases, measure), [a[measure] for a in own]
                choice = choose_threshold(angles, halves, measure=measure, signatures=bases)
                yield kind, bool(choice.labels.any()), choice.evidence.guaranteed


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--simulations", type=int, default=100, help="of the null, for each federation")
    args = parser.parse_args()
    null.SIMULATIONS = args.simulations  # type: ignore[misc]  # fewer than usual, to save time
    counts = Counter(outcomes(args.seeds))
    print("| distribution | guaranteed | of these split | not guaranteed | of these split |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        cells = [counts[kind, False, g] + counts[kind, True, g] for g in (True, False)]
        print(f"| {kind} | {cells[0]} | {counts[kind, True, True]} | {cells[1]} | {counts[kind, True, False]} |")


if __name__ == "__main__":
    main()
