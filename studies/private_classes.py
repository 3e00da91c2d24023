"""At which epsilon are label maps and rotations found? `python -m studies.private_classes --data DATA [--clients 20]`.

Every client draws 500 images from the complete set, each at most once; two clients may share some. Every outcome is
appended to a file at once; outcomes in the file are not computed again.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data import Dataset, load_dataset
from pacfl.privacy import private_class_signatures, seeded
from pacfl.subspace import (
    ClientSignature,
    adjusted_rand_index,
    class_signatures,
    cluster_clients,
    signature,
    split_half_angles,
)

SETS: Final = ("fmnist", "cifar10")
EPSILONS: Final[tuple[float | None, ...]] = (0.5, 1.0, 2.0, 4.0, 16.0, None)
SHIFTS: Final = ("2 label maps", "4 label maps", "4 rotations")
SHARES: Final = ("IID", "Dirichlet 0.5")
SAMPLES: Final = 500
CLASSES: Final = 10

Array = NDArray[Any]


def federation(
    dataset: Dataset, shift: str, shares: str, n_clients: int, rng: np.random.Generator
) -> tuple[list[tuple[Array, Array]], NDArray[np.intp]]:
    """Images and labels of each client, and its true cluster."""
    number = int(shift[0])
    true_cluster = np.arange(n_clients) % number
    maps = [np.arange(CLASSES), *(rng.permutation(CLASSES) for _ in range(number - 1))]
    supply = [np.flatnonzero(dataset.y_train == c) for c in range(CLASSES)]
    clients = []
    for k in true_cluster.tolist():
        share = np.full(CLASSES, 1 / CLASSES) if shares == "IID" else rng.dirichlet(np.full(CLASSES, 0.5))
        counts = rng.multinomial(SAMPLES, share)
        rows = np.concatenate([rng.choice(own, n, replace=False) for own, n in zip(supply, counts, strict=True)])
        x, y = dataset.x_train[rows], dataset.y_train[rows]
        clients.append((np.rot90(x, k, axes=(1, 2)), y) if shift == "4 rotations" else (x, maps[k][y]))
    return clients, true_cluster


def signed(x: Array, y: Array, epsilon: float | None, rng: np.random.Generator) -> ClientSignature:
    """What a client sends."""
    if epsilon is None:
        angles = split_half_angles(x, 3, measures=["smallest"])["smallest"]
        return ClientSignature(signature(x, 3), angles, class_signatures(x, y))
    made = private_class_signatures(x, y, range(CLASSES), 3, epsilon, noise=seeded(rng))
    return ClientSignature(made.basis, made.split_half_angles["smallest"], made.classes)


def outcomes(args: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    """All federations that are not done."""
    datasets = {name: load_dataset(name, args.data) for name in args.sets}
    for seed, name, shift, shares in product(range(args.seeds), args.sets, args.shifts, args.shares):
        for epsilon in EPSILONS:
            key = [name, shift, shares, args.clients, epsilon, seed]
            if (args.epsilons and (epsilon or 0.0) not in args.epsilons) or json.dumps(key) in done:
                continue
            address = [seed, *f"{name} {shift} {shares}".encode()]
            clients, true_cluster = federation(
                datasets[name], shift, shares, args.clients, np.random.default_rng(address)
            )
            rng = np.random.default_rng([*address, round(1000 * (epsilon or 0))])
            found = cluster_clients([signed(x, y, epsilon, rng) for x, y in clients])
            placed = found.labels >= 0
            yield {
                "key": key,
                "clusters": int(found.labels.max()) + 1,
                "ari": adjusted_rand_index(true_cluster[placed], found.labels[placed]),
                "not_judged": int((~placed).sum()),
            }


def table(stored: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Rows in Markdown: clusters found (seeds), and the mean ARI, for each epsilon."""
    met = [e for e in EPSILONS if any(o["key"][4] == e for o in stored)]
    words = ["none" if e is None else f"{e:g}" for e in met]
    yield f"| set | difference | class shares | clients | {' | '.join(words)} |"
    yield f"|---|---|---|---|{'---|' * len(met)}"
    rows = dict.fromkeys(
        tuple(o["key"][:4]) for o in sorted(stored, key=lambda o: (o["key"][3], SETS.index(o["key"][0])))
    )
    for row in rows:
        cells = []
        for epsilon in met:
            own = [o for o in stored if (*o["key"][:4], o["key"][4]) == (*row, epsilon)]
            counts = [o["clusters"] for o in own]
            times = ", ".join(f"{k} ({counts.count(k)})" for k in sorted(set(counts)))
            cells.append(f"{times}: {np.mean([o['ari'] for o in own]):.2f}" if own else "")
        yield f"| {' | '.join(map(str, row))} | {' | '.join(cells)} |"


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the complete sets")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--shifts", nargs="+", default=list(SHIFTS))
    parser.add_argument("--shares", nargs="+", default=list(SHARES))
    parser.add_argument("--epsilons", nargs="+", type=float, help="0 for none; default: all")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--outcomes", type=Path, default=Path("private-classes.jsonl"))
    args = parser.parse_args()
    lines = args.outcomes.read_text().splitlines() if args.outcomes.exists() else []
    for outcome in outcomes(args, {json.dumps(json.loads(line)["key"]) for line in lines}):
        with args.outcomes.open("a") as file:
            file.write(json.dumps(outcome) + "\n")
    for row in table([json.loads(line) for line in args.outcomes.read_text().splitlines()]):
        print(row)


if __name__ == "__main__":
    main()
