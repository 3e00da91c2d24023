"""Speed and memory of the subspace layer: `python -m benchmarks.subspace [--clients 10000] [--threshold]`.

Everything is timed in one run, interleaved, so that other load slows all tasks equally.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import subspace_angles

from benchmarks.timing import interleaved, spread
from pacfl.subspace import agglomerate, cluster, extend, newcomer_rows, place, proximity, signature, split_half_angles
from pacfl.subspace.proximity import MEASURES, Measure
from studies.scenarios import data_folder, load

Signatures = NDArray[np.float32]  # (n, features, p)

FEATURES, RANK, NEWCOMERS, LOOPED, SAMPLES, GROUPED = 3072, 3, 100, 200, 500, 30

# Degrees between the angles within groups and between them, of the signatures below
THRESHOLDS: Mapping[Measure, float] = {"smallest": 60.0, "sum": 180.0, "trace": 180.0, "entrywise": 60.0}


def signatures(n: int, groups: int) -> Signatures:
    """Orthonormal bases drawn around one centre per group, in batches."""
    rng = np.random.default_rng(0)
    centres = np.linalg.qr(rng.standard_normal((groups, FEATURES, RANK)))[0]
    bases = np.empty((n, FEATURES, RANK), dtype=np.float32)
    for start in range(0, n, 500):
        batch = bases[start : start + 500]
        noise = rng.standard_normal(batch.shape) * (0.5 / np.sqrt(FEATURES))
        batch[:] = np.linalg.qr(centres[np.arange(start, start + len(batch)) % groups] + noise)[0]
    return bases


def clustered(bases: Signatures, measure: Measure) -> int:
    """Number of clusters: what a server computes when a federation starts."""
    return int(agglomerate(proximity(bases, measure), THRESHOLDS[measure]).max()) + 1


def product(tall: NDArray[np.float32], block: int = 2000) -> None:
    """The upper half of tall @ tall.T, as a symmetric product, in bounded memory."""
    out = np.empty((block, len(tall)), dtype=np.float32)
    for start in range(0, len(tall), block):
        rows, columns = tall[start : start + block], tall[start:]
        np.matmul(rows, columns.T, out=out[: len(rows), : len(columns)])


def looped(bases: Signatures) -> None:
    """The simplest implementation: a loop over pairs."""
    angles = np.zeros((len(bases), len(bases)))
    for i, j in combinations(range(len(bases)), 2):
        angles[i, j] = angles[j, i] = np.degrees(subspace_angles(bases[i], bases[j])[-1])


def peak_memory(clients: int, measure: Measure) -> float:
    """Peak gigabytes of a separate process that clusters signatures."""
    command = [sys.executable, "-m", __spec__.name, "--clients", str(clients), "--peak-of", measure]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def at_scale(clients: int, repeats: int) -> None:
    """Proximity and clusters, beside a loop and beside the product alone; then newcomers."""
    # Before anything large is allocated here: Linux counts the parent's peak as the child's
    peaks = {measure: peak_memory(clients, measure) for measure in MEASURES}
    bases_of_all = signatures(clients + NEWCOMERS, groups=10)
    bases, new = bases_of_all[:clients], bases_of_all[clients:]
    tall = np.ascontiguousarray(bases.transpose(0, 2, 1)).reshape(-1, FEATURES)
    known = proximity(bases)
    labels = agglomerate(known, THRESHOLDS["smallest"])
    tasks: dict[str, Callable[[], object]] = {m: partial(clustered, bases, m) for m in MEASURES}
    tasks["product"] = lambda: product(tall)
    tasks["loop"] = lambda: looped(bases[:LOOPED])
    tasks["placed"] = lambda: place(newcomer_rows(bases, new), labels, THRESHOLDS["smallest"])
    tasks["extend"] = lambda: extend(known, bases, new)
    times = interleaved(tasks, repeats)
    loop = median(times["loop"]) * (clients * (clients - 1)) / (LOOPED * (LOOPED - 1))
    full, bare = median(times["smallest"]), median(times["product"])

    print(f"{clients} clients in 10 groups, {FEATURES} features, p = {RANK}, float32 signatures; {repeats} repeats.")
    print("Goals: 100 times faster than the loop, within 3 times the product, peak under 4 GB, newcomers in 1/30.\n")
    print("| proximity and clusters | seconds | times faster than the loop | times the product | peak GB |")
    print("|---|---|---|---|---|")
    for m in MEASURES:
        seconds = median(times[m])
        print(f"| `{m}` | {spread(times[m])} | {loop / seconds:.0f} | {seconds / bare:.2f} | {peaks[m]:.2f} |")
    print(f"| matrix product alone | {spread(times['product'])} | {loop / bare:.0f} | 1 | |")
    print(f"| loop over `subspace_angles`, from {LOOPED} clients | {loop:.0f} | 1 | {loop / bare:.0f} | |\n")
    print(f"| {NEWCOMERS} newcomers | seconds | of the full time |")
    print("|---|---|---|")
    for name, task in {"placed (`newcomer_rows`, `place`)": "placed", "the whole matrix (`extend`)": "extend"}.items():
        print(f"| {name} | {spread(times[task])} | 1/{full / median(times[task]):.1f} |")


def of_the_threshold(clients: int, repeats: int) -> None:
    """The choice of the threshold, and all that follows the proximity, beside the proximity."""
    bases = signatures(clients, groups=10)
    known = proximity(bases)
    few = known[: 10 * GROUPED : 10, : 10 * GROUPED : 10]  # of one group
    scale = np.sqrt((few**2).sum() / (GROUPED * (GROUPED - 1)))
    own = list(scale * np.sqrt(np.random.default_rng(0).chisquare(20, (clients, 32)) / 20))
    times = interleaved(
        {"proximity": lambda: proximity(bases), "threshold": lambda: cluster(known, own, signatures=bases)}, repeats
    )
    ratio = median(times["threshold"]) / median(times["proximity"])
    print(f"{clients} clients, {FEATURES} features, p = {RANK}, `smallest`; {repeats} repeats. Goal: at most 0.33.\n")
    print("| proximity, seconds | choice of the threshold, seconds | of the proximity | peak GB |")
    print("|---|---|---|---|")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"| {spread(times['proximity'])} | {spread(times['threshold'])} | {ratio:.2f} | {peak:.2f} |")


def of_one_client(repeats: int) -> None:
    """A signature beside the full decomposition, and the split-half angles."""
    if (data_folder() / "cifar10.npz").exists():
        name, images = "CIFAR-10", load("cifar10")[0][:SAMPLES]
    else:
        name, images = "random", np.random.default_rng(0).integers(0, 256, (SAMPLES, FEATURES), dtype=np.uint8)
    matrix = images.reshape(SAMPLES, -1).astype(np.float64)
    times = interleaved(
        {
            "`signature`": lambda: signature(images, RANK),
            "`numpy.linalg.svd`": lambda: np.linalg.svd(matrix, full_matrices=False),
            "`split_half_angles`": lambda: split_half_angles(images, RANK),
        },
        repeats,
    )
    svd = median(times["`numpy.linalg.svd`"])
    print(f"\nOne client, {SAMPLES} samples of {matrix.shape[1]} features ({name}); {repeats} repeats.")
    print("Goal: 4 times faster than the decomposition of the same matrix.\n")
    print("| | seconds | times faster than the decomposition |")
    print("|---|---|---|")
    for task, seconds in times.items():
        print(f"| {task} | {spread(seconds)} | {svd / median(seconds):.1f} |")


def main() -> None:
    """Print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peak-of", choices=MEASURES, help="only print the peak memory of this measure, in gigabytes")
    parser.add_argument("--threshold", action="store_true", help="only time the choice of the threshold")
    args = parser.parse_args()
    if args.threshold:
        of_the_threshold(args.clients, args.repeats)
        return
    if args.peak_of:
        clustered(signatures(args.clients, groups=10), args.peak_of)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9)  # kibibytes on Linux
        return
    at_scale(args.clients, args.repeats)
    of_one_client(max(5, args.repeats))


if __name__ == "__main__":
    main()
