"""Where the time of a run goes: python -m benchmarks.overhead experiments/mix4.toml --data D --set schedule.rounds=4.

Client training and evaluation are what a run is for; everything else is overhead. What is paid once (reading data,
signatures, their clustering) and what is paid for every round are told apart, so that a few rounds tell the share of a
longer run.
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
from pacfl.federation.local import Local

ONCE = {
    "data": (pipeline, "read"),
    "profiles": (Local, "profile"),
    "clustering": (PACFL, "admit"),
    "descriptions": (RunFolder, "describe"),
}
Spent = defaultdict[str, list[float]]  # seconds of every call, by part

EVERY_ROUND = {"records": (RunFolder, "append"), "checkpoints": (RunFolder, "save_checkpoint")}
WANTED = {"training": (Local, "train"), "evaluation": (Local, "evaluate")}


def timed(spent: Spent, name: str, function: Callable[..., Any], now: Callable[[], float]) -> Callable[..., Any]:
    """The same function, its seconds counted."""

    def wrapped(*args: Any, **options: Any) -> Any:
        started = now()
        try:
            return function(*args, **options)
        finally:
            spent[name].append(now() - started)

    return wrapped


def main() -> None:
    """Play every run of the experiment in a folder that is thrown away."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--processor", action="store_true", help="seconds of the processor, for one worker")
    parser.add_argument("--extrapolate", type=int, default=50, help="rounds of the run whose share is told")
    given = parser.parse_args()
    now = time.process_time if given.processor else time.perf_counter  # the former does not see who else is working
    spent: Spent = defaultdict(list)
    for name, (owner, method) in {**ONCE, **EVERY_ROUND, **WANTED}.items():
        setattr(owner, method, timed(spent, name, getattr(owner, method), now))
    for run in read(given.file, tuple(given.settings)):
        spent.clear()
        with tempfile.TemporaryDirectory() as folder:
            started = now()
            for _ in pipeline.play(run, folder_of(run, Path(folder)), given.data, given.workers):
                pass
            total = now() - started
        print(f"{run.label()}: {run.schedule.rounds} rounds, {total:.1f} s with {given.workers} workers")
        tell(spent, total, run.schedule.rounds, given.extrapolate)
    peaks = [resource.getrusage(who).ru_maxrss / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"peak memory: {peaks[0]:.2f} GB in this process, {peaks[1]:.2f} GB in the largest of its workers")


def tell(spent: Spent, total: float, rounds: int, longer: int) -> None:
    """Seconds of every part, and the share of all that is neither training nor evaluation."""
    seconds = {name: sum(spent[name]) for name in (*ONCE, *EVERY_ROUND, *WANTED)}
    seconds["the rest"] = total - sum(seconds.values())
    for name, part in seconds.items():
        print(f"  {name:<14}{part:9.2f} s {100 * part / total:6.1f} %")
    times = longer / max(rounds, 1)
    *judgements, last = spent["evaluation"]
    wanted = (seconds["training"] + sum(judgements)) * times + last
    other = sum(seconds[name] for name in (*ONCE, "the rest")) + sum(seconds[name] for name in EVERY_ROUND) * times
    here = 1 - sum(seconds[name] for name in WANTED) / total
    print(f"  outside training and evaluation: {100 * here:.1f} % of this run,")
    print(f"  and {100 * other / (other + wanted):.1f} % of one of {longer} rounds that is judged as often")


if __name__ == "__main__":
    main()
