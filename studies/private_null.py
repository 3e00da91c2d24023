"""How often are homogeneous federations with private class signatures split? `python -m studies.private_null`.

Clients of one distribution with unequal class shares and sizes, over epsilons; the error rate that is aimed at is
0.1 %. Every outcome is appended to a file at once; outcomes in the file are not computed again.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from pacfl.data import load_dataset
from pacfl.privacy import private_class_signatures, seeded
from pacfl.subspace import ClientSignature, cluster_clients

EPSILONS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
CLIENTS: Final = (10, 30, 100)
SHARES: Final = (None, 0.5, 0.1)  # alpha of Dirichlet; None: equal
FEATURES: Final = 64

Array = NDArray[Any]


class Simulated:
    """Images of ten classes: a pattern of each, and noise that is strong in few directions."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Patterns and directions of noise."""
        self.patterns = rng.normal(size=(10, FEATURES))
        self.spread = rng.normal(size=(FEATURES, FEATURES)) / np.arange(1, FEATURES + 1)[:, None] ** 0.5

    def draw(self, y: Array, rng: np.random.Generator) -> Array:
        """Samples of classes y."""
        rows = self.patterns[y] + rng.normal(size=(len(y), FEATURES)) @ self.spread
        return np.asarray(rows.reshape(-1, 8, 8))


class Images:
    """Images of a set, with replacement."""

    def __init__(self, name: str, folder: Path) -> None:
        """The training images of a set."""
        dataset = load_dataset(name, folder)
        self.x = dataset.x_train
        self.rows = [np.flatnonzero(dataset.y_train == c) for c in range(10)]

    def draw(self, y: Array, rng: np.random.Generator) -> Array:
        """Samples of classes y."""
        return np.asarray(self.x[[rng.choice(self.rows[c]) for c in y]])


def split(
    source: Simulated | Images, n_clients: int, epsilon: float, alpha: float | None, rng: np.random.Generator
) -> dict[str, Any]:
    """Whether one federation is split."""
    clients = []
    for _ in range(n_clients):
        n = int(rng.integers(100, 1001))
        y = rng.choice(10, n, p=None if alpha is None else rng.dirichlet(np.full(10, alpha)))
        made = private_class_signatures(source.draw(y, rng), y, range(10), 3, epsilon, noise=seeded(rng))
        clients.append(ClientSignature(made.basis, made.split_half_angles["smallest"], made.classes))
    found = cluster_clients(clients)
    classes = found.classes
    return {
        "clusters": int(found.labels.max()) + 1,
        "not_judged": int((found.labels < 0).sum()),
        "calibration": None if classes is None else round(classes.calibration, 3),
    }


def outcomes(data: Path | None, numbers: list[int], runs: int, store: Path) -> Iterator[dict[str, Any]]:
    """All federations."""
    done = {json.dumps(o["key"]) for o in map(json.loads, store.read_text().splitlines())} if store.exists() else set()
    sources: dict[str, Simulated | Images] = {"simulated": Simulated(np.random.default_rng(0))}
    if data is not None:
        sources |= {name: Images(name, data) for name in ("fmnist", "cifar10")}
    for run, (name, n_clients, epsilon, alpha) in product(range(runs), product(sources, numbers, EPSILONS, SHARES)):
        key = [name, n_clients, epsilon, alpha, run]
        if json.dumps(key) not in done:
            rng = np.random.default_rng([run, n_clients, round(10 * epsilon), round(10 * (alpha or 0)), *name.encode()])
            yield {"key": key, **split(sources[name], n_clients, epsilon, alpha, rng)}


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with fmnist.npz and cifar10.npz; without it, simulated ones")
    parser.add_argument("--clients", nargs="+", type=int, default=list(CLIENTS))
    parser.add_argument("--runs", type=int, default=3, help="federations for each setting")
    parser.add_argument("--outcomes", type=Path, default=Path("private-null.jsonl"))
    args = parser.parse_args()
    for outcome in outcomes(args.data, args.clients, args.runs, args.outcomes):
        with args.outcomes.open("a") as file:
            file.write(json.dumps(outcome) + "\n")
    stored = [json.loads(line) for line in args.outcomes.read_text().splitlines()]
    print("| data | epsilon | federations | split | at most (95 %) |\n|---|---|---|---|---|")
    for name in dict.fromkeys(o["key"][0] for o in stored):
        for epsilon in (*EPSILONS, None):
            own = [o for o in stored if o["key"][0] == name and epsilon in (None, o["key"][2])]
            if own:
                k, n = sum(o["clusters"] > 1 for o in own), len(own)
                bound = float(beta.ppf(0.95, k + 1, n - k)) if k < n else 1.0
                print(f"| {name} | {'all' if epsilon is None else f'{epsilon:g}'} | {n} | {k} | {bound:.1%} |")


if __name__ == "__main__":
    main()
