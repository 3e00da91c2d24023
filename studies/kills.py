"""Does a run that is killed and resumed many times give the same bytes? `python -m studies.kills [--times 50]`."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pacfl.experiment import checkpoint
from pacfl.experiment.store import RunFolder, all_folders

EXPERIMENT = """
engine = "eager"

[data]
name = "digits"
clients = 12
scheme = {{ kind = "by-set", counts = [3, 3, 3, 3], size = 60 }}

[model]
name = "logistic"

[learning]
epochs = 1
lr = 0.05

[schedule]
rounds = {rounds}
participation = 0.5
evaluate-every = 10
client-dropout = 0.1

[[algorithm]]
name = "scaffold"

[[algorithm]]
name = "pacfl"
"""


@dataclass(frozen=True)
class Survival:
    """Counts over all experiments, each of which ended with the bytes of an undisturbed one."""

    kills: int
    while_running: int  # the other kills came during start-up and cost nothing
    rounds_rerun: int  # recorded, but not yet in a checkpoint
    experiments: int
    seconds: float


def kill_repeatedly(place: Path, times: int, seed: int = 0, rounds: int = 60, workers: int = 2) -> Survival:
    """Kill `pacfl run` at uniformly drawn moments, this many times in all, and compare all bytes at the end."""
    started = time.monotonic()
    (place / "experiment.toml").write_text(EXPERIMENT.format(rounds=rounds))
    expected, duration = _undisturbed(place, "whole", workers), time.monotonic() - started
    rng = np.random.default_rng(seed)
    kills = while_running = rerun = experiments = 0
    while kills < times:
        name = f"killed-{experiments}"
        while kills < times and killed(place, name, workers, after(float(rng.uniform(0, duration)))):
            unfinished = [folder for folder in all_folders(place / name) if folder.result() is None]
            kills += 1
            while_running += any(folder.records() for folder in unfinished)
            rerun += sum(map(rounds_lost, unfinished))
        if (found := _undisturbed(place, name, workers)) != expected:
            raise AssertionError(f"{place / name} differs in {sorted(dict(found.items() ^ expected.items()))}")
        experiments += 1
    return Survival(kills, while_running, rerun, experiments, time.monotonic() - started)


def files_of_runs(folder: Path) -> dict[str, bytes]:
    """Content of every file below a folder, without the seconds that runs took."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.name == "result.json":
            result = {key: value for key, value in json.loads(content).items() if key != "seconds"}
            content = json.dumps(result).encode()
        killed_early = path.name.startswith(".run.json.")  # before its first round
        if not killed_early and path.name != "processor.json":
            found[str(path.relative_to(folder))] = content
    return found


def rounds_lost(folder: RunFolder) -> int:
    """Recorded rounds that will be rerun: at most one."""
    recorded = len(folder.records())
    saved = checkpoint.load(folder.path, at_most=recorded)
    lost = recorded - (saved[0]["round"] if saved else 0)
    if lost > 1:
        raise AssertionError(f"{folder.path} lost {lost} rounds")
    return lost


def _undisturbed(place: Path, name: str, workers: int) -> dict[str, bytes]:
    if killed(place, name, workers, lambda: False):
        raise AssertionError("an undisturbed run was killed")
    return files_of_runs(place / name)


def after(seconds: float) -> Callable[[], bool]:
    """True when so many seconds have passed."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def killed(place: Path, name: str, workers: int, now: Callable[[], bool]) -> bool:
    """Run or resume the experiment in a folder until it ends or is killed, which is as soon as `now()` is true."""
    options = ("--runs", str(place / name), "--workers", str(workers), "--json")
    command = [sys.executable, "-m", "pacfl.cli", "run", str(place / "experiment.toml"), *options]
    with (place / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        while process.poll() is None:
            if now():
                process.kill()
                return True
            time.sleep(0.002)
    if process.returncode:
        raise AssertionError(f"{' '.join(command)}: exit code {process.returncode}\n{(place / 'log').read_text()}")
    return False


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pacfl-kills-") as place:
        found = kill_repeatedly(Path(place), args.times, args.seed, args.rounds, args.workers)
    print("| kills | while running | rounds rerun | finished experiments, all bytes the same | seconds |")
    print("|---|---|---|---|---|")
    print(
        f"| {found.kills} | {found.while_running} | {found.rounds_rerun} | {found.experiments} | {found.seconds:.0f} |"
    )


if __name__ == "__main__":
    main()
