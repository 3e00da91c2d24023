"""Clusters of wrist sensors whose windows overlap: without groups, with blocks, with recordings as groups.

    python -m studies.dependent DATA [--show]

DATA: the folder with watch.npz (x, y, subject, side; one recording for each subject, arm and exercise). Each row:
clusters found from all windows, from the first and from the second half of every recording, clients in none, and the
adjusted Rand index, over clients that are in clusters of both, between the clusterings of the two halves and, the
least, between these and that of all windows.

    python -m studies.dependent --few

How often federations of one distribution are split if clients have few groups: why there is a least number.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl import PACFLClustering
from pacfl.subspace import (
    ClientSignature,
    DependenceWarning,
    adjusted_rand_index,
    class_signatures,
    cluster_clients,
    signature,
    split_half_angles,
    units,
)

Array = NDArray[Any]
FEDERATIONS: Final = 300
GROUPS: Final = ("none", "blocks of 5", "blocks of 10", "blocks of 20", "recordings")


def clustered(x: Array, y: Array, client: Array, groups: Array | None, compare: Literal["inputs", "classes"]) -> Array:
    """Clusters of the clients, -1 for those in none."""
    own = [client == one for one in np.unique(client)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DependenceWarning)
        found = PACFLClustering(compare=compare).fit(
            [x[rows] for rows in own],
            [y[rows] for rows in own],
            None if groups is None else [groups[rows] for rows in own],
        )
    return found.labels_


def grouped(how: str, client: Array, recording: Array) -> Array | None:
    """The group of every window."""
    if how == "none":
        return None
    if how == "recordings":
        return recording
    position = np.zeros(len(client), dtype=np.intp)
    for one in np.unique(client):
        rows = np.flatnonzero(client == one)
        position[rows] = np.arange(len(rows)) // int(how.split()[-1])
    return position


def agreement(a: Array, b: Array) -> float:
    """The adjusted Rand index over clients that are in clusters of both; NaN where there are none."""
    both = (a >= 0) & (b >= 0)
    return adjusted_rand_index(a[both], b[both]) if both.sum() > 1 else float("nan")


def few_groups() -> None:
    """12 clients of one distribution in three dimensions, with groups of six samples that resemble each other."""
    units.FEWEST_UNITS = 1  # type: ignore[misc]
    for n_groups in (4, 5, 6, 8, 12):
        split = {"inputs": 0, "classes": 0}
        for seed in range(FEDERATIONS):
            rng = np.random.default_rng(seed)
            clients = [few(rng, n_groups) for _ in range(12)]
            for compare in ("inputs", "classes"):
                found = cluster_clients(clients, compare).labels
                split[compare] += int(found.max() > 0)
        print(f"{n_groups} groups: of {FEDERATIONS} federations, split by {split}", flush=True)


def few(rng: np.random.Generator, n_groups: int) -> ClientSignature:
    """The signature of a client."""
    groups = np.repeat(np.arange(n_groups), 6)
    shared, own = rng.standard_normal((n_groups, 3))[groups], rng.standard_normal((len(groups), 3))
    x = (np.sqrt(0.7) * shared + np.sqrt(0.3) * own) * [6, 3, 1] + [20, 0, 0]
    angles = split_half_angles(x, 1, measures=["smallest"], groups=groups)["smallest"]
    return ClientSignature(signature(x, 1), angles, class_signatures(x, np.zeros(len(x), int), groups=groups))


def wrist_sensors(folder: Path, show: bool) -> None:
    """Print the table of wrist sensors."""
    with np.load(folder / "watch.npz") as watch:
        x, y, subject, side = (watch[name] for name in ("x", "y", "subject", "side"))
    recording = (subject.astype(np.intp) * 2 + side) * 10 + y
    late = np.zeros(len(y), dtype=bool)
    for one in np.unique(recording):
        rows = np.flatnonzero(recording == one)
        late[rows[len(rows) // 2 :]] = True
    print("| clients | compare | groups | clusters | from halves | in none | ARI of halves | least ARI with all |")
    print("|---|---|---|---|---|---|---|---|")
    for clients, of in (("20 arms", subject.astype(np.intp) * 2 + side), ("10 subjects", subject)):
        for compare in ("inputs", "classes"):
            for how in GROUPS:
                found = []
                for part in (np.ones(len(y), dtype=bool), ~late, late):
                    groups = grouped(how, of[part], recording[part])
                    found.append(clustered(x[part], y[part], of[part], groups, compare))
                every, first, second = (len(set(one[one >= 0].tolist())) for one in found)
                left_out = ", ".join(str(int((one < 0).sum())) for one in found)
                of_halves, *with_all = (agreement(found[a], found[b]) for a, b in ((1, 2), (0, 1), (0, 2)))
                print(
                    f"| {clients} | {compare} | {how} | {every} | {first}, {second} | {left_out} | {of_halves:.2f} | "
                    f"{min(with_all):.2f} |",
                    flush=True,
                )
                if show:
                    print(*found, sep="\n")


def main() -> None:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("data", type=Path, nargs="?", help="folder with watch.npz")
    what.add_argument("--few", action="store_true", help="split federations of clients with few groups")
    parser.add_argument("--show", action="store_true", help="print the clusters of every row too")
    asked = parser.parse_args()
    if asked.few and asked.show:
        parser.error("--show is for the clusters of wrist sensors; leave it out with --few")
    if asked.few:
        few_groups()
    else:
        wrist_sensors(asked.data, asked.show)


if __name__ == "__main__":
    main()
