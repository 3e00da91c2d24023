"""Are the right divisions used? `python -m studies.levels --data FOLDER [--runs FOLDER] [--seeds 3 4 5]`.

One cluster, fixed cuts of its dendrogram, and levels = "validated", with and without the label prior. Runs are stored:
finished ones are not run again.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.experiment.config import Run, expand
from pacfl.experiment.description import load_clustering
from pacfl.experiment.run import resume
from pacfl.experiment.store import folder_of
from pacfl.federation.local import LocalBackend

LENET: Final[Mapping[str, Any]] = {
    "model": {"name": "lenet5"},
    "learning": {"epochs": 5, "batch-size": 10, "lr": 0.01, "momentum": 0.5},
}
SKEW: Final[Mapping[str, Any]] = {"kind": "label-skew", "share": 0.2}
DIRICHLET: Final[Mapping[str, Any]] = {"kind": "dirichlet", "alpha": 0.1}
DOMAINS: Final[Mapping[str, Any]] = {"kind": "by-set", "counts": [10, 10, 10, 10], "size": 100}
CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "CIFAR-10, label skew 20 %": {"data": {"name": "cifar10", "clients": 60, "scheme": SKEW}, **LENET},
    "CIFAR-10, Dirichlet 0.1": {"data": {"name": "cifar10", "clients": 60, "scheme": DIRICHLET}, **LENET},
    "Fashion-MNIST, label skew 20 %": {"data": {"name": "fmnist", "clients": 60, "scheme": SKEW}, **LENET},
    "Fashion-MNIST, Dirichlet 0.1": {"data": {"name": "fmnist", "clients": 60, "scheme": DIRICHLET}, **LENET},
    "digits in four domains": {
        "data": {"name": "digits", "clients": 40, "scheme": DOMAINS},
        "model": {"name": "mlp"},
        "learning": {"epochs": 5, "lr": 0.05},
    },
}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "one cluster": {"clusters": 1, "levels": "none"},
    "4 clusters": {"clusters": 4},
    "8 clusters": {"clusters": 8},
    "validated": {"clusters": 1, "levels": "validated"},
}


def described(case: str, way: str, label_prior: bool, seeds: Sequence[int]) -> list[Run]:
    """50 rounds with 20 % of the clients, tested in their own class proportions."""
    prior = {"label-prior": True} if label_prior else {}
    return expand(
        {
            **CASES[case],
            "seeds": list(seeds),
            "engine": "native",
            "data": {**CASES[case]["data"], "test": "proportional"},
            "schedule": {"rounds": 50, "participation": 0.2},
            "algorithm": [{"name": "pacfl", **WAYS[way], **prior}],
        }
    )


def row(runs: Sequence[Run], stored: Path, data: Path | None) -> Iterator[str]:
    """Received and personal accuracy in percent, clusters at the end, and megabytes, each over seeds."""
    results, used = [], []
    for run in runs:
        folder = folder_of(run, stored)
        *_, result = resume(run, folder, data, LocalBackend(), models=False)
        results.append(result)
        clustering = load_clustering(folder)
        tried = [] if clustering is None else clustering.clustering.evidence.get("levels", [])
        used.append("".join(f" {d['parts']}{'+' if d['used'] else '-'}" for d in tried) or " none")
    for protocol in ("received", "personal"):
        means = np.array([100 * result["accuracy"][protocol]["mean"] for result in results])
        yield f"{means.mean():.1f} ± {means.std(ddof=1) if len(means) > 1 else 0.0:.1f}"
    yield ", ".join(str(result["clusters"]) for result in results)
    yield ";".join(used).strip() if set(used) != {" none"} else ""
    yield f"{np.mean([result['bytes_down'] + result['bytes_up'] for result in results]) / 1e6:.1f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    given = parser.parse_args()
    print("| data | label prior | way | received | personal | clusters | tried (+ used, - not) | MB |")
    print("|---|---|---|---|---|---|---|---|")
    for case in given.cases:
        for label_prior in (False, True):
            for way in WAYS:
                cells = " | ".join(row(described(case, way, label_prior, given.seeds), given.runs, given.data))
                print(f"| {case} | {'yes' if label_prior else 'no'} | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
