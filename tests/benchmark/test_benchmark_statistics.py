"""Ranks, intervals and corrected tests over cells."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from pacfl.benchmark.leaders import leaders, missing
from pacfl.benchmark.statistics import (
    Grid,
    best_in_cells,
    compared,
    holm,
    mean_ranks,
    score_of,
    signed_rank,
    values,
    within_noise,
)


def run(method: str, column: str, accuracy: float | None, seed: int = 0, **more: Any) -> dict[str, Any]:
    """A summary of a run with these accuracies; None: it diverged."""
    place = {"data_set": "d", "column": column, "method": method, "seed": seed, "given": method == "ifca", "clients": 9}
    if accuracy is None:
        return {**place, "diverged": "a model diverged", "round": 1}
    score = {p: {"mean": accuracy, "std": 0.0, "worst_tenth": accuracy / 2} for p in ("received", "personal")}
    return {
        **place,
        "scores": {"proportional": score},
        "below_local": {"proportional": {"received": 0.25, "personal": None}},
        "ari": None,
        "megabytes": 1.0,
        "seconds": 2.0,
        "rounds_to_target": None,
        **more,
    }


def grid_of(table: dict[str, list[list[float]]]) -> Grid:
    """By method: for each column the values of its seeds."""
    return values(
        [
            run(method, f"c{i}", value, seed)
            for method, of_columns in table.items()
            for i, of_seeds in enumerate(of_columns)
            for seed, value in enumerate(of_seeds)
        ],
        score_of("proportional", "received"),
    )


def test_mean_ranks_are_worked_by_hand() -> None:
    """Cell 0: a 1, b and c share 2 and 3; cell 1: c 1, a 2, b 3. Means 1.5, 2.75, 1.75."""
    grid = grid_of({"a": [[0.9], [0.5]], "b": [[0.8], [0.4]], "c": [[0.8], [0.6]]})
    assert mean_ranks(grid) == {"a": 1.5, "b": 2.75, "c": 1.75}


def test_a_cell_counts_once_all_methods_have_it_and_by_the_seeds_that_all_have() -> None:
    runs = [
        *(run("a", "c0", 0.9, seed) for seed in (0, 1, 2)),
        *(run("b", "c0", 0.1 * seed, seed) for seed in (1, 2)),
        run("a", "c1", 0.5),
    ]
    grid = values(runs, score_of("proportional", "received"))
    assert (grid.cells, grid.n_cells) == ((("d", "c0"),), 2)
    assert grid.means.tolist() == [[pytest.approx(0.9), pytest.approx(0.15)]]


def test_a_run_that_diverged_counts_as_nothing_learnt_and_a_refused_method_has_no_rank() -> None:
    runs = [run("a", "c", 0.4), run("b", "c", None), {**run("r", "c", None), "refused": "no BatchNorm"}]
    del runs[2]["diverged"]
    assert mean_ranks(values(runs, score_of("proportional", "received"))) == {"a": 1.0, "b": 2.0}
    rows = leaders(runs, "proportional", "received")
    assert [(row.method, row.rank, row.accuracy) for row in rows] == [
        ("a", 1.0, 0.4),
        ("b", 2.0, 0.0),
        ("r", None, None),
    ]
    assert list(missing(runs)) == ["r is refused in d c: no BatchNorm", "b diverged in d c"]


def test_means_of_the_leaderboard_are_over_runs_that_have_a_value() -> None:
    runs = [
        run("pacfl", "c0", 0.8, ari=1.0),
        run("pacfl", "c1", 0.6),
        run("fedavg-ft", "c0", 0.7),
        run("fedavg-ft", "c1", 0.7),
    ]
    first, second = leaders(runs, "proportional", "received")
    assert (first.method, second.method) == ("fedavg-ft", "pacfl")
    assert (second.ari, second.below_local, second.worst_tenth) == (1.0, 0.25, pytest.approx(0.35))
    assert second.least_beside_fine_tuned == pytest.approx(-0.1)
    assert first.beside_reference is not None
    assert first.beside_reference.gain == pytest.approx(0.0)
    assert first.verdict == "too few cells"


def test_a_constant_gain_has_an_interval_of_one_point() -> None:
    grid = grid_of({"pacfl": [[0.9]] * 8, "a": [[0.8]] * 8, "b": [[0.9]] * 8})
    found = compared(grid)
    assert [found["a"].gain, found["a"].low, found["a"].high] == pytest.approx([0.1] * 3)
    assert (found["a"].verdict, found["b"].verdict) == ("ahead", "tied")
    assert found["b"].holm == 1.0, "ties are ties"


def test_a_method_that_is_better_in_every_cell_is_ahead_of_the_reference() -> None:
    grid = grid_of({"pacfl": [[0.5]] * 8, "a": [[0.5 + 0.01 * i] for i in range(1, 9)]})
    found = compared(grid)["a"]
    assert found.verdict == "behind"
    assert found.high < 0


def test_the_interval_covers_the_mean_over_all_cells_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(40):
        draws = rng.normal(0.1, 0.1, 30).tolist()
        one = compared(grid_of({"pacfl": [[x] for x in draws], "a": [[0.0]] * 30}))["a"]
        hits.append(one.low <= 0.1 <= one.high)
    assert sum(hits) >= 33, "95 % of 40 are 38"


@given(st.lists(st.integers(1, 50), min_size=6, max_size=8, unique=True), st.data())
def test_the_signed_rank_test_counts_all_signs(sizes: list[int], data: st.DataObject) -> None:
    """Without a difference between methods, every combination of signs is equally likely."""
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=len(sizes), max_size=len(sizes)))
    ranks = rankdata(sizes)

    def statistic(chosen: Any) -> float:
        return abs(float((np.array(chosen) * ranks).sum()))

    every = [statistic(chosen) for chosen in itertools.product((-1, 1), repeat=len(sizes))]
    expected = np.mean([one >= statistic(signs) - 1e-9 for one in every])
    assert signed_rank(np.array(sizes) * np.array(signs, dtype=np.float64)) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_rejects_exactly_what_the_step_by_step_procedure_rejects(chances: list[float]) -> None:
    """Holm 1979: from the smallest on, reject while p <= level / (tests left); the first that is larger ends it."""
    for level in (0.05, 0.2):
        rejected, left = set(), len(chances)
        for i in sorted(range(len(chances)), key=lambda i: chances[i]):
            if chances[i] > level / left:
                break
            rejected.add(i)
            left -= 1
        assert {i for i, p in enumerate(holm(chances)) if p is not None and p <= level + 1e-12} >= rejected
        assert {i for i, p in enumerate(holm(chances)) if p is not None and p <= level - 1e-12} <= rejected


def share(grid: Grid) -> dict[str, float | None]:
    return within_noise(best_in_cells(grid), grid)


def test_within_noise_of_the_best_needs_several_seeds() -> None:
    one = {"a": [[0.9]], "b": [[0.8]]}
    assert share(grid_of(one)) == {"a": None, "b": None}
    three = {
        "a": [[0.9, 0.91, 0.92], [0.5, 0.6, 0.7]],
        "b": [[0.8, 0.81, 0.82], [0.55, 0.6, 0.65]],
        "c": [[0.1, 0.1, 0.1], [0.1, 0.1, 0.1]],
    }
    assert share(grid_of(three)) == {"a": 1.0, "b": 0.5, "c": 0.0}
