"""Is this version as fast as another one? `python -m benchmarks.versions OLD [--new PATH] [--repeats 5]`.

OLD and PATH are wheels or source folders. Both versions run the same commands on generated data, in processes of their
own that alternate, so that other load slows both equally. A ratio is the median over repeats of new / old seconds.
Processor seconds depend less on other load than elapsed seconds. All include the start of Python.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from benchmarks.timing import busy, spread
from studies.same_bits import importable

# Only settings with the same name in most versions; --old-experiment is for the others
EXPERIMENT: Final = """
[data]
name = "generated"
clients = 20
scheme = { kind = "iid" }

[model]
name = "lenet5"

[learning]
epochs = 5
lr = 0.01

[schedule]
rounds = 20

[[algorithm]]
name = "fedavg"
"""
RUNS: Final = {
    "run, native engine, LeNet-5": ("native", "lenet5", 1.0),
    "run, native engine, MLP": ("native", "mlp", 1.0),
    "run, eager engine, LeNet-5": ("eager", "lenet5", 0.2),  # of the rounds
}
PER_CLIENT: Final = 250


class Cost(NamedTuple):
    """Seconds of one command."""

    processor: float
    elapsed: float


def generate(place: Path, n_files: int) -> None:
    """A data set of 3x32x32 images, and files of clients in two groups, 100 samples of 256 features each."""
    rng = np.random.default_rng(0)
    centres = rng.integers(0, 256, (10, 32, 32, 3))

    def images(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 10, n)
        return ((centres[y] + rng.integers(0, 256, (n, 32, 32, 3))) // 2).astype(np.uint8), y

    (x_train, y_train), (x_test, y_test) = images(20 * PER_CLIENT), images(1000)
    np.savez(place / "generated.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    (place / "clients").mkdir()
    spreads = rng.gamma(1.0, size=(2, 256))
    for i in range(n_files):
        np.save(place / "clients" / f"{i:04}.npy", spreads[i % 2] * rng.standard_normal((100, 256)))


def command(workload: str, place: Path, experiment: Path, rounds: int) -> list[str]:
    """What follows `pacfl` on the command line."""
    if workload not in RUNS:
        return ["cluster", *map(str, sorted((place / "clients").iterdir())), "--json"]
    engine, model, share = RUNS[workload]
    settings = (f"model.name={model}", f"schedule.rounds={max(round(share * rounds), 1)}")
    options = ["--engine", engine, "--data", str(place), "--runs", str(place / "runs"), "--workers", "1", "--json"]
    return ["run", str(experiment), *options, *(word for setting in settings for word in ("--set", setting))]


def cost(code: Path, words: list[str]) -> Cost:
    """Run one command with the code in a folder."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pacfl.cli", *words],
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{code}: pacfl {words[0]}: {done.stderr}")
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, elapsed)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a wheel, or a folder with its source")
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1], help="default: this source folder")
    parser.add_argument("--old-experiment", type=Path, help="the same experiment with the old names of settings")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20, help="of the runs")
    parser.add_argument("--files", type=int, default=300, help="clients of pacfl cluster")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pacfl-versions-") as name:
        place = Path(name)
        generate(place, args.files)
        (place / "experiment.toml").write_text(EXPERIMENT)
        experiments = {"old": args.old_experiment or place / "experiment.toml", "new": place / "experiment.toml"}
        codes = {"old": importable(args.old, place / "old"), "new": importable(args.new, place / "new")}
        print(f"{args.repeats} repeats, {busy()}.\n")
        print("| | old, processor s | new, processor s | ratio | old, elapsed s | new, elapsed s | ratio |")
        print("|---|---|---|---|---|---|---|")
        for workload in (*RUNS, f"cluster, {args.files} files"):
            costs: dict[str, list[Cost]] = {"old": [], "new": []}
            for i in range(-1, args.repeats):  # the first is not counted: it compiles and fills caches
                for version in sorted(costs, reverse=i % 2 == 0):
                    words = command(workload, place, experiments[version], args.rounds)
                    spent = cost(codes[version], words)
                    shutil.rmtree(place / "runs", ignore_errors=True)
                    if i >= 0:
                        costs[version].append(spent)
            cells = []
            for kind in Cost._fields:
                old, new = ([getattr(one, kind) for one in costs[version]] for version in ("old", "new"))
                ratio = median(b / a for a, b in zip(old, new, strict=True))
                cells += [spread(old), spread(new), f"{ratio:.2f}"]
            print(f"| {workload} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
