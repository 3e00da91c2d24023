"""Is a run that is killed again and again the same in the end? `python -m studies.kills [--times 50]`."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
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
    """What came of it."""

    kills: int
    while_playing: int  # the others came while it started: they cost nothing
    played_again: int  # rounds that were recorded but not yet kept
    experiments: int  # that went to their end, each with the same bytes as the one that was never killed
    seconds: float


def survived(place: Path, times: int, seed: int = 0, rounds: int = 60, workers: int = 2) -> Survival:
    """Kill `pacfl run` at moments drawn evenly from its life, until it was killed so often; compare all bytes."""
    started = time.monotonic()
    (place / "experiment.toml").write_text(EXPERIMENT.format(rounds=rounds))
    expected, lasted = _undisturbed(place, "whole", workers), time.monotonic() - started
    rng = np.random.default_rng(seed)
    kills = while_playing = again = experiments = 0
    while kills < times:
        name = f"killed-{experiments}"
        while kills < times and _killed(place, name, workers, after=float(rng.uniform(0, lasted))):
            unfinished = [folder for folder in all_folders(place / name) if folder.result() is None]
            kills += 1
            while_playing += any(folder.records() for folder in unfinished)
            again += sum(map(_lost, unfinished))
        if (found := _undisturbed(place, name, workers)) != expected:
            raise AssertionError(f"{place / name} differs in {sorted(dict(found.items() ^ expected.items()))}")
        experiments += 1
    return Survival(kills, while_playing, again, experiments, time.monotonic() - started)


def left(folder: Path) -> dict[str, bytes]:
    """Every file in a folder and its folders, without the seconds that runs took."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.name == "result.json":
            result = {key: value for key, value in json.loads(content).items() if key != "seconds"}
            content = json.dumps(result).encode()
        if not path.name.startswith(".run.json."):  # of a process that was killed before it began
            found[str(path.relative_to(folder))] = content
    return found


def _lost(folder: RunFolder) -> int:
    """Rounds that are recorded and will be played again: at most the one that was unfinished."""
    recorded = len(folder.records())
    kept = checkpoint.load(folder.path, at_most=recorded)
    lost = recorded - (kept[0]["round"] if kept else 0)
    if lost > 1:
        raise AssertionError(f"{folder.path} lost {lost} rounds")
    return lost


def _undisturbed(place: Path, name: str, workers: int) -> dict[str, bytes]:
    if _killed(place, name, workers, after=None):
        raise AssertionError("nobody was to be killed")
    return left(place / name)


def _killed(place: Path, name: str, workers: int, after: float | None) -> bool:
    """Let it run for so many seconds; whether it had to be killed then."""
    options = ("--runs", str(place / name), "--workers", str(workers), "--json")
    command = [sys.executable, "-m", "pacfl.cli", "run", str(place / "experiment.toml"), *options]
    with (place / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            code = process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    if code:
        raise AssertionError(f"{' '.join(command)}: exit code {code}\n{(place / 'log').read_text()}")
    return False


def main() -> None:
    """Kill, and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pacfl-kills-") as place:
        told = survived(Path(place), asked.times, asked.seed, asked.rounds, asked.workers)
    print("| kills | while playing | rounds played again | experiments ended, all bytes the same | seconds |")
    print("|---|---|---|---|---|")
    print(f"| {told.kills} | {told.while_playing} | {told.played_again} | {told.experiments} | {told.seconds:.0f} |")


if __name__ == "__main__":
    main()
