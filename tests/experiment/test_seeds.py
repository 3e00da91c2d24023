import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ttest_ind, ttest_rel

from pacfl.experiment.seeds import ENOUGH_TO_PAIR, LEVEL, SeedMean, best_and_ties, mark_best, p_value, seed_mean

accuracies = st.lists(st.floats(0, 1), min_size=2, max_size=8)
pairs = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8)


def by_seed(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


@given(pairs)
def test_the_p_value_is_scipys_paired_from_five_seeds_on(both: list[tuple[float, float]]) -> None:
    a, b = np.array(both).T
    paired = len(both) >= ENOUGH_TO_PAIR
    assume(np.std(a - b) > 1e-6 if paired else min(np.std(a), np.std(b)) > 1e-6)  # scipy warns of constant samples
    expected = (ttest_rel if paired else ttest_ind)(a, b).pvalue
    assert p_value(by_seed(a.tolist()), by_seed(b.tolist())) == pytest.approx(expected)


def test_only_common_seeds_count() -> None:
    a = {0: 0.5, 1: 0.6, 2: 0.8, 7: 0.0}
    b = {2: 0.6, 1: 0.5, 0: 0.3, 9: 1.0}
    assert p_value(a, b) == pytest.approx(ttest_ind([0.5, 0.6, 0.8], [0.3, 0.5, 0.6]).pvalue)
    assert p_value({0: 0.5, 1: 0.6}, {1: 0.5}) is None


def test_without_any_noise_every_difference_counts() -> None:
    assert p_value({0: 0.5, 1: 0.5}, {0: 0.4, 1: 0.4}) == 0.0
    assert p_value({0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}) == 1.0
    shifted = [by_seed([0.1 * seed + shift for seed in range(5)]) for shift in (0.0, 0.01)]
    assert p_value(*shifted) == 0.0  # paired: the same difference in each of five seeds


def marks(*columns: list[float]) -> list[str]:
    values = [by_seed(column) for column in columns]
    means = [seed_mean({str(seed): value for seed, value in one.items()}) for one in values]
    return ["best" if m.best else "tied" if m.tied else "" for m in mark_best(means, values)]


def test_the_best_is_marked_where_it_is_distinguished_from_all() -> None:
    """10 apart, variances 1 and 0: t = 10 / sqrt((1 + 0) / 3) = 17.3 with 4 degrees of freedom, p < 0.001."""
    assert marks([80, 81, 79], [70, 70, 70], [50, 50, 50]) == ["best", "", ""]


def test_a_difference_within_noise_is_a_tie() -> None:
    """0.67 apart, variances 4.33 and 0: t = 0.67 / 1.2 = 0.56. The third is 30 below: t = 30 / 1.7 = 17.6."""
    assert marks([80, 83, 79], [80, 80, 80], [50, 53, 49]) == ["tied", "tied", ""]


def test_two_seeds_distinguish_results_that_are_far_apart() -> None:
    """91.6 ± 0.2 and 70.8 ± 2.6: t = 20.8 / sqrt(0.2² + 2.6²) = 8.0 with 2 degrees of freedom, p = 0.015."""
    assert marks([91.4, 91.8], [68.2, 73.4]) == ["best", ""]


@given(pairs, st.floats(0, 10))
def test_a_difference_of_five_times_both_standard_deviations_is_never_a_tie(
    both: list[tuple[float, float]], further: float
) -> None:
    a, b = np.array(both).T
    assume(a.std() + b.std() > 1e-6)
    away = (b - b.mean() + a.mean() - 5 * (a.std() + b.std()) - further).tolist()
    assert marks(a.tolist(), away) == ["best", ""]


def test_one_seed_marks_nothing() -> None:
    assert marks([80], [10]) == ["", ""]
    assert marks([80, 81, 82]) == [""]
    assert best_and_ties([{0: 80.0}, {0: 10.0}]) is None


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=6))
def test_at_most_one_is_best_and_it_has_the_highest_mean(columns: list[list[float]]) -> None:
    found = marks(*columns)
    assert found.count("best") <= 1
    if "best" in found:
        top = found.index("best")
        assert sum(columns[top]) >= max(map(sum, columns)) - 1e-9
        assert "tied" not in found
        others = [column for i, column in enumerate(columns) if i != top]
        chances = [p_value(by_seed(columns[top]), by_seed(other)) for other in others]
        assert all(p is not None and p < LEVEL for p in chances)
    else:
        assert found.count("tied") >= 2


@given(accuracies)
def test_a_mean_has_the_standard_deviation_with_divisor_n_and_its_runs(values: list[float]) -> None:
    found = seed_mean({f"run{i}": value for i, value in enumerate(values)})
    assert found.mean == pytest.approx(math.fsum(values) / len(values))
    assert found.std == pytest.approx(math.sqrt(math.fsum((v - found.mean) ** 2 for v in values) / len(values)))
    assert found.runs == tuple(f"run{i}" for i in range(len(values)))
    assert seed_mean({"a": 0.5}) == SeedMean(0.5, None, ("a",))
