"""Does the noise scale that clients estimate agree with the angles between clients? `python -m studies.noise_scale`."""

import numpy as np

from pacfl.subspace import MEASURES, proximity, signature, split_half_angles
from studies.scenarios import load, split_at_random

SETS = ("cifar10", "fmnist", "mnist_m", "usps")
CLIENTS = 20


def main() -> None:
    """Print a table in Markdown."""
    print(
        "Noise scale that clients estimate over the angles of 20 clients of one set (root mean squares), by measure\n"
    )
    print("| set | samples | p | " + " | ".join(f"`{measure}`" for measure in MEASURES) + " |")
    print("|---|---|---|" + "---|" * len(MEASURES))
    pairs = np.triu_indices(CLIENTS, 1)
    for name in SETS:
        for size in (40, 160):
            clients = split_at_random(load(name)[0], [size] * CLIENTS, np.random.default_rng(0))
            for rank in (1, 3, 5):
                own = [split_half_angles(x, rank) for x in clients]
                bases = [signature(x, rank) for x in clients]
                cells = []
                for measure in MEASURES:
                    estimated = np.sqrt(np.mean([np.mean(angles[measure] ** 2) for angles in own]))
                    observed = np.sqrt(np.mean(proximity(bases, measure)[pairs] ** 2))
                    cells.append(f"{estimated / observed:.2f}")
                print(f"| {name} | {size} | {rank} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
