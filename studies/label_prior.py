"""Whose class shares does a shared model have? `python -m studies.label_prior [--data FOLDER] [--seeds 2]`.

The label prior corrects a model for the samples that it was trained on. FedAvg is trained once in each case, and the
received models are corrected with the shares of the last round alone, with those that pacfl uses, where the model as
sent counts as one more client of each round, and with those of all rounds together. Accuracies are on samples that
clients hold out of their training samples: no test sample is used.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.experiment.config import Run, expand
from pacfl.experiment.run import build
from pacfl.federation.client_side import ClientSide, Pool
from pacfl.federation.label_prior import class_counts, prior_shift, remembered
from pacfl.federation.local import LocalBackend, LocalClients
from pacfl.federation.rounds import rounds
from pacfl.learning.client_context import SampleSubset

Array = NDArray[np.float64]

N_CLASSES, N_ROUNDS, EVALUATED = 10, 30, (10, 15, 20, 25, 30)
SCHEMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "Dirichlet 0.1": {"kind": "dirichlet", "alpha": 0.1},
    "label skew 20 %": {"kind": "label-skew", "share": 0.2},
}
TRAININGS: Final = ((15, 0.01), (5, 0.01), (1, 0.01), (1, 0.001))  # local epochs, learning rate
COLUMNS: Final = ("not corrected", "last round", "the model as one more client", "all rounds")


def described(scheme: str, epochs: int, lr: float, seed: int) -> Run:
    """FedAvg on Fashion-MNIST, a fifth of each client's training samples held out."""
    (run,) = expand(
        {
            "seeds": [seed],
            "data": {"name": "fmnist", "clients": 60, "scheme": SCHEMES[scheme], "validation": 0.2},
            "model": {"name": "lenet5"},
            "learning": {"epochs": epochs, "lr": lr, "momentum": 0.5},
            "schedule": {"rounds": N_ROUNDS, "participation": 0.1},
            "algorithm": [{"name": "fedavg"}],
        }
    )
    return run


def accuracies(run: Run, data: Path | None) -> Iterator[list[float]]:
    """Of each of the columns, in percent, in every evaluated round."""
    experiment = build(run, data)
    pool, algorithm = experiment.setup.pool, experiment.setup.algorithm
    counts = [class_counts(pool.train.y[own.train], N_CLASSES) for own in pool.client_indices]
    total, ours = np.zeros(N_CLASSES), np.zeros(N_CLASSES)
    with LocalBackend().connect(experiment.setup) as clients:
        state = algorithm.init_server(experiment.setup.model)
        for done in rounds(algorithm, clients, state, experiment.plans[:N_ROUNDS]):
            last = np.sum([counts[c] for c in done.plan.sampled], axis=0).astype(np.float64)
            total, ours = total + last, remembered(ours, last / last.sum(), len(done.plan.sampled))
            if done.t + 1 in EVALUATED:
                shares = [None, *(one / one.sum() for one in (last, ours, total))]
                yield corrected(clients, pool, counts, done.state.models[0], shares)


def corrected(
    clients: LocalClients, pool: Pool, counts: list[NDArray[np.int64]], w: Any, shares: list[Array | None]
) -> list[float]:
    """The mean accuracy over clients of a model, corrected with each of the shares."""
    side: ClientSide = clients.side
    right: list[list[float]] = []
    for own, n in zip(pool.client_indices, counts, strict=True):
        if len(own.test):
            logits = side.engine.evaluate(w, SampleSubset(pool.test, own.test))[0]
            shifts = [0.0 if q is None else prior_shift(n, q) for q in shares]
            right.append([float(((logits + s).argmax(axis=1) == pool.test.y[own.test]).mean()) for s in shifts])
    means: list[float] = (100 * np.mean(right, axis=0)).tolist()
    return means


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    print(f"| data | epochs | lr | {' | '.join(COLUMNS)} |\n|---|---|---|{'---|' * len(COLUMNS)}")
    for scheme in SCHEMES:
        for epochs, lr in TRAININGS:
            runs = (described(scheme, epochs, lr, 100 + seed) for seed in range(options.seeds))
            mean = np.mean([row for run in runs for row in accuracies(run, options.data)], axis=0)
            print(f"| {scheme} | {epochs} | {lr:g} | {' | '.join(f'{a:.1f}' for a in mean)} |", flush=True)


if __name__ == "__main__":
    main()
