"""Does the comparison by class find who should learn together? `python -m studies.together --data DATA [--seeds 10]`.

For every set and every kind of difference: how many clusters are found, and how well they agree with the true ones.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.data import build_division, grouped, load_dataset, partition
from pacfl.learning.randomness import stream
from pacfl.subspace import (
    ClientSignature,
    adjusted_rand_index,
    class_signatures,
    cluster_clients,
    signature,
    split_half_angles,
)

SETS: Final = ("fmnist", "cifar10", "usps", "mnist_m")
TURNS: Final = [0, 90, 180, 270]
IID: Final = {"kind": "iid"}
MIXED: Final = {"kind": "dirichlet", "alpha": 0.5}

SHIFTS: Final[dict[str, dict[str, Any]]] = {
    "IID": IID,
    "label skew 20 %": {"kind": "label-skew", "share": 0.2},
    "label skew 30 %": {"kind": "label-skew", "share": 0.3},
    "Dirichlet 0.1": {"kind": "dirichlet", "alpha": 0.1, "minimum": 5},  # 100 clients of USPS cannot all have 10
    "Dirichlet 0.5": MIXED,
    "2 label maps": {**IID, "groups": {"permute-labels": 2}},
    "4 label maps": {**IID, "groups": {"permute-labels": 4}},
    "2 label maps, Dirichlet 0.5": {**MIXED, "groups": {"permute-labels": 2}},
    "4 label maps, Dirichlet 0.5": {**MIXED, "groups": {"permute-labels": 4}},
    "4 rotations": {**IID, "groups": {"rotate": TURNS}},
    "4 rotations, Dirichlet 0.5": {**MIXED, "groups": {"rotate": TURNS}},
    "4 rotations, 2 label maps": {**IID, "groups": {"rotate": TURNS, "permute-labels": 2}},
    "4 rotations, 2 label maps, Dirichlet 0.5": {**MIXED, "groups": {"rotate": TURNS, "permute-labels": 2}},
}


def outcome(folder: Path, name: str, shift: str, n_clients: int, seed: int) -> dict[str, Any]:
    """The clusters found in one federation."""
    scheme, groups = build_division(SHIFTS[shift])
    dataset = load_dataset(name, folder)
    divided = partition(dataset, scheme, n_clients, stream(seed, "partition"))
    if groups is not None:
        dataset, divided = grouped(dataset, divided, groups, stream(seed, "groups"))
    clients = []
    for rows in divided.train_indices:
        x, y = dataset.x_train[rows], dataset.y_train[rows]
        own = split_half_angles(x, 3, measures=["smallest"])["smallest"]
        clients.append(ClientSignature(signature(x, 3), own, class_signatures(x, y)))
    found = cluster_clients(clients)
    truth = np.zeros(n_clients, dtype=np.intp) if divided.true_cluster is None else divided.true_cluster
    judged = found.labels >= 0
    return {
        "set": name,
        "shift": shift,
        "clients": n_clients,
        "seed": seed,
        "wanted": int(truth.max()) + 1,
        "clusters": int(found.labels.max()) + 1,
        "ari": adjusted_rand_index(truth[judged], found.labels[judged]),
        "not_judged": int((~judged).sum()),
        "separation": found.evidence["separation"],
        "samples": int(np.median([len(rows) for rows in divided.train_indices])),
    }


def outcomes(
    folder: Path, sets: Sequence[str], shifts: Sequence[str], n_clients: int, seeds: Sequence[int], store: Path | None
) -> Iterator[dict[str, Any]]:
    """All outcomes, by two processes; those in the file `store`, one JSON line each, are not computed again."""
    known = [json.loads(line) for line in store.read_text().splitlines()] if store and store.exists() else []
    asked = [(name, shift, n_clients, seed) for seed in seeds for name in sets for shift in shifts]
    done = {(o["set"], o["shift"], o["clients"], o["seed"]): o for o in known}
    yield from (done[key] for key in asked if key in done)
    jobs = [(folder, *key) for key in asked if key not in done]
    with ProcessPoolExecutor(2) as pool:
        for found in pool.map(outcome, *zip(*jobs, strict=True)) if jobs else ():
            if store:
                with store.open("a") as file:
                    file.write(json.dumps(found) + "\n")
            yield found


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--shifts", nargs="*", default=list(SHIFTS))
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--store", type=Path, help="a file of outcomes, to go on after an interruption")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    found = list(outcomes(args.data, args.sets, args.shifts, args.clients, seeds, args.store))
    print(f"{args.clients} clients, seeds {seeds.start} to {seeds.stop - 1}\n")
    print("| set | difference | samples, median | wanted | found (times) | ARI, mean | ARI, least | not judged |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.sets:
        for shift in args.shifts:
            rows = [o for o in found if (o["set"], o["shift"]) == (name, shift)]
            if not rows:
                continue
            counts = sorted({o["clusters"] for o in rows})
            times = ", ".join(f"{k} ({sum(o['clusters'] == k for o in rows)})" for k in counts)
            aris = [o["ari"] for o in rows]
            print(
                f"| {name} | {shift} | {rows[0]['samples']} | {rows[0]['wanted']} | {times} | {np.mean(aris):.3f} "
                f"| {min(aris):.3f} | {max(o['not_judged'] for o in rows)} |"
            )


if __name__ == "__main__":
    main()
