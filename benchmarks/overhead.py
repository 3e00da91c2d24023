"""Where a run spends its time: python -m benchmarks.overhead experiments/mix4.toml --data D --set schedule.rounds=4.

Everything but local training and evaluation is overhead. Costs per run (reading data, signatures, clustering) and per
round are separated, so that a few rounds predict the share of a longer run.
"""

import argparse
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pacfl.algorithms import PACFL
from pacfl.experiment import run as pipeline
from pacfl.experiment.config import read
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.federation.local import LocalBackend, LocalClients

ONCE = {
    "data": (pipeline, "build"),
    "profiles": (LocalClients, "profile"),
    "clustering": (PACFL, "admit"),
    "descriptions": (RunFolder, "describe"),
}
Spent = defaultdict[str, list[float]]  # seconds of every call, by part

EVERY_ROUND = {"records": (RunFolder, "append"), "checkpoints": (RunFolder, "save_checkpoint")}
USEFUL = {"training": (LocalClients, "train"), "evaluation": (LocalClients, "evaluate")}


def timed(spent: Spent, name: str, function: Callable[..., Any], now: Callable[[], float]) -> Callable[..., Any]:
    """The same function, with its seconds recorded."""

    def wrapped(*args: Any, **options: Any) -> Any:
        started = now()
        try:
            return function(*args, **options)
        finally:
            spent[name].append(now() - started)

    return wrapped


def main() -> None:
    """Run the experiment in a temporary folder, and print where the time went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--processor", action="store_true", help="processor seconds; needs one worker")
    parser.add_argument("--extrapolate", type=int, default=50, help="rounds of the longer run to predict")
    args = parser.parse_args()
    now = time.process_time if args.processor else time.perf_counter  # without other load on the machine
    spent: Spent = defaultdict(list)
    for name, (owner, method) in {**ONCE, **EVERY_ROUND, **USEFUL}.items():
        setattr(owner, method, timed(spent, name, getattr(owner, method), now))
    for run in read(args.file, tuple(args.settings)):
        spent.clear()
        with tempfile.TemporaryDirectory() as folder:
            started = now()
            for _ in pipeline.resume(run, folder_of(run, Path(folder)), args.data, LocalBackend(args.workers)):
                pass
            total = now() - started
        print(f"{run.label()}: {run.schedule.rounds} rounds, {total:.1f} s with {args.workers} workers")
        print_shares(spent, total, run.schedule.rounds, args.extrapolate)
    peaks = [resource.getrusage(who).ru_maxrss / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"peak memory: {peaks[0]:.2f} GB in this process, {peaks[1]:.2f} GB in the largest of its workers")


def print_shares(spent: Spent, total: float, rounds: int, longer: int) -> None:
    """Print seconds and share of every part, and the share of the overhead."""
    seconds = {name: sum(spent[name]) for name in (*ONCE, *EVERY_ROUND, *USEFUL)}
    seconds["the rest"] = total - sum(seconds.values())
    for name, part in seconds.items():
        print(f"  {name:<14}{part:9.2f} s {100 * part / total:6.1f} %")
    times = longer / max(rounds, 1)
    *evaluations, last = spent["evaluation"]
    useful = (seconds["training"] + sum(evaluations)) * times + last
    other = sum(seconds[name] for name in (*ONCE, "the rest")) + sum(seconds[name] for name in EVERY_ROUND) * times
    here = 1 - sum(seconds[name] for name in USEFUL) / total
    print(f"  outside training and evaluation: {100 * here:.1f} % of this run,")
    print(f"  and {100 * other / (other + useful):.1f} % of one of {longer} rounds that is evaluated as often")


if __name__ == "__main__":
    main()
