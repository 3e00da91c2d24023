"""What Flower costs: `python -m benchmarks.flower [--rounds 6] [--sites 2]`.

PACFL on the digits of pacfl.flower.digits: on the local backend, on Flower's simulation, and deployed on loopback with
TLS and authentication, with warm workers beside the SuperNodes and without. Seconds per round are medians after the
first round, which includes the signatures. Processor seconds of the parts of a message are measured in separate
processes and do not depend on other load.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
from flwr.app import Context, RecordDict

from pacfl import algorithms
from pacfl.experiment.store import RunFolder
from pacfl.federation.client_side import ClientIndices, Pool, Setup
from pacfl.federation.local import LocalBackend
from pacfl.federation.rounds import Backend, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import digits, health
from pacfl.flower.deploy import layout, loopback
from pacfl.flower.simulation import simulation
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import as_model

LEARNING = LocalTraining(epochs=2, batch_size=10, lr=0.05, momentum=0.5)
PATIENCE = 900.0  # seconds until a deployed federation must have finished

# Imports of a client's process for one message
PARTS: Mapping[str, str] = {
    "Python": "pass",
    "Python and Flower": "import flwr.supernode.cli.flwr_clientapp",
    "... and our thin client": "import flwr.supernode.cli.flwr_clientapp, pacfl.flower.client_app",
    "... and torch, scipy, scikit-learn": "import flwr.supernode.cli.flwr_clientapp, pacfl.flower.client_app, "
    "pacfl.flower.client_handlers, pacfl.flower.digits, sklearn.datasets",
}


def pooled(partitions: Sequence[int]) -> Pool:
    """Data of all sites in one pool, for the backends that run in one place."""
    contexts = (Context(0, 0, {"partition-id": i}, RecordDict(), {}) for i in partitions)
    sites = [digits.load_data(context).pool(0) for context in contexts]
    client_indices, n_train, n_test = [], 0, 0
    for site in sites:
        (own,) = site.client_indices
        client_indices.append(ClientIndices(own.train + n_train, own.test + n_test))
        n_train, n_test = n_train + len(site.train.y), n_test + len(site.test.y)
    raw = np.concatenate([site.raw for site in sites])
    train, test = (_joined([getattr(site, name) for site in sites]) for name in ("train", "test"))
    return Pool(train, test, raw, tuple(client_indices))


def _joined(parts: Sequence[Samples]) -> Samples:
    return Samples(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))


def run_rounds(backend: Backend, n_sites: int, n_rounds: int) -> float:
    """Median seconds per round on a backend."""
    algorithm, model = algorithms.build("pacfl"), as_model(digits.build_model, 0)
    plan = list(round_plans(Schedule(rounds=n_rounds, participation=1.0, evaluate_every=1), n_sites, 0))[:n_rounds]
    times = []
    with backend.connect(Setup(algorithm, model, pooled(range(n_sites)), LEARNING, 0)) as connected:
        before = time.perf_counter()
        for _ in rounds(algorithm, connected, algorithm.init_server(model), plan):
            times.append(time.perf_counter() - before)
            before = time.perf_counter()
    return median(times[1:])


def deployed(n_sites: int, n_rounds: int, warm: bool) -> tuple[float, float]:
    """Seconds to start a federation on loopback, and median seconds per round."""
    with tempfile.TemporaryDirectory(prefix="pacfl-") as name:
        folder = Path(name) / "d"
        federation = {"minimum-clients": n_sites, "poll": 0.1}
        settings = {
            "federation": federation,
            "schedule": {"rounds": n_rounds, "participation": 1.0},
            "learning": asdict(LEARNING),
        }
        layout.make(folder, [str(i) for i in range(n_sites)], settings=settings)
        if not warm:
            for script in (folder / "sites").glob("*/start.sh"):
                script.write_text(script.read_text().replace('worker=\\"$worker\\"', ""))
        began = time.time()
        try:
            list(loopback.up(folder))
            started = time.time()
            where = loopback.federation(folder)
            while (health.read(where) or {}).get("phase") != "finished":
                if time.time() - started > PATIENCE:
                    raise TimeoutError(f"not finished within {PATIENCE} s: {health.read(where)}")
                time.sleep(0.5)
            ends = [record["at"] for record in RunFolder(where).records()][:n_rounds]
        finally:
            list(loopback.down(folder))
    return started - began, median(b - a for a, b in pairwise(ends))


def processor_seconds(code: str, repeats: int = 3) -> float:
    """Least user and system time of a new process."""
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> None:
    """Print two tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--sites", type=int, default=2)
    args = parser.parse_args()
    print("| a client's process | processor seconds |\n|---|---|")
    for name, code in PARTS.items():
        print(f"| {name} | {processor_seconds(code):.2f} |", flush=True)
    print(f"\n| {args.sites} sites, {args.rounds} rounds | seconds per round | seconds to start |\n|---|---|---|")
    print(f"| local | {run_rounds(LocalBackend(), args.sites, args.rounds):.3f} | - |", flush=True)
    began = time.perf_counter()
    with simulation() as nodes:
        start = time.perf_counter() - began
        print(f"| simulated | {run_rounds(nodes, args.sites, args.rounds):.3f} | {start:.0f} |", flush=True)
    for warm, name in ((True, "deployed, warm workers"), (False, "deployed, torch imported for every message")):
        start, seconds = deployed(args.sites, args.rounds, warm)
        print(f"| {name} | {seconds:.1f} | {start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
