"""Whole runs: an experiment of the paper, and workloads for which other frameworks publish figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.timing import CORES, busy, interleaved, spread
from benchmarks.training_peers import Simulated, flower, pfl_research
from benchmarks.training_work import LEARNING, NETS, clients
from pacfl.algorithms import FedAvg
from pacfl.experiment.config import expand
from pacfl.experiment.run import build
from pacfl.federation.client_side import Setup
from pacfl.federation.local import LocalBackend, LocalClients
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import RoundPlan, Schedule, round_plans
from pacfl.learning.native.engine import Native

MIX4M: dict[str, Any] = {
    "data": {
        "name": "mix4",
        "sets": ["cifar10", "mnist_m", "fmnist", "usps"],
        "clients": 100,
        "scheme": {"kind": "by-set", "counts": [32, 26, 28, 14], "size": 500},
    },
    "model": {"name": "lenet5"},
    "learning": {"epochs": 5, "batch_size": 10, "lr": 0.01, "momentum": 0.5},
    "algorithm": {"name": "pacfl"},
}


@contextmanager
def counted(owner: type, methods: tuple[str, ...]) -> Iterator[list[float]]:
    """Seconds of every call of some methods, in all threads."""
    spent: list[float] = []
    before = {name: getattr(owner, name) for name in methods}

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*args, **options)
            finally:
                spent.append(time.perf_counter() - started)

        return call

    for name, method in before.items():
        setattr(owner, name, timed(method))
    try:
        yield spent
    finally:
        for name, method in before.items():
            setattr(owner, name, method)


def whole_run(data: Path | None, n_rounds: int) -> None:
    """PACFL on MIX-4m: the native engine on all cores, once before and twice after the eager loop."""
    schedule = {"rounds": n_rounds, "participation": 0.1, "evaluate_every": 10}
    (run,) = expand({**MIX4M, "schedule": schedule})
    experiment = build(run, data)

    def seconds_of(engine: str, workers: int) -> float:
        started = time.perf_counter()
        with LocalBackend(workers).connect(replace(experiment.setup, engine=engine)) as connected:
            for _ in experiment.rounds(connected, {}):
                pass
        return time.perf_counter() - started

    with counted(Native, ("sgd", "gradient", "losses")) as inside:
        native = [seconds_of("native", CORES)]
        plain = seconds_of("eager", 1)
        native += [seconds_of("native", CORES) for _ in range(2)]
    print(f"\nPACFL on MIX-4m, {n_rounds} rounds, 10 of 100 clients, 5 epochs, evaluated every 10 rounds; {busy()}.\n")
    print("| | seconds | times faster than eager | inside the engine |\n|---|---|---|---|")
    share = 100 * sum(inside) / (CORES * sum(native))
    print(f"| native engine, {CORES} threads | {spread(native)} | {plain / median(native):.1f} | {share:.0f} % |")
    print(f"| eager engine, one worker | {plain:.0f} | 1 | |")


PUBLISHED = {
    "logistic regression, 1,000 clients of 60 samples, 10 a round (FLUTE)": ("logistic", 1000, 60, 10),
    "small CNN, 1,000 users of 50 samples, 50 a round (pfl-research)": ("small-cnn", 1000, 50, 50),
}


def published(n_rounds: int, repeats: int, with_flower: bool) -> None:
    """Rounds of FedAvg with one epoch of batches of 10, by every installed framework."""
    for title, (name, n_clients, n_samples, sampled) in PUBLISHED.items():
        net, pool = NETS[name], clients(NETS[name], n_clients, n_samples)
        plan = list(round_plans(Schedule(rounds=n_rounds, participation=sampled / n_clients), n_clients, 0))
        with ExitStack() as stack:
            tasks: dict[str, Callable[[], object]] = {}
            for engine, workers in (("native", CORES), ("eager", CORES)):
                setup = Setup(FedAvg(), net.model(), pool, LEARNING, 0, engine=engine)
                started = stack.enter_context(LocalBackend(workers).connect(setup))
                tasks[f"our {engine} engine"] = partial(_federate, started, plan[:n_rounds])  # the last only evaluates
            if with_flower and find_spec("flwr"):
                simulated = stack.enter_context(flower(name, n_clients, n_samples, CORES))
                tasks["Flower on Ray"] = partial(_simulate, simulated, sampled, n_rounds)
            if find_spec("pfl"):
                for cores in {1, CORES}:
                    tasks[f"pfl-research, {cores} threads"] = partial(pfl_research, net, pool, sampled, n_rounds, cores)
            for task in tasks.values():  # starts the workers
                task()
            times = interleaved(tasks, repeats)
        print(f"\n{title}; {repeats} repeats of {n_rounds} rounds; {busy()}.\n")
        print("| | seconds for 100 rounds | times slower than native |\n|---|---|---|")
        base = median(times["our native engine"])
        for who, seconds in times.items():
            print(f"| {who} | {spread([100 * s / n_rounds for s in seconds])} | {median(seconds) / base:.1f} |")


def _federate(connected: LocalClients, plan: list[RoundPlan]) -> None:
    algorithm, model = connected.side.algorithm, connected.side.model
    for _ in rounds(algorithm, connected, algorithm.init_server(model), plan):
        pass


def _simulate(simulated: Simulated, sampled: int, n_rounds: int) -> None:
    for t in range(n_rounds):
        chosen = np.random.default_rng(t).choice(len(simulated.nodes), sampled, replace=False)
        simulated.train([simulated.nodes[i] for i in chosen])
