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
from numpy.typing import NDArray

from pacfl.data import build_division, grouped, load_dataset, partition
from pacfl.learning.randomness import stream
from pacfl.subspace import (
    ClientSignature,
    adjusted_rand_index,
    assign,
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


EVERY: Final = ("cifar10", "mnist_m", "fmnist", "usps")


def _mix(sets: Sequence[str], counts: Sequence[int], size: int, disjoint_labels: bool = False) -> dict[str, Any]:
    """Clients that have one of several sets each; digits and others have the same names of classes, or other ones."""
    return {
        "options": {"sets": list(sets), "disjoint_labels": disjoint_labels},
        "scheme": {"kind": "by-set", "counts": list(counts), "size": size},
    }


MIXES: Final[dict[str, dict[str, Any]]] = {
    "MIX-4m, other names": _mix(EVERY, (32, 26, 28, 14), 500, disjoint_labels=True),
    "MIX-4m, same names": _mix(EVERY, (32, 26, 28, 14), 500),
    "95 Fashion-MNIST, 5 USPS": _mix(("fmnist", "usps"), (95, 5), 140),
    "95 CIFAR-10, 5 MNIST-M": _mix(("cifar10", "mnist_m"), (95, 5), 160),
    "95 MNIST-M, 5 CIFAR-10": _mix(("mnist_m", "cifar10"), (95, 5), 130),
}
MIXED_SETS: Final = "several sets"


def outcome(folder: Path, name: str, shift: str, n_clients: int, seed: int) -> dict[str, Any]:
    """The clusters found in one federation."""
    clients, truth = federation(folder, name, shift, n_clients, seed)
    found = cluster_clients(clients)
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
    }


def placed(folder: Path, name: str, shift: str, n_clients: int, seed: int) -> dict[str, int]:
    """What happens to half of the clients that come later."""
    clients, truth = federation(folder, name, shift, n_clients, seed)
    order = np.random.default_rng(seed).permutation(n_clients)
    old, new = np.split(order, [n_clients // 2])
    found = cluster_clients([clients[i] for i in old])
    joined, _ = assign(found, [clients[i] for i in old], [clients[i] for i in new])
    of_new, n_clusters = joined.labels[len(old) :], int(found.labels.max()) + 1
    homes = [int(np.bincount(truth[old][found.labels == k]).argmax()) for k in range(n_clusters)]
    wrong = [0 <= k < n_clusters and homes[k] != true for k, true in zip(of_new.tolist(), truth[new], strict=True)]
    opened = int((of_new >= n_clusters).sum())
    return {"newcomers": len(new), "opened": opened, "wrong": sum(wrong), "not judged": int((of_new < 0).sum())}


def federation(
    folder: Path, name: str, shift: str, n_clients: int, seed: int
) -> tuple[list[ClientSignature], NDArray[np.intp]]:
    """What clients send, and their true clusters."""
    mix = MIXES.get(shift)
    scheme, groups = build_division(SHIFTS[shift] if mix is None else mix["scheme"])
    dataset = load_dataset(name, folder) if mix is None else load_dataset("mixture", folder, **mix["options"])
    divided = partition(dataset, scheme, n_clients, stream(seed, "partition"))
    if groups is not None:
        dataset, divided = grouped(dataset, divided, groups, stream(seed, "groups"))
    clients = []
    for rows in divided.train_indices:
        x, y = dataset.x_train[rows], dataset.y_train[rows]
        own = split_half_angles(x, 3, measures=["smallest"])["smallest"]
        clients.append(ClientSignature(signature(x, 3), own, class_signatures(x, y)))
    truth = np.zeros(n_clients, dtype=np.intp) if divided.true_cluster is None else divided.true_cluster
    return clients, truth


def outcomes(
    folder: Path, sets: Sequence[str], shifts: Sequence[str], n_clients: int, seeds: Sequence[int], store: Path | None
) -> Iterator[dict[str, Any]]:
    """All outcomes, by two processes; those in the file `store`, one JSON line each, are not computed again."""
    known = [json.loads(line) for line in store.read_text().splitlines()] if store and store.exists() else []
    asked = [(name, shift, n_clients, seed) for seed in seeds for name in sets for shift in shifts if shift in SHIFTS]
    asked += [(MIXED_SETS, shift, 100, seed) for seed in seeds for shift in shifts if shift in MIXES]
    asked.sort(key=lambda key: key[3])
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
    parser.add_argument("--shifts", nargs="*", default=[*SHIFTS, *MIXES])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--store", type=Path, help="a file of outcomes, to go on after an interruption")
    parser.add_argument("--newcomers", action="store_true", help="place half of the clients later, and count errors")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    if args.newcomers:
        _print_newcomers(args.data, args.sets, args.shifts, args.clients, seeds)
        return
    found = list(outcomes(args.data, args.sets, args.shifts, args.clients, seeds, args.store))
    print(f"{args.clients} clients, seeds {seeds.start} to {seeds.stop - 1}\n")
    print("\n".join(table(found)))


def table(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: the clusters found for each difference and set, then of several sets."""
    columns = [name for name in SETS if any(o["set"] == name for o in found)]
    if columns:
        yield f"| difference | wanted | {' | '.join(columns)} |"
        yield "|---" * (2 + len(columns)) + "|"
    for shift in SHIFTS:
        of_shift = [o for o in found if o["shift"] == shift]
        cells = [_cell([o for o in of_shift if o["set"] == name]) for name in columns]
        if of_shift:
            yield f"| {shift} | {of_shift[0]['wanted']} | {' | '.join(cells)} |"
    if any(o["set"] == MIXED_SETS for o in found):
        yield from ("", "| clients of several sets | wanted | found |", "|---|---|---|")
    for shift in MIXES:
        of_shift = [o for o in found if o["shift"] == shift]
        if of_shift:
            yield f"| {shift} | {of_shift[0]['wanted']} | {_cell(of_shift)} |"


def _print_newcomers(
    folder: Path, sets: Sequence[str], shifts: Sequence[str], n_clients: int, seeds: Sequence[int]
) -> None:
    print("| difference | newcomers | opened a cluster | in a wrong one | not judged |\n|---|---|---|---|---|")
    for shift in shifts:
        names = sets if shift in SHIFTS else [MIXED_SETS]
        found = [placed(folder, name, shift, n_clients, seed) for name in names for seed in seeds]
        print(f"| {shift} | {' | '.join(str(sum(one[key] for one in found)) for key in found[0])} |", flush=True)


def _cell(rows: Sequence[dict[str, Any]]) -> str:
    """Numbers of clusters found, how often, and how well they agree with the true ones where not completely."""
    if not rows:
        return ""
    counts = sorted({o["clusters"] for o in rows})
    found = ", ".join(f"{k} ({sum(o['clusters'] == k for o in rows)})" for k in counts)
    least, mean = min(o["ari"] for o in rows), float(np.mean([o["ari"] for o in rows]))
    left = max(o["not_judged"] for o in rows)
    agreement = "" if least == 1 else f"; ARI {mean:.3f}, least {least:.3f}"
    return found + agreement + (f"; {left} not judged" if left else "")


if __name__ == "__main__":
    main()
