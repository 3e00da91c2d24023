"""Does another version of pacfl compute the same bits? `python -m studies.same_bits OLD [--old-experiment FILE]`.

OLD is a wheel or a source folder of the version to compare with. Every algorithm runs with both engines, with client
dropout, newcomers and late joiners; every round's record of every client must agree to the last digit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

EXPERIMENT: Final = """
seeds = [0, 1]

[data]
name = "digits"
clients = 12
scheme = { kind = "by-set", counts = [3, 3, 3, 3], size = 40 }

[model]
name = "mlp"

[learning]
epochs = 2
batch-size = 7
lr = 0.05
momentum = 0.5
weight-decay = 0.001

[schedule]
rounds = 6
participation = 0.5
client-dropout = 0.2
evaluate-every = 1
personal-every = 3
newcomers = 2

[[algorithm]]
name = ["solo", "fedavg", "fedavg-ft", "fedprox", "fednova", "scaffold", "lg-fedavg", "per-fedavg", "pacfl"]

[[algorithm]]
name = "ifca"
clusters = [2, 3]

[[algorithm]]
name = "cfl"
eps1 = 10.0
eps2 = 0.0
first-split = 1

[[algorithm]]
name = "fedavg"
aggregation = { rule = ["uniform", "median", "trimmed-mean", "norm-clipping"] }

[[algorithm]]
name = ["fedavg", "pacfl"]
aggregation = { clip-norm = 0.5, noise-multiplier = 0.1, noise = "seeded" }

[[algorithm]]
name = "pacfl"
measure = ["sum", "trace", "entrywise"]
linkage = ["weighted", "complete", "single"]

[[algorithm]]
name = "pacfl"
threshold = [0.0, 20.0]

[[algorithm]]
name = "pacfl"
clusters = 3
per-class = true

[[algorithm]]
name = "pacfl"
signature-epsilon = 50.0
signature-noise = "seeded"
"""
ENGINES: Final = ("eager", "native")
COMPARED: Final = (
    "clients",
    "sampled",
    "bytes_down",
    "bytes_up",
    "cluster_of",
    "accuracy",
    "loss",
    "by_client",
)


def importable(version: Path, place: Path) -> Path:
    """The folder to put on PYTHONPATH for a source folder, or for a wheel, which is unpacked at `place`."""
    if version.is_dir():
        return version / "src" if (version / "src").is_dir() else version
    with zipfile.ZipFile(version) as wheel:
        wheel.extractall(place)
    return place


def records(code: Path, experiment: Path, engine: str, runs: Path) -> list[list[dict[str, Any]]]:
    """The compared fields of every round of every run of an experiment, as computed by the code in a folder."""
    words = ["run", experiment, "--engine", engine, "--runs", runs, "--workers", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "pacfl.cli", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{code} {engine}: {done.stderr}")
    hashes = [json.loads(line)["hash"] for line in done.stdout.splitlines()]
    rounds = [(runs / name / "rounds.jsonl").read_text().splitlines() for name in hashes]
    return [[{key: json.loads(line).get(key) for key in COMPARED} for line in lines] for lines in rounds]


def main() -> None:
    """Run both versions, and exit with 1 at the first difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="a wheel, or a folder with its source")
    parser.add_argument("--old-experiment", type=Path, help="the same experiment with the old names of settings")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "experiment.toml").write_text(EXPERIMENT)
        old, new = importable(args.old, place / "old"), Path(__file__).parents[1] / "src"
        for engine in ENGINES:
            theirs = records(old, args.old_experiment or place / "experiment.toml", engine, place / f"old-{engine}")
            ours = records(new, place / "experiment.toml", engine, place / f"new-{engine}")
            if len(theirs) != len(ours):
                raise SystemExit(f"{engine}: {len(theirs)} runs in the old version, {len(ours)} in the new one")
            for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
                if json.dumps(a) != json.dumps(b):
                    t = next(t for t, (x, y) in enumerate(zip(a, b, strict=True)) if json.dumps(x) != json.dumps(y))
                    raise SystemExit(f"{engine}: run {i} of the experiment differs from round {t + 1} on")
            n_rounds = sum(map(len, ours))
            print(f"{engine}: {len(ours)} runs, {n_rounds} rounds, the same bits")


if __name__ == "__main__":
    main()
