"""Groups of samples that depend on each other: noise falls with the number of groups, not with that of samples."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pacfl.subspace import (
    MEASURES,
    ClientSignature,
    class_signatures,
    cluster_clients,
    signature,
    split_half_angles,
    units,
)
from pacfl.subspace.units import FEWEST_UNITS, Units, as_groups, condensed, effective_count

Array = NDArray[np.float64]
FEATURES = 20
STRENGTHS = np.array([10.0, 5, 2.5] + [1.0] * (FEATURES - 3))


def independent(rng: np.random.Generator, n: int) -> Array:
    x: Array = rng.standard_normal((n, FEATURES)) * STRENGTHS
    x[:, 0] += 15
    return x


def correlated(rng: np.random.Generator, n: int, memory: float = 0.9) -> Array:
    """A signal: each sample resembles the one before it (AR(1)), with the distribution of independent samples."""
    steps = independent(rng, n) - 15 * np.eye(FEATURES)[0]
    x = steps.copy()
    for t in range(1, n):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * steps[t]
    x[:, 0] += 15
    return x


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize("n", [2, 3, 9, 60, 300])
def test_groups_of_one_sample_change_nothing(n: int) -> None:
    rng = np.random.default_rng(n)
    x, labels, names = independent(rng, n), np.arange(n) % 2, [f"patient {k}" for k in rng.permutation(n)]
    for of_classes in (None, labels):
        alone, grouped = (split_half_angles(x, 1, of_classes, groups=g) for g in (None, names))
        assert all(alone[measure].tobytes() == grouped[measure].tobytes() for measure in MEASURES)
    one, other = class_signatures(x, labels), class_signatures(x, labels, groups=names)
    assert one.split_half_angles.tobytes() == other.split_half_angles.tobytes()
    assert one.counts.tolist() == other.counts.tolist()


def test_repeated_rows_in_groups_have_the_noise_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    true, grouped, ungrouped = [], [], []
    for _ in range(20):
        x = independent(rng, 48)
        repeated, groups = np.repeat(x, 5, axis=0), np.repeat(np.arange(48), 5)
        true.append(split_half_angles(x, 2)["sum"])
        grouped.append(split_half_angles(repeated, 2, groups=groups)["sum"])
        ungrouped.append(split_half_angles(repeated, 2)["sum"])
    assert rms(np.array(grouped)) == pytest.approx(rms(np.array(true)), rel=0.05)
    assert rms(np.array(ungrouped)) < 0.6 * rms(np.array(true))


def test_repeated_rows_of_classes_count_once() -> None:
    x, labels = independent(np.random.default_rng(0), 40), np.arange(40) % 2
    true = class_signatures(x, labels)
    repeated = class_signatures(np.repeat(x, 5, axis=0), np.repeat(labels, 5), groups=np.repeat(np.arange(40), 5))
    assert repeated.counts.tolist() == true.counts.tolist() == [20, 20]
    assert rms(repeated.split_half_angles[0]) == pytest.approx(rms(true.split_half_angles[0]), rel=0.05)
    assert rms(class_signatures(np.repeat(x, 5, axis=0), np.repeat(labels, 5)).split_half_angles[0]) < 0.6 * rms(
        true.split_half_angles[0]
    )


def _n_clusters(clients: list[Array], groups: list[NDArray[np.intp]] | list[None], compare: str) -> int:
    signed = []
    for x, own in zip(clients, groups, strict=True):
        angles = split_half_angles(x, 1, measures=["smallest"], groups=own)["smallest"]
        signed.append(ClientSignature(signature(x, 1), angles, class_signatures(x, np.zeros(len(x), int), groups=own)))
    labels = cluster_clients(signed, "inputs" if compare == "inputs" else "classes").labels
    assert labels.min() == 0
    return int(labels.max()) + 1


# Comparisons by class check their noise against the differences within clusters, and a signal alone does not split them
@pytest.mark.parametrize(("kind", "compare"), [("signal", "inputs"), ("patients", "inputs"), ("patients", "classes")])
def test_clients_of_dependent_samples_are_split_without_groups_and_not_with_them(kind: str, compare: str) -> None:
    rng, n = np.random.default_rng(1), 400
    clients = [
        correlated(rng, n) if kind == "signal" else np.repeat(independent(rng, 16), 25, axis=0) for _ in range(10)
    ]
    assert _n_clusters(clients, [None] * 10, compare) > 1
    assert _n_clusters(clients, [np.arange(n) // 25] * 10, compare) == 1


def test_noise_is_not_known_from_too_few_groups() -> None:
    x = independent(np.random.default_rng(0), 60)
    groups = np.arange(60) % (FEWEST_UNITS - 1)
    largest = {"smallest": 90, "entrywise": 90, "sum": 180, "trace": 180}
    for measure, angles in split_half_angles(x, 2, groups=groups).items():
        assert set(angles.tolist()) == {largest[measure]}
    assert len(class_signatures(x, np.zeros(60), groups=groups)) == 0
    assert split_half_angles(x, 1, groups=np.arange(60) % FEWEST_UNITS)["smallest"].max() < 90
    assert split_half_angles(x, 7, groups=np.arange(60) % FEWEST_UNITS)["smallest"].min() == 90  # six groups in a half
    assert len(class_signatures(x, np.zeros(60), groups=np.arange(60) % FEWEST_UNITS)) == 1


def test_one_group_with_most_samples_does_not_suffice_beside_small_ones() -> None:
    groups = np.minimum(np.arange(60), 10)  # ten groups of one sample and one of fifty
    assert effective_count(groups) == 1
    assert split_half_angles(independent(np.random.default_rng(0), 60), 1, groups=groups)["smallest"].min() == 90


@pytest.mark.parametrize("n_known", [0, 4, 12])
def test_clients_with_too_few_groups_join_nobody_and_change_nothing_for_others(n_known: int) -> None:
    rng = np.random.default_rng(0)
    groups = [np.arange(200) // (10 if i < n_known else 25) for i in range(16)]
    clients = []
    for i, own in enumerate(groups):
        x = independent(rng, 200) + 20 * (i % 2) * np.eye(FEATURES)[5]
        angles = split_half_angles(x, 1, measures=["smallest"], groups=own)["smallest"]
        clients.append(ClientSignature(signature(x, 1), angles))
    everybody = cluster_clients(clients, "inputs")
    assert everybody.labels.tolist() == [0, 1] * (n_known // 2) + [-1] * (16 - n_known)
    assert "groups" in everybody.evidence["not_judged"]["15"]


@pytest.mark.parametrize("seed", range(5))
def test_halves_separate_no_group_and_are_balanced(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = as_groups(rng.integers(0, 40, 500))
    units = Units(groups, 256)
    halves, share = units.halves(units.members, 20)
    for a, b in halves:
        assert not set(groups[a]) & set(groups[b])
        assert {len(a), len(b)} <= set(range(len(a) - 30, len(a) + 31))
    assert share == pytest.approx(np.mean([len(a) + len(b) for a, b in halves]) / 2 / 500, rel=0.05)


def test_large_groups_are_condensed_without_loss_of_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    x = independent(np.random.default_rng(0), 1000)
    groups = np.arange(1000) // 100
    fast = split_half_angles(x, 2, groups=groups)
    monkeypatch.setattr("pacfl.subspace.units.MOST_ROWS", 10_000)
    exact = split_half_angles(x, 2, groups=groups)
    for measure in MEASURES:
        np.testing.assert_allclose(fast[measure], exact[measure], rtol=0.01)


def test_condensed_rows_have_the_second_moments() -> None:
    x = independent(np.random.default_rng(0), 1000)
    made = condensed(x, np.arange(1000), 24)
    assert made.shape == (24, FEATURES)
    np.testing.assert_allclose(made.T @ made, x.T @ x, atol=1e-9 * (x.T @ x).max())


def test_groups_of_another_number_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one per sample, got shape \(3,\) for 4"):
        split_half_angles(np.eye(4), 1, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="some groups are missing"):
        class_signatures(np.eye(4), np.zeros(4), groups=["a", "b", None, "a"])


@pytest.mark.parametrize("low", [-7, 3])
def test_groups_of_very_many_samples_are_those_of_few(monkeypatch: pytest.MonkeyPatch, low: int) -> None:
    """Integers of many samples are numbered, counted and found in parts, without sorting: the same groups."""
    given = np.random.default_rng(0).integers(low, low + 50, 400)
    few = as_groups(given)
    drawn = Units(few, 100)
    monkeypatch.setattr(units, "MANY", 60)
    many = as_groups(given)
    assert np.array_equal(few, many)
    assert np.array_equal(as_groups(np.arange(400) // 3), np.arange(400) // 3)
    assert effective_count(many) == 400**2 // int((np.bincount(few) ** 2).sum())
    for one, other in zip(drawn.members, Units(many, 100).members, strict=True):
        assert np.array_equal(one, other)
    of_samples = Units(400, 100)
    assert len(of_samples) == len(np.unique(of_samples.positions())) == 100
    assert [one.tolist() for one in of_samples.members] == [one.tolist() for one in Units(np.arange(400), 100).members]
