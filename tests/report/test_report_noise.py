import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from pacfl.report.noise import LEVEL, Figure, chance, marked, over_seeds

accuracies = st.lists(st.floats(0, 1), min_size=2, max_size=8)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8))
def test_chance_is_that_of_scipys_paired_test(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    assume(np.std(a - b) > 1e-6)
    assert chance(dict(enumerate(a)), dict(enumerate(b))) == pytest.approx(ttest_rel(a, b).pvalue, rel=1e-6)


def test_seeds_are_paired_and_others_left_out() -> None:
    a = {0: 0.5, 1: 0.6, 2: 0.8, 7: 0.0}
    b = {2: 0.6, 1: 0.5, 0: 0.3, 9: 1.0}
    assert chance(a, b) == pytest.approx(ttest_rel([0.5, 0.6, 0.8], [0.3, 0.5, 0.6]).pvalue)
    assert chance({0: 0.5, 1: 0.6}, {1: 0.5}) is None


def test_the_same_difference_in_every_seed_is_no_noise() -> None:
    assert chance({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.5}) == 0.0
    assert chance({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6}) == 1.0


def marks(*columns: list[float]) -> list[str]:
    by_seed = [dict(enumerate(column)) for column in columns]
    figures = [over_seeds({str(seed): value for seed, value in one.items()}) for one in by_seed]
    return ["best" if f.best else "tied" if f.tied else "" for f in marked(figures, by_seed)]


def test_the_best_is_marked_where_it_is_told_apart_from_all() -> None:
    """Differences 10, 11, 9: mean 10, error 1 / sqrt(3) = 0.58, t = 17.3 with 2 degrees of freedom, p = 0.003."""
    assert marks([80, 81, 79], [70, 70, 70], [50, 50, 50]) == ["best", "", ""]


def test_a_difference_within_noise_is_a_tie() -> None:
    """Differences 0, 3, -1: mean 0.67, error 1.2, t = 0.56, p = 0.63. The third is 30 below in every seed."""
    assert marks([80, 83, 79], [80, 80, 80], [50, 53, 49]) == ["tied", "tied", ""]


def test_one_seed_marks_nothing() -> None:
    assert marks([80], [10]) == ["", ""]
    assert marks([80, 81, 82]) == [""]


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=6))
def test_at_most_one_is_best_and_it_has_the_highest_mean(columns: list[list[float]]) -> None:
    given_marks = marks(*columns)
    assert given_marks.count("best") <= 1
    if "best" in given_marks:
        top = given_marks.index("best")
        assert sum(columns[top]) >= max(map(sum, columns)) - 1e-9
        assert "tied" not in given_marks
        others = [column for i, column in enumerate(columns) if i != top]
        chances = [chance(dict(enumerate(columns[top])), dict(enumerate(other))) for other in others]
        assert all(p is not None and p < LEVEL for p in chances)
    else:
        assert given_marks.count("tied") >= 2


@given(accuracies)
def test_a_figure_has_mean_deviation_and_its_runs(values: list[float]) -> None:
    figure = over_seeds({f"run{i}": value for i, value in enumerate(values)})
    assert figure.mean == pytest.approx(math.fsum(values) / len(values))
    assert figure.deviation == pytest.approx(np.std(values, ddof=1))
    assert figure.runs == tuple(f"run{i}" for i in range(len(values)))
    assert over_seeds({"a": 0.5}) == Figure(0.5, None, ("a",))
