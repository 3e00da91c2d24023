"""Seconds and memory of clustering very many signatures by landmarks, against their number.

python -m benchmarks.million --clients 10000 30000 100000 --features 64
python -m benchmarks.million --clients 20000 --features 64 --exact
python -m benchmarks.million --clients 20000 100000 --features 256 --store 64
python -m benchmarks.million --clients 10000 --homogeneous 20

Signatures are simulated (`simulated`): a large group, one of a third of the clients, one of a thousandth, one of 50.
Each number of clients has a process of its own, for its peak memory; making the signatures is not timed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import busy
from pacfl.signatures import SignatureSettings, SignatureStore, StoreClusters, cluster_store
from pacfl.signatures.sigfile import NOT_PRIVATE
from pacfl.subspace import Method, adjusted_rand_index, cluster
from pacfl.subspace.landmarks import SAMPLE

NOISE, SPLITS, DIRECTIONS, POOL = 3.0, 32, 60, 2000  # degrees of sampling noise; of split-half angles; of the noise
NEWCOMERS = 50


class Simulated(NamedTuple):
    """Signatures whose groups are known."""

    bases: NDArray[Any]  # (n, features, rank)
    split_half_angles: NDArray[np.float32]  # (n, splits) degrees, of the smallest angle
    groups: NDArray[np.intp]  # (n,)


def simulated(
    sizes: Sequence[int],
    features: int = 64,
    rank: int = 3,
    apart: float = 6.0,
    seed: int = 0,
    dtype: str = "float16",
    out: NDArray[Any] | None = None,
) -> Simulated:
    """Groups whose centres are `apart` degrees from that of the first one, in random order; into `out`, if given.

    The noise of a client is 0.7 to 1.4 times that of others, stronger in some directions than in others, as in images.
    """
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    common = np.linalg.qr(rng.standard_normal((features, rank)))[0]
    other = rng.standard_normal((len(sizes), features, rank))
    other = np.linalg.qr(other - common @ (common.T @ other))[0]
    angle = np.radians(np.where(np.arange(len(sizes)) > 0, apart, 0.0))[:, None, None]
    centres = (common * np.cos(angle) + other * np.sin(angle)).astype(np.float32)
    strength = np.arange(1.0, min(DIRECTIONS, features) + 1) ** -0.35
    noise = (np.linalg.qr(rng.standard_normal((features, len(strength))))[0] * strength).astype(np.float32)
    noise /= np.linalg.norm(strength)
    size = (np.radians(NOISE / np.sqrt(2)) * np.exp(rng.uniform(-0.35, 0.35, n))).astype(np.float32)

    def drawn(centre: NDArray[np.float32], size: NDArray[np.float32]) -> NDArray[np.float32]:
        random = rng.standard_normal((len(size), rank, len(strength)), np.float32)
        spread = (random.reshape(-1, len(strength)) @ noise.T).reshape(len(size), rank, features)
        u = centre + spread.transpose(0, 2, 1) * size[:, None, None]
        values, vectors = np.linalg.eigh(u.transpose(0, 2, 1) @ u)
        orthonormal: NDArray[np.float32] = u @ ((vectors / np.sqrt(values)[:, None]) @ vectors.transpose(0, 2, 1))
        return orthonormal

    # Split-half angles of a typical client; those of others are as many times larger as their noise
    typical = np.full(POOL, np.radians(NOISE / np.sqrt(2)), np.float32)
    overlaps = drawn(centres[0], typical).transpose(0, 2, 1).astype(np.float64) @ drawn(centres[0], typical)
    own = np.degrees(np.arccos(np.minimum(np.linalg.svd(overlaps, compute_uv=False)[:, 0], 1)))
    relative = size / np.float32(np.radians(NOISE / np.sqrt(2)))
    halves = own.astype(np.float32)[rng.integers(POOL, size=(n, SPLITS))] * relative[:, None]
    bases = np.empty((n, features, rank), dtype=dtype) if out is None else out
    step = max(1, (1 << 23) // (features * rank))
    for start in range(0, n, step):
        part = slice(start, start + step)
        bases[part] = drawn(centres[groups[part]], size[part])
    return Simulated(bases, halves, groups)


def sizes_of(n: int) -> list[int]:
    """A large group, one of a third, one of a thousandth, one of 50."""
    return [n - n // 3 - n // 1000 - 50, n // 3, n // 1000, 50]


def measured(n: int, features: int, method: Method) -> dict[str, float]:
    """Seconds, peak memory and agreement with the true groups of one clustering; in a process of its own."""
    clients = simulated(sizes_of(n), features)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, used = time.perf_counter(), time.process_time()
    found = cluster(clients.bases, clients.split_half_angles, method=method)
    seconds, of_processor = time.perf_counter() - started, time.process_time() - used
    agreement = adjusted_rand_index(found.labels, clients.groups)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "clients": n,
        "seconds": seconds,
        "processor": of_processor,
        "product": product(clients, found.landmarks is not None),
        "peak": peak * 1024 / 1e9,
        "made": before * 1024 / 1e9,
        "clusters": int(found.labels.max()) + 1,
        "ari": float(agreement),
    }


def product(clients: Simulated, by_landmarks: bool) -> float:
    """Seconds of the processor for the bare float32 product of all bases with those of landmarks, or half of all."""
    n, features, rank = clients.bases.shape
    others = SAMPLE * rank if by_landmarks else n * rank // 2
    right = np.ones((features, min(others, 4096)), np.float32)
    rows = np.ones((4096, features), np.float32)
    started = time.process_time()
    for _ in range(3):
        rows @ right
    once = (time.process_time() - started) / 3
    return float(once * n * rank / len(rows) * others / right.shape[1])


def stored(n: int, features: int, dimensions: int) -> dict[str, float]:
    """Seconds of the processor to sketch and write a store and to cluster it, and milliseconds for one newcomer."""
    clients = simulated([*sizes_of(n)[:-1], 50 + NEWCOMERS], features, dtype="float16")
    settings = SignatureSettings(features, clients.bases.shape[2], False, "raw", NOT_PRIVATE)
    names = [f"client-{i}" for i in range(n)]
    with tempfile.TemporaryDirectory(prefix="pacfl-") as folder:
        store = SignatureStore.create(Path(folder) / "store", settings, dimensions)
        used = time.process_time()
        store.add(names, clients.bases[:n], {"smallest": clients.split_half_angles[:n]})
        adding = time.process_time() - used
        used = time.process_time()
        found = cluster_store(store.folder)
        clustering = time.process_time() - used
        new, angles = store.projected(clients.bases[n:]), clients.split_half_angles[n:]
        opened = StoreClusters.load(store.folder)
        of_each = []
        for i in range(NEWCOMERS):
            used = time.process_time()
            opened.placed(new[i : i + 1], store.widened(angles[i : i + 1], "smallest", opened.summary["widening"]))
            of_each.append(1000 * (time.process_time() - used))
        return {
            "clients": n,
            "adding": adding,
            "clustering": clustering,
            "first": of_each[0],
            "newcomer": float(np.median(of_each[1:])),
            "gigabytes": store.summary()["bytes"] / 1e9,
            "clusters": len(found.sizes),
            "ari": float(adjusted_rand_index(found.labels, clients.groups[:n])),
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        }


def split(n: int, features: int, seed: int) -> bool:
    """Whether clients of one distribution are in more than one cluster."""
    clients = simulated([n], features, seed=seed)
    return bool(cluster(clients.bases, clients.split_half_angles, method="landmarks").labels.max() > 0)


def exponent(n: Sequence[float], values: Sequence[float]) -> float:
    """Of the power of n that values grow with, by least squares in logarithms."""
    return float(np.polyfit(np.log(n), np.log(values), 1)[0])


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--exact", action="store_true", help="beside landmarks, cluster by all pairs")
    parser.add_argument(
        "--store", type=int, metavar="DIMENSIONS", help="of a sketch: write a store, cluster it, join it"
    )
    parser.add_argument("--homogeneous", type=int, metavar="SEEDS", help="count how many of one distribution are split")
    parser.add_argument("--one", choices=("landmarks", "exact"), help="print what one clustering took, as JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.clients[0], asked.features, asked.one)))
        return
    print(f"{asked.features} features, p = 3, float16; {busy()}\n")
    if asked.homogeneous:
        for n in asked.clients:
            found = [split(n, asked.features, seed) for seed in range(asked.homogeneous)]
            print(f"{n:,} clients of one distribution: {sum(found)} of {len(found)} federations are split", flush=True)
        return
    if asked.store:
        print("| clients | sketch and write, s | cluster, s | newcomer, ms | the first | store, GB | clusters | ARI |")
        print("|---|---|---|---|---|---|---|---|")
        for n in asked.clients:
            row = stored(n, asked.features, asked.store)
            print(
                f"| {n:,} | {row['adding']:.1f} | {row['clustering']:.1f} | {row['newcomer']:.1f} | "
                f"{row['first']:.1f} | {row['gigabytes']:.3f} | {row['clusters']:.0f} | {row['ari']:.4f} |",
                flush=True,
            )
        return
    print("| clients | method | seconds | of the processor | bare product | peak GB | clusters | ARI |")
    print("|---|---|---|---|---|---|---|---|")
    for method in ("landmarks", "exact") if asked.exact else ("landmarks",):
        rows = []
        for n in asked.clients:
            command = [sys.executable, "-m", __spec__.name, "--clients", str(n), "--features", str(asked.features)]
            done = subprocess.run([*command, "--one", method], check=True, capture_output=True, text=True)
            row = json.loads(done.stdout)
            rows.append(row)
            print(
                f"| {n:,} | {method} | {row['seconds']:.1f} | {row['processor']:.1f} | {row['product']:.2f} | "
                f"{row['peak']:.2f} | {row['clusters']} | {row['ari']:.4f} |",
                flush=True,
            )
        if len(rows) > 1:
            grown = {key: exponent(asked.clients, [row[key] for row in rows]) for key in ("processor", "peak")}
            print(f"\n{method}: processor n^{grown['processor']:.2f}, peak memory n^{grown['peak']:.2f}\n")


if __name__ == "__main__":
    main()
