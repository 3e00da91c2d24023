from functools import cache

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import pacfl.subspace.split_half as module
from pacfl.subspace import MEASURES, Measure, proximity, signature, split_half_angles

Array = NDArray[np.float64]
FEATURES = 40


def drawn(rng: np.random.Generator, n: int) -> Array:
    """Three directions in white noise, of strengths so different that samples do not change their order."""
    x = 0.7 * rng.standard_normal((n, FEATURES))
    x[:, :3] += rng.standard_normal((n, 3)) * [20, 8, 3]
    return x


def drawn_with_classes(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.intp]]:
    """Two classes, each around a mean of its own."""
    labels = np.arange(n) % 2
    x = rng.standard_normal((n, FEATURES))
    x[np.arange(n), 5 * labels] += 6
    return x, labels


def rms(values: ArrayLike) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@cache
def noise_of(n: int) -> dict[Measure, float]:
    """Root mean square of the split-half angles of 24 clients of n samples."""
    rng = np.random.default_rng(n)
    found = [split_half_angles(drawn(rng, n), 3) for _ in range(24)]
    return {measure: rms([angles[measure] for angles in found]) for measure in MEASURES}


def test_every_measure_is_measured_on_every_split() -> None:
    found = split_half_angles(drawn(np.random.default_rng(0), 60), 2)
    assert tuple(found) == MEASURES
    assert {angles.shape for angles in found.values()} == {(module.SPLITS,)}
    for measure in ("smallest", "entrywise"):
        assert found[measure].min() >= 0
        assert found[measure].max() <= 90


@pytest.mark.parametrize("with_labels", [False, True])
def test_equal_data_give_equal_bytes(with_labels: bool) -> None:
    x = drawn(np.random.default_rng(0), 60)
    labels = np.arange(60) % 3 if with_labels else None
    first, second = split_half_angles(x, 2, labels), split_half_angles(x.copy(), 2, labels)
    assert all(first[measure].tobytes() == second[measure].tobytes() for measure in MEASURES)


@pytest.mark.parametrize(("rank", "n"), [(1, 1), (3, 2), (3, 5)])
def test_too_few_samples_for_two_signatures_give_no_angles(rank: int, n: int) -> None:
    found = split_half_angles(drawn(np.random.default_rng(0), n), rank)
    assert tuple(found) == MEASURES
    assert all(angles.shape == (0,) for angles in found.values())
    assert len(split_half_angles(drawn(np.random.default_rng(0), 2 * rank), rank)["sum"]) == module.SPLITS


def test_blank_samples_give_no_angles() -> None:
    assert all(angles.shape == (0,) for angles in split_half_angles(np.zeros((20, 5)), 1).values())


def test_a_class_of_blank_samples_gives_no_angles() -> None:
    x = np.ones((20, 5))
    x[::2] = 0
    assert all(angles.shape == (0,) for angles in split_half_angles(x, 1, np.arange(20) % 2).values())


@pytest.mark.parametrize("with_labels", [False, True])
def test_samples_that_all_lie_in_the_signature_have_no_noise(with_labels: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2)) @ rng.standard_normal((2, FEATURES))
    labels = np.arange(40) % 2 if with_labels else None
    found = split_half_angles(x, 2, labels)
    assert found["smallest"].max() < 1e-5
    assert found["sum"].max() < 2e-5


def test_split_half_angles_are_those_of_two_independent_samples() -> None:
    """Root mean squares over 24 clients of 60 samples, and over all pairs of 150 fresh samples of that size."""
    rng = np.random.default_rng(99)
    others = [signature(drawn(rng, 60), 3) for _ in range(150)]
    for measure in MEASURES:
        real = rms(proximity(others, measure)[np.triu_indices(150, 1)])
        assert noise_of(60)[measure] == pytest.approx(real, rel=0.15)


def test_split_half_angles_by_class_are_those_of_two_independent_samples() -> None:
    rng = np.random.default_rng(0)
    clients = [drawn_with_classes(rng, 80) for _ in range(8)]
    others = [drawn_with_classes(rng, 80) for _ in range(16)]
    for measure in ("smallest", "sum"):
        measured = rms([split_half_angles(x, 1, labels)[measure] for x, labels in clients])
        real = rms(proximity([signature(x, 1, labels) for x, labels in others], measure)[np.triu_indices(16, 1)])
        assert measured == pytest.approx(real, rel=0.15)


@pytest.mark.parametrize("measure", MEASURES)
def test_twice_the_samples_make_the_root_of_half_the_noise(measure: Measure) -> None:
    assert noise_of(60)[measure] / noise_of(120)[measure] == pytest.approx(np.sqrt(2), rel=0.1)


@pytest.mark.parametrize(("measure", "limit"), [("smallest", "MOST_SAMPLES_OF_FIRST"), ("sum", "MOST_SAMPLES")])
def test_noise_falls_with_the_samples_that_are_not_looked_at_too(
    measure: Measure, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, 100)
    rng = np.random.default_rng(0)
    few, many = (rms([split_half_angles(drawn(rng, n), 3)[measure] for _ in range(8)]) for n in (100, 900))
    assert few / many == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize(("n", "features", "rank"), [(300, 64, 3), (600, 20, 5), (100, 300, 2)])
@pytest.mark.parametrize("flat", [True, False])
def test_without_leading_directions_they_are_those_of_independent_samples_too(
    n: int, features: int, rank: int, flat: bool
) -> None:
    """There tangents do not shrink with the root of the count: that would give half of what is there."""
    rng = np.random.default_rng([n, features])
    spectrum = np.ones(features) if flat else np.linspace(1.5, 0.3, features)
    data = [rng.standard_normal((n, features)) * spectrum for _ in range(8)]
    bases, own = [signature(x, rank) for x in data], [split_half_angles(x, rank) for x in data[:4]]
    for measure in MEASURES:
        between = proximity(bases, measure)[np.triu_indices(8, 1)]
        predicted = np.sqrt(np.mean([angles[measure] ** 2 for angles in own]))
        assert predicted == pytest.approx(np.sqrt(np.mean(between**2)), rel=0.2)


def test_a_measure_asked_alone_is_what_it_is_among_all() -> None:
    x = drawn(np.random.default_rng(0), 300)
    together = split_half_angles(x, 3)
    for measure in MEASURES:
        (alone,) = split_half_angles(x, 3, measures=[measure]).items()
        assert alone[0] == measure
        np.testing.assert_array_equal(alone[1], together[measure])


def test_data_are_checked_as_those_of_a_signature() -> None:
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 2 samples"):
        split_half_angles([[1.0, np.nan], [1.0, 2.0]], 1)
    with pytest.raises(ValueError, match=r"labels must be one per sample, got shape \(3,\) for 4 samples"):
        split_half_angles(np.ones((4, 2)), 1, [0, 1, 0])


@pytest.mark.parametrize("rank", [0, -1, 1.5])
def test_a_rank_that_is_no_positive_integer_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank must be an integer of at least 1, got {rank!r}"):
        split_half_angles(np.eye(6), rank)
