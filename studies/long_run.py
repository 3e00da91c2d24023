"""Does anything grow with the rounds, or with clients that come and leave? `python -m studies.long_run`."""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pacfl.data import digits
from pacfl.experiment.config import Run, expand
from pacfl.experiment.run import resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.learning.randomness import stream

SAMPLES = 10  # per client of a crowd
PRESENT = 100  # clients of a crowd at a time
COMING = 5  # clients of a crowd that join in each round; as many leave for good
LEARNING = {"epochs": 1, "lr": 0.05}


@dataclass(frozen=True)
class Sample:
    """Sizes and times after some rounds."""

    rounds: int
    clients: int  # that have taken part so far
    memory: float  # MB of this process
    files: int  # without rounds.jsonl
    megabytes: float  # in them
    records: float  # MB of rounds.jsonl
    milliseconds: float  # per round since the last sample
    processor: float  # milliseconds of the processor among them


HEADINGS = ("rounds", "clients so far", "memory, MB", "files", "in them, MB", "records, MB", "ms per round", "CPU")


def churning(rounds: int, algorithm: str) -> Run:
    """Digits, 40 of 60 clients present: in every round one leaves and one returns."""
    here, away = list(range(40)), list(range(40, 60))
    joins: dict[str, list[int]] = {}
    leaves: dict[str, list[int]] = {}
    for t in range(2, rounds + 1):
        i, j = (int(stream(0, "churn", t - 1, k).integers(n)) for k, n in enumerate((len(here), len(away))))
        leaves[str(t)], joins[str(t)] = [here[i]], [away[j]]
        here[i], away[j] = away[j], here[i]
    scheme = {"kind": "by-set", "counts": [15, 15, 15, 15], "size": 60}
    schedule = {"rounds": rounds, "participation": 0.1, "evaluate-every": 100, "joins": joins, "leaves": leaves}
    return _run({"name": "digits", "clients": 60, "scheme": scheme}, schedule, algorithm)


def crowd(n: int, algorithm: str, folder: Path) -> Run:
    """A crowd of n clients: each has samples of one class, stays for 20 rounds and leaves for good."""
    source, rng = digits(("upright",)), np.random.default_rng(0)
    rows = rng.integers(len(source.y_train), size=n * SAMPLES)
    noise = rng.integers(0, 2, (len(rows), *source.shape), dtype=np.uint8)
    x_train, y_train = source.x_train[rows] + noise, source.y_train[rows]
    np.savez(folder / "crowd.npz", x_train=x_train, y_train=y_train, x_test=source.x_test, y_test=source.y_test)
    rounds = (n - PRESENT) // COMING
    cohorts = [list(range(COMING * t, COMING * (t + 1))) for t in range(n // COMING)]
    leaves = {str(t + 1): cohorts[t - 1] for t in range(1, rounds + 1)}
    joins = {str(t + 1): cohorts[t - 1 + PRESENT // COMING] for t in range(1, rounds + 1)}
    schedule = {"rounds": rounds + 1, "participation": 0.1, "evaluate-every": 100, "joins": joins, "leaves": leaves}
    return _run({"name": "crowd", "clients": n, "scheme": {"kind": "label-skew", "share": 0.1}}, schedule, algorithm)


def samples_of(run: Run, runs: Path, data: Path, every: int) -> Iterator[Sample]:
    """Run, and take a sample every so many rounds."""
    folder = folder_of(run, runs)
    seen: set[str] = set()
    since = np.array([time.monotonic(), time.process_time()])
    for t, record in enumerate(resume(run, folder, data)):
        seen |= set(record.get("cluster_of", ()))
        if (t + 1) % every == 0 and t < run.schedule.rounds:
            spent = 1e3 * (np.array([time.monotonic(), time.process_time()]) - since) / every
            yield Sample(t + 1, len(seen), resident(), *sizes(folder), *spent.tolist())
            since = np.array([time.monotonic(), time.process_time()])


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def sizes(folder: RunFolder) -> tuple[int, float, float]:
    """Number of files without rounds.jsonl, MB in them, and MB of rounds.jsonl."""
    found = {path.name: path.stat().st_size for path in folder.path.rglob("*") if path.is_file()}
    records = found.pop("rounds.jsonl")
    return len(found), sum(found.values()) / 1e6, records / 1e6


def _run(data: dict[str, Any], schedule: dict[str, Any], algorithm: str) -> Run:
    table = {"data": data, "model": {"name": "logistic"}, "learning": LEARNING, "schedule": schedule}
    (run,) = expand({**table, "engine": "eager", "algorithm": {"name": algorithm}})
    return run


def _print(title: str, samples: Iterator[Sample]) -> None:
    print(f"\n{title}\n\n| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for sample in samples:
        cells = (f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in astuple(sample))
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="with churn on digits; 0: none")
    parser.add_argument("--crowd", type=int, default=10_000, help="clients that join and leave for good; 0: none")
    parser.add_argument("--algorithm", default="pacfl")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pacfl-long-") as name:
        place = Path(name)
        if args.rounds:
            run = churning(args.rounds, args.algorithm)
            samples = samples_of(run, place, place, max(args.rounds // 10, 1))
            _print(f"{args.algorithm}, 40 of 60 clients present, one leaves and one returns in every round", samples)
        if args.crowd:
            run = crowd(args.crowd, args.algorithm, place)
            samples = samples_of(run, place, place, max(run.schedule.rounds // 10, 1))
            _print(f"{args.algorithm}, {PRESENT} present of {args.crowd:,} that join and leave for good", samples)


if __name__ == "__main__":
    main()
