"""Seconds of the processor and peak memory of `pacfl sign` on a large .npy file, beside another version of the source.

python -m benchmarks.sign_large --gigabytes 2 --before ../before/src

The file is made in a temporary folder (TMPDIR) and deleted. Each run is a process of its own; runs of the two versions
alternate. Seconds of the processor, not of the clock: other work on the machine hardly changes them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

import pacfl
from benchmarks.timing import busy, spread

PROGRAM = "from pacfl.cli import main; main()"


def write(path: Path, gigabytes: float, features: int) -> tuple[int, int]:
    """Numbers of 32 bits with a few leading directions, as images have; the shape of the array."""
    n = int(gigabytes * 1e9 / 4 / features)
    rng = np.random.default_rng(0)
    strength = (1 / np.arange(1, 33)).astype(np.float32)[:, None] * rng.standard_normal((32, features), np.float32)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, features))
    for start in range(0, n, 1 << 12):
        rows = len(array[start : start + (1 << 12)])
        noise = 0.2 * rng.standard_normal((rows, features), np.float32)
        array[start : start + rows] = 1 + rng.standard_normal((rows, 32), np.float32) @ strength + noise
    array.flush()
    return n, features


def signed(path: Path, output: Path, source: Path) -> tuple[float, float]:
    """Seconds of the processor and peak megabytes of one process that signs the file."""
    words = [sys.executable, "-c", PROGRAM, "sign", str(path), "-o", str(output), "--json"]
    process = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(source)}, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"signing failed with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


def main() -> None:
    """Print a line for each version, and the ratio of their seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--features", type=int, default=3072)
    parser.add_argument("--before", type=Path, help="the folder src of another version")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    versions = {"now": Path(pacfl.__file__).parents[1]} | ({"before": options.before} if options.before else {})
    with tempfile.TemporaryDirectory(prefix="pacfl-") as folder:
        path = Path(folder) / "x.npy"
        n, features = write(path, options.gigabytes, options.features)
        print(f"{path.stat().st_size / 1e9:.2f} GB, {n:,} samples of {features:,} features, float32; {busy()}")
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in versions}
        for _ in range(options.repeats):
            for name, source in versions.items():
                runs[name].append(signed(path, Path(folder) / f"{name}.sig", source))
        for name, measured in runs.items():
            print(f"| {name} | {spread([s for s, _ in measured])} s | {max(mb for _, mb in measured):,.0f} MB |")
        if options.before:
            ratios = [b[0] / a[0] for a, b in zip(runs["now"], runs["before"], strict=True)]
            print(f"times faster than before, median of interleaved pairs: {median(ratios):.2f}")


if __name__ == "__main__":
    main()
