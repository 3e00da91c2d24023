"""The evidence claims an error rate only where federations like it were verified.

`pytest tests/subspace/test_guarantee.py -s` prints the grid that docs/threshold.md reports.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from pacfl.subspace import (
    LINKAGES,
    MEASURES,
    Evidence,
    Linkage,
    Measure,
    choose_threshold,
    cluster,
    proximity,
    signature,
    split_half_angles,
)
from pacfl.subspace.guarantee import random_angle

pytestmark = pytest.mark.usefixtures("few_simulations")
Array = NDArray[np.float64]


def samples(kind: str, rng: np.random.Generator, n: int, features: int) -> Array:
    """`images`: a mean and a spectrum that decays, as pixels have. Others have no or hardly any leading direction."""
    x = rng.standard_normal((n, features))
    order = np.arange(1, features + 1)
    return {
        "images": np.abs(x * order**-0.5 + 0.5),
        "spikes": x * np.where(order <= 5, 12 - order, 1),
        "slope": x * np.linspace(1.5, 0.3, features),
        "isotropic": x,
    }[kind]


@cache
def clients(
    kind: str, n: int, features: int, rank: int, seed: int = 0
) -> tuple[list[Array], list[dict[Measure, Array]]]:
    """Signatures and split-half angles of 12 clients of one distribution."""
    rng = np.random.default_rng([seed, n, features, rank])
    data = [samples(kind, rng, n, features) for _ in range(12)]
    return [signature(x, rank) for x in data], [split_half_angles(x, rank) for x in data]


def found(
    kind: str, n: int, features: int, rank: int, measure: Measure, linkage: Linkage = "average"
) -> tuple[bool, Evidence]:
    """Whether 12 clients of one distribution are split, and the evidence."""
    bases, own = clients(kind, n, features, rank)
    angles = proximity(bases, measure)
    choice = choose_threshold(angles, [a[measure] for a in own], linkage, measure=measure, signatures=bases)
    return bool(choice.labels.max() > 0), choice.evidence


def grid() -> Iterator[tuple[str, int, int, int]]:
    for kind in ("images", "spikes", "slope", "isotropic"):
        for n, features, rank in ((300, 64, 3), (300, 64, 10), (80, 30, 5)):
            yield kind, n, features, rank


def test_no_federation_of_one_distribution_is_split() -> None:
    """With and without leading directions, which decide who can be compared."""
    split, guaranteed, undetermined = [], 0, 0
    for one in grid():
        for measure in MEASURES:
            is_split, evidence = found(*one, measure)
            outcome = evidence.not_guaranteed_because or "guaranteed"
            print(*one, measure, "split" if is_split else "not split", len(evidence.not_judged or {}), outcome)
            split += [(*one, measure)] if is_split else []
            guaranteed += evidence.guaranteed
            undetermined += evidence.finding == "undetermined"
    print(f"{guaranteed} guaranteed, {undetermined} undetermined")
    assert not split
    assert guaranteed >= 20, "or the guarantee would be an empty one"
    assert undetermined >= 5, "or nothing would be tested"


@pytest.mark.parametrize(("n", "features", "rank"), [(300, 64, 5), (300, 64, 10), (80, 30, 20)])
@pytest.mark.parametrize("linkage", LINKAGES)
def test_the_sum_of_many_angles_splits_nobody_by_chance(n: int, features: int, rank: int, linkage: Linkage) -> None:
    """Where data have no leading directions, angles between halves do not fall with the root of their size."""
    assert not found("isotropic", n, features, rank, "sum", linkage)[0]


@pytest.mark.parametrize("linkage", LINKAGES)
def test_clients_with_leading_directions_are_guaranteed(linkage: Linkage) -> None:
    split, evidence = found("images", 300, 64, 3, "smallest", linkage)
    assert not split
    assert evidence.guaranteed
    assert evidence.not_guaranteed_because is None
    assert "guaranteed" not in evidence.reasons


def test_what_was_not_verified_is_named() -> None:
    bases, own = clients("images", 300, 64, 3)
    angles, halves = proximity(bases), [a["smallest"] for a in own]
    wide = [*bases[:-1], np.eye(64)[:, :10]]
    for doubt, evidence in {
        "the shape of the signatures was not given": choose_threshold(angles, halves).evidence,
        "noise of 12 of 12 clients": choose_threshold(angles, signatures=bases).evidence,
        "signatures have 3 to 10 directions": choose_threshold(angles, halves, signatures=wide).evidence,
        "samples were normalised": choose_threshold(
            angles, halves, signatures=bases, caveats=["samples were normalised"]
        ).evidence,
        "angles within clusters are": choose_threshold(angles, [a / 1.3 for a in halves], signatures=bases).evidence,
    }.items():
        assert not evidence.guaranteed
        assert doubt in str(evidence.not_guaranteed_because)
        assert doubt in evidence.reasons


def test_the_clustering_has_the_same_fields_and_a_given_cut_claims_nothing() -> None:
    bases, own = clients("images", 300, 64, 3)
    angles, halves = proximity(bases), [a["smallest"] for a in own]
    automatic = cluster(angles, halves, signatures=bases).evidence
    assert (automatic["guaranteed"], automatic["not_guaranteed_because"]) == (True, None)
    doubted = cluster(angles, halves, signatures=bases, caveats=["halves differ"]).evidence
    assert (doubted["guaranteed"], doubted["not_guaranteed_because"]) == (False, "halves differ")
    for how, why in (
        ({"threshold": 9.0}, "the threshold was given"),
        ({"n_clusters": 2}, "the number of clusters was given"),
    ):
        evidence = cluster(angles, halves, **how).evidence  # type: ignore[arg-type]
        assert (evidence["guaranteed"], evidence["not_guaranteed_because"]) == (False, why)


def test_random_planes_and_lines_meet_at_known_angles() -> None:
    """Lines in the plane: uniform angles, root mean square 90° / √3. In many dimensions: nearly 90°."""
    assert random_angle(2, 1, "smallest") == pytest.approx(90 / 3**0.5, rel=0.3)
    assert random_angle(100_000, 1, "smallest") == pytest.approx(90, rel=0.05)
    assert random_angle(4, 3, "smallest") == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("angle", [30.0, 89.0])
def test_two_clients_with_large_noise_are_guaranteed_nothing_whatever_is_found(angle: float) -> None:
    between = np.array([[0.0, angle], [angle, 0.0]])
    halves = [np.full(32, 35.0)] * 2
    chosen = choose_threshold(between, halves, signatures=[np.eye(200)[:, :1]] * 2)
    assert chosen.labels.max() == int(angle > 80)
    assert "too few" in str(chosen.evidence.not_guaranteed_because)
