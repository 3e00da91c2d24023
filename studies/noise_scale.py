"""Is the noise floor that a client measures what separate clients really show? `python -m studies.noise_scale`."""

import numpy as np

from pacfl.subspace import MEASURES, proximity, signature, split_half_angles
from studies.scenarios import load, split_at_random

SETS = ("cifar10", "fmnist", "mnist_m", "usps")
CLIENTS = 20


def main() -> None:
    """Print a table in Markdown."""
    print("Floor that clients predict over what 20 clients of one set show (root mean squares), by measure\n")
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
                    told = np.sqrt(np.mean([np.mean(angles[measure] ** 2) for angles in own]))
                    shown = np.sqrt(np.mean(proximity(bases, measure)[pairs] ** 2))
                    cells.append(f"{told / shown:.2f}")
                print(f"| {name} | {size} | {rank} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
