"""What a run is called by: all that is asked for, and nothing else."""

import copy
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from pacfl.experiment.config import Data, Net, expand
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import LocalTraining
from tests.experiment.tables import Table, only, table


def reordered(value: Any) -> Any:
    """The same tables with their keys in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return value


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    given = table(
        data={"name": "digits", "clients": 8, "scheme": {"kind": "by-set", "counts": [2, 2, 2, 2], "size": 50}},
        algorithm={"name": "pacfl", "rank": 2, "threshold": 5.0},
    )
    assert only(given).hash == only(reordered(given)).hash
    assert list(reordered(given)) != list(given)


def test_the_hash_is_that_of_the_content_whatever_process_asks() -> None:
    """Sixteen hexadecimal digits, of nothing that changes between runs of the interpreter."""
    run = only(table())
    assert run.hash == only(copy.deepcopy(table())).hash
    assert len(run.hash) == 16
    assert set(run.hash) <= set("0123456789abcdef")


CHANGES: dict[type, tuple[str, dict[str, Any]]] = {
    Data: (
        "data",
        {
            "name": "usps",
            "clients": 9,
            "scheme": {"kind": "label-skew", "share": 0.2},
            "sets": ["usps", "fmnist"],
            "disjoint_labels": True,
            "samples": 100,
            "validation": 0.2,
            "normalise": "none",
            "test": "global",
            "drift": {"round": 2, "share": 0.1},
            "seed": 0,
        },
    ),
    Net: ("model", {"name": "logistic", "batch_norm": "local"}),
    LocalTraining: (
        "learning",
        {
            "epochs": 2,
            "batch_size": 11,
            "lr": 0.02,
            "momentum": 0.6,
            "weight_decay": 0.1,
            "loss": "squared-error",
            "optimiser": "adamw",
            "lr_schedule": {"kind": "exponential", "factor": 0.9},
        },
    ),
    Schedule: (
        "schedule",
        {
            "rounds": 4,
            "participation": 0.2,
            "evaluate_every": 1,
            "personal_every": 1,
            "newcomers": 1,
            "fine_tune": 2,
            "client_dropout": 0.1,
            "joins": {"1": [2]},
            "leaves": {"1": [2]},
            "reprofile": {"1": [2]},
            "final_personal": False,
        },
    ),
}


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__)
def test_every_setting_changes_the_hash(kind: type) -> None:
    section, changes = CHANGES[kind]
    assert set(changes) == {f.name for f in fields(kind)} - {"options"}, "a setting without a test"
    hashes = {only(table()).hash}
    for key, value in changes.items():
        hashes.add(only(table(**{section: {key: value}})).hash)
    assert len(hashes) == len(changes) + 1


def test_seed_and_algorithm_change_the_hash() -> None:
    others = [
        table(seeds=[1]),
        table(algorithm={"name": "solo"}),
        table(algorithm={"name": "fedprox"}),
        table(algorithm={"name": "fedprox", "mu": 0.1}),
        table(algorithm={"name": "fedprox", "mu": 0.2}),
    ]
    assert len({only(given).hash for given in [table(), *others]}) == 6


@pytest.mark.parametrize(
    "larger",
    [
        lambda given: {**given, "algorithm": [*given["algorithm"], {"name": "scaffold"}]},
        lambda given: {**given, "algorithm": [{"name": "pacfl", "rank": [2, 3]}, *given["algorithm"]]},
        lambda given: {**given, "seeds": [0, 1, 2]},
        lambda given: {**given, "learning": {"epochs": [1, 5]}},
    ],
    ids=["algorithm after", "algorithms before", "seeds", "sweep"],
)
def test_asking_for_more_changes_no_other_hash(larger: Callable[[Table], Table]) -> None:
    given = table(algorithm=[{"name": "fedavg"}, {"name": "ifca", "clusters": 3}])
    before, after = ([run.hash for run in expand(part)] for part in (given, larger(given)))
    assert set(before) < set(after)


def test_metrics_change_the_hash_and_their_order_does_not() -> None:
    asked = [["auroc"], ["auroc", "macro-f1"], ["macro-f1", "auroc", "auroc"], ["accuracy"], []]
    hashes = [only(table(evaluation={"metrics": names})).hash for names in asked]
    assert hashes[1] == hashes[2]
    assert hashes[3] == hashes[4] == only(table()).hash, "the primary metric is there without asking"
    assert len(set(hashes)) == 3
