import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from pacfl.algorithms import CFL, IFCA, NAMES, PACFL, FedProx, LGFedAvg, PerFedAvg, build, find
from pacfl.federation.algorithm import Algorithm


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_is_built_by_its_name(name: str) -> None:
    algorithm = build(name)
    assert type(algorithm) is find(name)
    assert algorithm == build(name)
    assert hash(algorithm) == hash(build(name))


@pytest.mark.parametrize("kind", [find(name) for name in NAMES])
def test_algorithms_are_frozen_final_and_inherit_from_no_other(kind: type[Algorithm]) -> None:
    assert kind.__bases__ == (Algorithm,)
    assert kind.__final__  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().anything = 1  # type: ignore[attr-defined]


def test_the_ten_of_the_paper_are_there() -> None:
    ten = {"solo", "fedavg", "fedprox", "fednova", "scaffold", "lg-fedavg", "per-fedavg", "ifca", "cfl", "pacfl"}
    assert ten <= set(NAMES)


def test_defaults_are_those_of_the_paper() -> None:
    assert FedProx().mu in (0.01, 0.001)
    assert PerFedAvg().alpha == 1e-2
    assert (CFL().eps1, CFL().eps2, CFL().first_split) == (0.4, 1.6, 20)
    assert IFCA().clusters == 2
    assert LGFedAvg().shared_layers == 2
    assert PACFL().rank == "auto"


def test_settings_are_obeyed_in_either_spelling() -> None:
    assert build("lg-fedavg", shared_layers=3) == build("lg-fedavg", **{"shared-layers": 3}) == LGFedAvg(3)
    assert build("pacfl", rank=5, threshold=4.9) == PACFL(rank=5, threshold=4.9)


@pytest.mark.parametrize(("name", "meant"), [("fedavgg", "fedavg"), ("pacf", "pacfl"), ("scafold", "scaffold")])
def test_an_unknown_name_is_answered_by_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'.*did you mean '{meant}'"):
        build(name)


def test_a_name_like_no_other_is_answered_by_all() -> None:
    with pytest.raises(ValueError, match="solo") as error:
        build("xyzzy")
    assert all(name in str(error.value) for name in NAMES)
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "setting", "meant"),
    [
        ("fedprox", "mue", "mu"),
        ("pacfl", "treshold", "threshold"),
        ("pacfl", "per-clas", "per-class"),
        ("cfl", "eps3", "eps1|eps2"),
    ],
)
def test_an_unknown_setting_is_answered_by_the_nearest(name: str, setting: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has no setting .*did you mean '({meant})'"):
        build(name, **{setting: 1})


def test_an_algorithm_without_settings_of_its_own_says_so() -> None:
    with pytest.raises(ValueError, match=r"solo has no setting 'mu'; there is label-prior$"):
        build("solo", mu=0.1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedprox", {"mu": "much"}),
        ("fedprox", {"mu": -1.0}),
        ("fedprox", {"mu": float("nan")}),
        ("per-fedavg", {"alpha": -0.1}),
        ("fedavg-ft", {"epochs": -1}),
        ("fedavgm", {"beta1": 1.0}),
        ("fedadam", {"tau": 0.0}),
        ("fedyogi", {"server_lr": 0.0}),
        ("fedavg-ft", {"epochs": 1.5}),
        ("lg-fedavg", {"shared_layers": 0}),
        ("lg-fedavg", {"shared_layers": "two"}),
        ("ifca", {"clusters": 0}),
        ("ifca", {"clusters": 2.5}),
        ("fesem", {"clusters": 0}),
        ("flexcfl", {"inter_group_lr": -0.1}),
        ("flis", {"threshold": 2.0}),
        ("flis", {"inputs": 0}),
        ("fedclust", {"threshold": -1.0}),
        ("clove", {"clusters": 1.5}),
        ("stocfl", {"tau": -1.5}),
        ("stocfl", {"mu": -1.0}),
        ("fedem", {"clusters": 0}),
        ("feddag-clusters", {"gradient_weight": 1.5}),
        ("feddag-clusters", {"gradient_weight": "half"}),
        ("feddag-clusters", {"delta": 1.0}),
        ("fedrc", {"clusters": 0}),
        ("fedsoft", {"sigma": 0.0}),
        ("cfl", {"eps1": "small"}),
        ("cfl", {"first_split": "late"}),
        ("pacfl", {"rank": 0}),
        ("pacfl", {"rank": 2.5}),
        ("pacfl", {"threshold": "automatic"}),
        ("pacfl", {"threshold": -1.0}),
        ("pacfl", {"clusters": 0}),
        ("pacfl", {"measure": "cosine"}),
        ("pacfl", {"linkage": "centroid"}),
        ("pacfl", {"per_class": "yes"}),
        ("pacfl", {"threshold": 5.0, "clusters": 2}),
    ],
)
def test_settings_that_cannot_be_are_refused_when_an_algorithm_is_built(name: str, settings: dict[str, object]) -> None:
    """Not after the data were loaded, and not after hours of training."""
    with pytest.raises((ValueError, TypeError)) as error:
        build(name, **settings)
    assert any(setting.replace("_", "") in str(error.value).replace("_", "") for setting in settings)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (lambda: FedProx(mu=-1.0), "FedProx.mu must be a number of at least 0, got -1.0"),
        (lambda: IFCA(clusters=True), "IFCA.clusters must be an integer of at least 1, got True"),
        (lambda: PACFL(threshold=math.inf), "PACFL.threshold must be 'auto' or a number of at least 0, got inf"),
        (lambda: PACFL(clusters=0), "PACFL.clusters must be an integer of at least 1 or left out, got 0"),
        (lambda: PACFL(per_class=1), "PACFL.per_class must be true or false, got 1"),  # type: ignore[arg-type]
        (lambda: PACFL(linkage="best"), "PACFL.linkage must be one of 'average', .*, got 'best'"),  # type: ignore[arg-type]
    ],
)
def test_a_refusal_names_the_setting_what_came_and_what_is_wanted(
    settings: Callable[[], Algorithm], error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        settings()


def test_numbers_of_numpy_are_numbers() -> None:
    assert IFCA(clusters=np.int64(3)) == IFCA(clusters=3)  # type: ignore[arg-type]
    assert PACFL(threshold=np.float32(4.5)) == PACFL(threshold=4.5)  # type: ignore[arg-type]
