"""What Ray costs with many clients: `python -m benchmarks.simulation [--clients 1000] [--rounds 5] [--repeats 3]`.

FedAvg on clients of a few digits each, all in every round and all evaluated at the end, on the local backend and on
Flower's simulation, in turn. Starting Ray, which takes place once for all runs of a file, is shown apart.
"""

import argparse
import time
from functools import partial
from statistics import median

import numpy as np

from benchmarks.timing import busy, interleaved, spread
from pacfl.algorithms import build
from pacfl.data import digits, normalised
from pacfl.federation.client_side import ClientIndices, Pool, Setup
from pacfl.federation.local import LocalBackend
from pacfl.federation.rounds import Backend, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower.simulation import simulation
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import as_model
from pacfl.learning.nets import mlp

SAMPLES = 100  # of each client, for training
LEARNING = LocalTraining(epochs=2, batch_size=10, lr=0.05, momentum=0.5)


def crowd(n_clients: int) -> Pool:
    """Clients with digits drawn at random; all have some of the same."""
    dataset = digits(("upright",))
    x, raw = normalised(dataset), dataset.x_train
    rng = np.random.default_rng(0)
    n, m = len(x.y_train), len(x.y_test)
    own = tuple(ClientIndices(rng.choice(n, SAMPLES, replace=False), rng.choice(m, 10)) for _ in range(n_clients))
    return Pool(Samples(x.x_train[:, None], x.y_train), Samples(x.x_test[:, None], x.y_test), raw, own)


def run(backend: Backend, setup: Setup, n_rounds: int) -> None:
    """All rounds of a run."""
    plan = round_plans(Schedule(rounds=n_rounds, participation=1.0), len(setup.pool.client_indices), setup.seed)
    with backend.connect(setup) as connected:
        for _ in rounds(setup.algorithm, connected, setup.algorithm.init_server(setup.model), plan):
            pass


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    setup = Setup(build("fedavg"), as_model(lambda: mlp((1, 8, 8), 10), 0), crowd(given.clients), LEARNING, 0)
    began = time.perf_counter()
    with simulation(given.workers) as flower:
        run(flower, Setup(setup.algorithm, setup.model, crowd(4), LEARNING, 0), 1)  # processes import torch
        start = time.perf_counter() - began
        backends: dict[str, Backend] = {"local": LocalBackend(given.workers), "flower": flower}
        tasks = {name: partial(run, backend, setup, given.rounds) for name, backend in backends.items()}
        times = interleaved(tasks, given.repeats)
    ratio = median(b / a for a, b in zip(times["local"], times["flower"], strict=True))
    print(
        f"| {given.clients} clients, {given.rounds} rounds, {given.workers} workers ({busy()}) | seconds |\n|---|---|"
    )
    for name, seconds in times.items():
        print(f"| {name} | {spread(seconds)} |")
    print(f"| flower / local, median of {given.repeats} | {ratio:.2f} |\n| starting Ray, once | {start:.0f} |")


if __name__ == "__main__":
    main()
