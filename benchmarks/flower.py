"""What Flower costs: `python -m benchmarks.flower [--rounds 6] [--sites 2]`.

The same work, PACFL on the digits of pacfl.flower.digits, on the local backend, on Flower's simulation, and
deployed on loopback with TLS and authentication, with warm workers beside the SuperNodes and without. Seconds a round
are medians after the first round, which also asks for signatures; processor seconds of a message's parts come from
processes of their own, so that a busy machine does not show in them.
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
from pacfl.experiment.run import Reach
from pacfl.experiment.store import RunFolder
from pacfl.federation.client_side import ClientIndices, Pool
from pacfl.federation.local import local
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import digits, status
from pacfl.flower.deploy import layout, loopback
from pacfl.flower.simulation import simulation
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import as_model

LEARNING = LocalTraining(epochs=2, batch_size=10, lr=0.05, momentum=0.5)
PATIENCE = 900.0  # seconds for a deployed federation

# What a client's process does for one message, part by part
PARTS: Mapping[str, str] = {
    "Python": "pass",
    "Python and Flower": "import flwr.supernode.cli.flwr_clientapp",
    "... and our thin client": "import flwr.supernode.cli.flwr_clientapp, pacfl.flower.client_app",
    "... and torch, scipy, scikit-learn": "import flwr.supernode.cli.flwr_clientapp, pacfl.flower.client_app, "
    "pacfl.flower.client_handlers, pacfl.flower.digits, sklearn.datasets",
}


def pooled(partitions: Sequence[int]) -> Pool:
    """Data of sites in one pool, for the backends that have everybody at one place."""
    contexts = (Context(0, 0, {"partition-id": i}, RecordDict(), {}) for i in partitions)
    sites = [digits.load_data(context).pool(0) for context in contexts]
    shards, n_train, n_test = [], 0, 0
    for site in sites:
        shards.append(ClientIndices(site.client_indices[0].train + n_train, site.client_indices[0].test + n_test))
        n_train, n_test = n_train + len(site.train.y), n_test + len(site.test.y)
    raw = np.concatenate([site.raw for site in sites])
    return Pool(_joined([site.train for site in sites]), _joined([site.test for site in sites]), raw, tuple(shards))


def _joined(parts: Sequence[Samples]) -> Samples:
    return Samples(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))


def played(reach: Reach, n_sites: int, n_rounds: int) -> float:
    """Seconds a round on a backend of the form of `local`."""
    algorithm, model = algorithms.build("pacfl"), as_model(digits.build_model, 0)
    plan = list(round_plans(Schedule(rounds=n_rounds, participation=1.0, evaluate_every=1), n_sites, 0))[:n_rounds]
    times = []
    with reach(algorithm, model, pooled(range(n_sites)), LEARNING, 0) as backend:
        before = time.perf_counter()
        for _ in rounds(algorithm, backend, algorithm.init_server(model), plan):
            times.append(time.perf_counter() - before)
            before = time.perf_counter()
    return median(times[1:])


def deployed(n_sites: int, n_rounds: int, warm: bool) -> tuple[float, float]:
    """Seconds until the first round begins, and seconds a round, on loopback."""
    with tempfile.TemporaryDirectory(prefix="pacfl-") as name:
        folder = Path(name) / "d"
        asked = {"minimum-clients": n_sites, "poll": 0.1}
        chosen = {
            "federation": asked,
            "schedule": {"rounds": n_rounds, "participation": 1.0},
            "learning": asdict(LEARNING),
        }
        layout.make(folder, n_sites, settings=chosen)
        if not warm:
            for script in (folder / "sites").glob("*/start.sh"):
                script.write_text(script.read_text().replace('worker=\\"$worker\\"', ""))
        began = time.time()
        try:
            list(loopback.up(folder))
            started = time.time()
            where = loopback.federation(folder)
            while (status.read(where) or {}).get("phase") != "finished":
                if time.time() - started > PATIENCE:
                    raise TimeoutError(f"not finished within {PATIENCE} s: {status.read(where)}")
                time.sleep(0.5)
            ends = [record["at"] for record in RunFolder(where).records()][:n_rounds]
        finally:
            list(loopback.down(folder))
    return started - began, median(b - a for a, b in pairwise(ends))


def processor_seconds(code: str, repeats: int = 3) -> float:
    """User and system time of a fresh process, the least of some."""
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--sites", type=int, default=2)
    given = parser.parse_args()
    print("| a client's process | processor seconds |\n|---|---|")
    for name, code in PARTS.items():
        print(f"| {name} | {processor_seconds(code):.2f} |", flush=True)
    print(f"\n| {given.sites} sites, {given.rounds} rounds | seconds a round | seconds to start |\n|---|---|---|")
    print(f"| local | {played(local, given.sites, given.rounds):.3f} | - |", flush=True)
    began = time.perf_counter()
    with simulation(given.sites) as nodes:
        start = time.perf_counter() - began
        print(f"| simulated | {played(nodes.reach, given.sites, given.rounds):.3f} | {start:.0f} |", flush=True)
    for warm, name in ((True, "deployed, warm workers"), (False, "deployed, torch imported for every message")):
        start, seconds = deployed(given.sites, given.rounds, warm)
        print(f"| {name} | {seconds:.1f} | {start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
