from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import kstest

from pacfl.privacy import gaussian_sigma, private_class_signatures, seeded
from pacfl.privacy.classes import SENSITIVITY, ClassSums, class_directions, exact_sums, noisy_sums
from pacfl.privacy.reduction import contrasted
from pacfl.privacy.signature import GRID, PrivateSignature, on_grid
from pacfl.subspace import ClientSignature, adjusted_rand_index, cluster_clients, diagnose
from pacfl.subspace.classes import FEWEST, RANK, SPLITS
from pacfl.subspace.pairs import class_noise, compare_classes
from tests.privacy.auditing import empirical_epsilon
from tests.privacy.test_private_signature import no_noise, whole_square

Array = NDArray[np.float64]

CLASSES = 3
FEATURES = 4
ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
ROWS = arrays(np.float64, (4, FEATURES), elements=ANY_FLOAT)
LABELS = arrays(np.intp, 4, elements=st.integers(0, CLASSES - 1))


def moved(one: tuple[Array, NDArray[np.intp]], other: tuple[Array, NDArray[np.intp]]) -> int:
    """Twice the squared distance of two releases without noise, in units of noise: counts and moment weigh half."""
    released = [exact_sums(on_grid(rows), which, CLASSES) for rows, which in (one, other)]
    sums, counts, moment = (whole_square(a - b) for a, b in zip(*released, strict=True))
    return 2 * sums + counts + moment


# Sensitivity: what one record can do at most


@given(ROWS, LABELS, arrays(np.float64, FEATURES, elements=ANY_FLOAT), st.integers(0, CLASSES - 1))
def test_a_record_replaced_with_its_label_moves_all_by_two_at_most(
    rows: Array, which: NDArray[np.intp], x: Array, c: int
) -> None:
    neighbour = np.vstack([rows[:-1], x]), np.append(which[:-1], c)
    assert moved((rows, which), neighbour) <= 2 * round(SENSITIVITY**2) * GRID**4


@given(ROWS, LABELS)
def test_a_record_removed_moves_all_by_the_square_root_of_two_at_most(rows: Array, which: NDArray[np.intp]) -> None:
    assert moved((rows, which), (rows[:-1], which[:-1])) <= 2 * 2 * GRID**4


SAME_CLASS = ((np.array([1.0, 0, 0, 0]), 0), (np.array([-1.0, 0, 0, 0]), 0))
OTHER_CLASS = ((np.array([1.0, 0, 0, 0]), 0), (np.array([0, 1.0, 0, 0]), 1))


@pytest.mark.parametrize("pair", [SAME_CLASS, OTHER_CLASS], ids=["same class", "other class"])
def test_the_worst_neighbours_reach_the_sensitivity(pair: tuple[tuple[Array, int], tuple[Array, int]]) -> None:
    """Opposite samples of a class, and samples at right angles of two classes: the noise is not more than is needed."""
    one, other = ((x[None], np.array([c])) for x, c in pair)
    assert moved(one, other) == 2 * round(SENSITIVITY**2) * GRID**4


@pytest.mark.parametrize("shape", [(6, 9, 7), (6, 32, 32, 3), (6, 100), (6, 20)])
def test_contrast_looks_at_one_record_at_a_time(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, other = rng.normal(size=shape), rng.normal(size=shape)
    other[2] = x[2]
    assert np.array_equal(contrasted(x)[0][2], contrasted(other)[0][2])


def test_contrast_does_not_depend_on_brightness_and_even_images_have_none() -> None:
    x = np.random.default_rng(0).uniform(size=(5, 8, 8))
    assert np.allclose(on_grid(contrasted(x)[0]), on_grid(contrasted(3 * x + 7)[0]), atol=2)
    assert not contrasted(np.full((2, 8, 8), 0.3))[0].any()


# The noise


@pytest.mark.parametrize("part", ["sums", "counts", "moment"])
def test_noise_of_each_part_has_its_scale(part: str) -> None:
    """Standard deviation sigma on sums, √2 sigma on counts and on the diagonal of the moment."""
    noise, sigma = seeded(np.random.default_rng(0)), 1.7
    rows, which = np.eye(FEATURES), np.zeros(FEATURES, dtype=np.intp)
    exact = noisy_sums(rows, which, CLASSES, sigma, no_noise)
    drawn = []
    for _ in range(1_000):
        off = getattr(noisy_sums(rows, which, CLASSES, sigma, noise), part) - getattr(exact, part)
        drawn.extend(np.ravel(np.diag(off) if part == "moment" else off))
    assert kstest(drawn, "norm", args=(0, sigma * (1 if part == "sums" else sqrt(2)))).pvalue > 0.01


RUNS = 20_000


def audited(
    pair: tuple[tuple[Array, int], tuple[Array, int]], epsilon: float, delta: float, mutant: float = 1.0
) -> float:
    """Epsilon that is proved against noise whose standard deviation is `mutant` times what it should be."""
    honest = seeded(np.random.default_rng(5))

    def noise(variance: int, count: int) -> NDArray[np.int64]:
        return honest(max(1, round(variance * mutant**2)), count)

    common, of_common = np.tile([[0.6, 0.8, 0, 0]], (5, 1)), np.array([0, 0, 1, 1, 2])
    data = [(np.vstack([common, x]), np.append(of_common, c)) for x, c in pair]
    sigma = gaussian_sigma(epsilon, delta, SENSITIVITY)
    clean = [noisy_sums(*own, CLASSES, sigma, no_noise) for own in data]

    # The best attack: the release along the difference of the two, by the precision of each part
    along = vector(clean[0], 0.5) - vector(clean[1], 0.5)
    shown = [[along @ vector(noisy_sums(*own, CLASSES, sigma, noise)) for _ in range(RUNS)] for own in data]
    return empirical_epsilon(np.array(shown[0]), np.array(shown[1]), delta)


def vector(shown: ClassSums, weight: float = 1.0) -> Array:
    """All of a release; weight: of counts and moment."""
    return np.concatenate([shown.sums.ravel(), weight * shown.counts, weight * shown.moment.ravel()])


@pytest.mark.parametrize("pair", [SAME_CLASS, OTHER_CLASS], ids=["same class", "other class"])
def test_no_audit_proves_more_than_is_promised(pair: tuple[tuple[Array, int], tuple[Array, int]]) -> None:
    """Nor much less, or the audit would have no power."""
    assert 0.6 < audited(pair, 1.0, 0.1) <= 1.0


def test_an_audit_notices_noise_of_a_wrong_scale() -> None:
    assert audited(OTHER_CLASS, 1.0, 0.1, mutant=0.8) > 1.0


# The signatures

PATTERNS = np.random.default_rng(9).normal(size=(6, 8, 8))


def client(
    n: int, rng: np.random.Generator, shares: Array | None = None, shift: int = 0
) -> tuple[Array, NDArray[np.intp]]:
    """Images of six classes, of which `shift` says how they are labelled."""
    y = rng.choice(6, n, p=shares)
    return PATTERNS[y] + rng.normal(size=(n, 8, 8)), (y + shift) % 6


def signed(data: tuple[Array, NDArray[np.intp]], epsilon: float, rng: np.random.Generator) -> PrivateSignature:
    return private_class_signatures(*data, range(6), 3, epsilon, noise=seeded(rng))


def compared(made: PrivateSignature) -> ClientSignature:
    return ClientSignature(made.basis, made.split_half_angles["smallest"], made.classes)


def test_without_noise_directions_are_those_of_class_means_from_the_common_origin() -> None:
    x, y = client(300, np.random.default_rng(0))
    made = private_class_signatures(x, y, range(6), 3, 1e6, noise=no_noise).classes
    assert made is not None
    rows = contrasted(x)[0]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    means = np.array([rows[y == c].mean(axis=0) + 0.25 for c in range(6)])  # 16 cells: 1 / √16
    assert np.allclose(made.directions[0].T, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-4)
    assert made.counts.tolist() == np.bincount(y).tolist()


def test_a_client_without_a_class_shows_noise_in_its_place_and_the_class_is_not_compared() -> None:
    """All of the agreed classes have sums and counts; those within the noise are left out afterwards."""
    x, y = client(600, np.random.default_rng(0), np.array([0.5, 0.5, 0, 0, 0, 0]))
    made = [signed((x, y), 2.0, np.random.default_rng(seed)).classes for seed in range(20)]
    assert {m.names for m in made if m is not None} == {("0", "1")}
    released = noisy_sums(contrasted(x)[0], y, 6, 2.0, seeded(np.random.default_rng(0)))
    assert (released.sums[2:] != 0).all()
    assert (released.counts[2:] != 0).all()


def test_classes_within_the_noise_are_left_out_whatever_they_are() -> None:
    sigma, rng = 4.0, np.random.default_rng(0)
    counts = np.array([FEWEST, 3 * sqrt(2) * sigma + 0.1, 3 * sqrt(2) * sigma - 0.1, -20.0])
    found = ClassSums(rng.normal(size=(4, 2)), counts, np.diag([200.0, 1.0]))
    assert class_directions(found, np.array(list("abcd")), sigma).names == ("b",)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("skewed", [False, True])
def test_the_noise_of_classes_is_what_clients_of_one_distribution_show(epsilon: float, skewed: bool) -> None:
    """T = angle² / noise² has mean 1, whatever the sizes of classes."""
    rng = np.random.default_rng(2)
    shares = [rng.dirichlet(np.full(6, 0.7)) if skewed else np.full(6, 1 / 6) for _ in range(30)]
    made = [signed(client(400, rng, own), epsilon, rng).classes for own in shares]
    classes = [m for m in made if m is not None]
    pairs = compare_classes(classes, class_noise(classes))
    assert pairs.squares.sum() / pairs.weights.sum() == pytest.approx(1, abs=0.12)


def test_other_labels_are_found_and_called_a_concept() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 8)
    made = [compared(signed(client(300, rng, shift=int(k)), 2.0, rng)) for k in truth]
    found = cluster_clients(made)
    assert adjusted_rand_index(truth, found.labels) == 1.0
    assert found.evidence["compare"] == "classes"
    assert diagnose(made, found).kind == "concept"


def test_other_shares_separate_nobody_and_noise_in_counts_is_not_a_difference_of_shares() -> None:
    rng = np.random.default_rng(1)
    skewed = [compared(signed(client(300, rng, rng.dirichlet(np.full(6, 0.5))), 2.0, rng)) for _ in range(16)]
    assert cluster_clients(skewed).labels.max() == 0
    equal = [compared(signed(client(300, rng), 1.0, rng)) for _ in range(16)]
    assert diagnose(equal, cluster_clients(equal)).kind == "none"


def test_a_client_whose_classes_noise_hides_learns_what_would_help() -> None:
    rng = np.random.default_rng(0)
    made = [compared(signed(client(n, rng), 1.0, rng)) for n in (600, 600, 600, 20)]
    found = cluster_clients(made, "classes")
    assert found.labels.tolist() == [0, 0, 0, -1]
    assert "with a larger epsilon" in found.evidence["not_judged"]["3"]


@settings(max_examples=15)
@given(st.integers(1, 40), st.sampled_from([(3,), (200,), (5, 6), (9, 4, 3)]), st.integers(1, 5))
def test_it_can_be_compared_whatever_the_data(n: int, shape: tuple[int, ...], n_classes: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, *shape)) * (n % 2), rng.integers(0, n_classes, n)
    made = private_class_signatures(x, y, range(n_classes), 2, 8.0, noise=seeded(rng))
    assert np.allclose(made.basis.T @ made.basis, np.eye(2), atol=1e-12)
    assert made.classes is not None
    assert made.classes.private
    assert made.classes.directions.shape == (RANK, len(made.basis), len(made.classes))
    assert made.classes.split_half_angles.shape == (RANK, len(made.classes), SPLITS)
    assert np.allclose(np.linalg.norm(made.classes.directions[0], axis=0), 1)
    assert (made.classes.counts >= FEWEST).all()


def test_a_label_that_was_not_agreed_on_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'c' is not among the 2 agreed classes; name all"):
        private_class_signatures(np.eye(3), ["a", "b", "c"], ["b", "a"], 1, 1.0)


def test_it_is_drawn_anew_each_time_by_default() -> None:
    x, y = client(50, np.random.default_rng(0))
    first, second = (private_class_signatures(x, y, range(6), 2, 50.0).classes for _ in range(2))
    assert first is not None
    assert second is not None
    assert not np.array_equal(first.directions, second.directions)
