"""Columns of tables are compared one by one: a column that differs is found and named, chance is not."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, ttest_ind

from pacfl.subspace import (
    ClientSignature,
    adjusted_rand_index,
    assign,
    cluster_clients,
    diagnose,
    explain,
    signature,
    split_half_angles,
)
from pacfl.subspace.columns import (
    UNLABELLED,
    ColumnAngles,
    ColumnDifference,
    assign_by_columns,
    cluster_columns,
    column_angles,
    column_scores,
    largest_column_differences,
    pooled,
    unit_factor,
    with_constant,
)

Array = NDArray[np.float64]
ERROR_RATE = 0.001
GROUPS = np.array([0, 0, 0, 1, 1, 1])


def correlated(rng: np.random.Generator, n: int, columns: int = 12) -> Array:
    """Columns that nearly all say the same, as many of real tables do."""
    return np.asarray(rng.normal(size=(n, 1)) + 0.3 * rng.normal(size=(n, columns)))


def table(kind: str, rng: np.random.Generator, n: int) -> Array:
    if kind == "correlated":
        return correlated(rng, n, 10)
    return rng.standard_t(1.5, size=(n, 10)) if kind == "heavy" else (rng.random((n, 10)) < 0.03).astype(np.float64)


def sites(seed: int, n: int = 60, columns: int = 12) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [correlated(rng, n, columns) for _ in GROUPS]


def found(tables: list[Array]) -> tuple[list[int], list[int]]:
    """Labels, and the columns that separate."""
    made = cluster_columns([column_angles(x) for x in tables], ERROR_RATE)
    return made.labels.tolist(), [one.column for one in made.separating]


def test_a_score_is_student_s_t_as_a_normal_score_where_sizes_are_equal() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(30, 4)), rng.normal(0.5, 1, size=(30, 4))
    scores = column_scores(column_angles(a), column_angles(b))[0, 0]
    p = ttest_ind(np.arctan(a), np.arctan(b), equal_var=False).pvalue
    assert scores == pytest.approx(norm.isf(p / 2))


def test_columns_without_any_variance_have_a_finite_score() -> None:
    all_missing, none_missing = column_angles(np.ones((20, 1))), column_angles(np.zeros((20, 1)))
    assert column_scores(all_missing, none_missing).tolist() == [[[37.0], [37.0]]]
    assert column_scores(all_missing, all_missing).tolist() == [[[0.0], [0.0]]]


@pytest.mark.parametrize("labelled", [False, True])
def test_pooled_halves_of_a_table_are_the_whole(labelled: bool) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
    made = [column_angles(x[rows], y[rows] if labelled else None) for rows in (slice(35), slice(35, None), slice(None))]
    both, whole = pooled(made[:2]), made[2]
    assert both.names == whole.names
    assert both.counts.tolist() == whole.counts.tolist()
    assert both.means == pytest.approx(whole.means)
    assert both.variances == pytest.approx(whole.variances)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("change", ["shift", "unit", "spread"])
def test_one_column_that_differs_among_correlated_ones_is_found_and_named(seed: int, change: str) -> None:
    tables = sites(seed)
    for x in tables[3:]:
        if change == "spread":
            x[:, 7] *= 5
        else:
            x[:, 7] = x[:, 7] + 3.5 if change == "shift" else 2.54 * (x[:, 7] + 3) - 3
    labels, separating = found(tables)
    assert adjusted_rand_index(GROUPS, labels) == 1
    assert separating[0] == 7


@pytest.mark.parametrize("kind", ["correlated", "rare", "heavy"])
@pytest.mark.parametrize(("n_clients", "n"), [(2, 20), (10, 30)])
def test_clients_of_one_distribution_are_not_divided(kind: str, n_clients: int, n: int) -> None:
    divided = 0
    for seed in range(100):
        rng = np.random.default_rng([seed, n_clients])
        sizes = n if seed % 2 else (n * np.exp(rng.uniform(np.log(0.5), np.log(10), n_clients))).astype(int)
        total = np.broadcast_to(sizes, n_clients)
        x = table(kind, rng, int(total.sum()))
        labels, _ = found(np.split(x, np.cumsum(total)[:-1]))
        divided += max(labels) > 0
    assert divided == 0


def test_two_columns_that_differ_at_other_clients_give_all_combinations() -> None:
    tables = sites(0, 100)
    for i in (1, 2, 4):
        tables[i][:, 2] += 3
    for i in (2, 3, 4):
        tables[i][:, 9] -= 3
    labels, separating = found(tables)
    assert adjusted_rand_index([0, 1, 2, 3, 2, 0], labels) == 1
    assert set(separating) == {2, 9}


def test_clusters_that_are_given_are_only_divided_further() -> None:
    tables = sites(3)
    for x in tables[3:]:
        x[:, 0] += 3
    start = np.array([0, 0, 1, 1, 1, 1])
    made = cluster_columns([column_angles(x) for x in tables], ERROR_RATE, start)
    assert made.labels.tolist() == [0, 0, 1, 2, 2, 2]


def test_order_of_clients_and_columns_changes_only_numbers() -> None:
    tables = sites(4)
    for x in tables[3:]:
        x[:, 5] += 2
    labels, separating = found(tables)
    clients, columns = np.random.default_rng(0).permutation(6), np.random.default_rng(1).permutation(12)
    others, moved = found([tables[i][:, columns] for i in clients])
    assert adjusted_rand_index(np.array(labels)[clients], others) == 1
    assert columns[moved[0]] == separating[0] == 5


def test_an_extreme_value_moves_a_column_by_one_sample_at_most() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    extreme = x.copy()
    extreme[0, 0] = 1e12
    moved = np.abs(column_angles(x).means - column_angles(extreme).means)
    assert moved[0, 0, 0] <= 180 / 50
    assert moved[0, :, 1].tolist() == [0, 0]


def test_rows_of_one_group_count_as_one() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    once = column_angles(x)
    repeated = column_angles(np.repeat(x, 5, axis=0), groups=np.repeat(np.arange(20), 5))
    assert repeated.counts.tolist() == once.counts.tolist() == [20]
    assert repeated.means == pytest.approx(once.means)
    assert repeated.variances == pytest.approx(once.variances)


def labelled_site(rng: np.random.Generator, shares: list[float], shift: float = 0.0) -> ColumnAngles:
    """Classes whose means differ by 2 in the first column; shift: of the second column of the second class."""
    y = rng.choice(2, 120, p=shares)
    x = rng.normal(size=(120, 4))
    x[:, 0] += 2 * y
    x[:, 1] += shift * y
    return column_angles(x, y)


def test_class_shares_alone_divide_nobody_and_a_class_that_differs_does() -> None:
    rng = np.random.default_rng(0)
    skewed = [labelled_site(rng, shares) for shares in ([0.9, 0.1], [0.1, 0.9], [0.5, 0.5], [0.8, 0.2])]
    assert cluster_columns(skewed, ERROR_RATE).labels.tolist() == [0, 0, 0, 0]
    shifted = [labelled_site(rng, [0.5, 0.5], 2.0) for _ in range(2)]
    made = cluster_columns([*skewed, *shifted], ERROR_RATE)
    assert made.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert (made.separating[0].column, made.separating[0].label) == (1, "1")


def test_a_client_without_the_class_that_divides_others_goes_where_its_other_classes_say_or_nowhere() -> None:
    rng = np.random.default_rng(1)

    def site(classes: list[int], shift: float) -> ColumnAngles:
        y = np.repeat(classes, 60)
        x = rng.normal(size=(len(y), 3))
        x[:, 0] += shift * (y > 0)
        return column_angles(x, y)

    both = [site([1, 2], shift) for shift in (0, 0, 3, 3)]
    made = cluster_columns([*both, site([2], 3), site([0], 0), site([0], 0)], ERROR_RATE)
    assert made.labels.tolist()[:5] == [0, 0, 1, 1, 1]
    assert set(made.labels[5:].tolist()) == {-1}


def test_newcomers_join_the_cluster_whose_columns_agree_or_open_one() -> None:
    tables = sites(5)
    for x in tables[3:]:
        x[:, 4] += 2
    rng = np.random.default_rng(9)
    new = [correlated(rng, 40) for _ in range(4)]
    new[1][:, 4] += 2
    new[2][:, 8] += 4
    clients = [column_angles(x) for x in (*tables, *new[:3], new[3][:2])]
    labels = assign_by_columns(clients, np.array([*GROUPS, -1, -1, -1, -1]), ERROR_RATE)
    assert labels.tolist() == [*GROUPS, 0, 1, 2, -1]


def test_differences_of_columns_are_sorted_and_name_each_once() -> None:
    a, b = sites(6)[:2]
    b[:, 3] += 5
    listed = largest_column_differences(column_angles(a), column_angles(b))
    assert listed[0].column == 3
    assert sorted(one.column for one in listed) == list(range(12))
    assert [one.size for one in listed] == sorted((one.size for one in listed), reverse=True)


def clients_of(tables: list[Array], columns: bool = True) -> list[ClientSignature]:
    made = []
    for x in tables:
        features = with_constant(x)
        own = split_half_angles(features, 1, measures=["smallest"])["smallest"]
        made.append(ClientSignature(signature(features, 1), own, None, column_angles(x) if columns else None))
    return made


def test_clients_are_divided_by_columns_unless_inputs_alone_are_compared() -> None:
    tables = sites(7, columns=60)  # by all columns together the difference is not seen
    for x in tables[3:]:
        x[:, 7] += 1.5
    clients = clients_of(tables)
    made = cluster_clients(clients)
    assert made.labels.tolist() == GROUPS.tolist()
    assert made.by_columns
    assert made.evidence["finding"] == "distinct"
    assert made.evidence["columns"]["separating"][0]["column"] == 7
    assert not cluster_clients(clients, compare="inputs").evidence["columns"]
    assert not cluster_clients(clients, n_clusters=1).by_columns
    assert not cluster_clients(clients_of(tables, columns=False)).by_columns


def test_the_explanation_names_the_column_and_the_diagnosis_its_size() -> None:
    tables = sites(8)
    for x in tables[3:]:
        x[:, 7] += 2
    clients = clients_of(tables)
    made = cluster_clients(clients)
    names = [*(f"column {j}" for j in range(7)), "age", *(f"column {j}" for j in range(8, 12)), "constant"]
    explained = explain(clients, made, 0, 1, "clusters", feature_names=names)
    assert explained.kind == "inputs"
    assert explained.features[0].name == "age"
    assert "age" in explained.words
    assert explained.size > made.evidence["columns"]["limit"]
    diagnosis = diagnose(clients, made)
    assert (diagnosis.kind, diagnosis.recommendation) == ("inputs", "apart")
    assert diagnosis.size == explained.size


def test_newcomers_of_a_federation_are_placed_by_their_columns() -> None:
    tables = sites(10)
    for x in tables[3:]:
        x[:, 7] += 2
    rng = np.random.default_rng(3)
    new = [correlated(rng, 50) for _ in range(3)]
    new[1][:, 7] += 2
    new[2][:, 1] += 3
    old, newcomers = clients_of(tables), clients_of(new)
    made = cluster_clients(old)
    joined, _ = assign(made, old, newcomers)
    assert joined.labels.tolist() == [*GROUPS, 0, 1, 2]
    one_cluster = cluster_clients(old[:3])
    joined, _ = assign(one_cluster, old[:3], newcomers)
    assert adjusted_rand_index([0, 0, 0, 0, 1, 2], joined.labels) == 1
    with pytest.raises(ValueError, match="some newcomers have none"):
        assign(made, old, clients_of(new, columns=False))


def test_a_factor_is_found_where_one_explains_mean_and_spread() -> None:
    """Values of 170 ± 10, in inches, shifted, spread twice as far, all equal but one; 0 is (0 - 120) / 40 = -3."""
    values = np.random.default_rng(0).normal(170, 10, 400)
    others = values / 2.54, values + 30, 170 + 2 * (values - 170), np.append(np.full(399, 170.0), 1e6)
    at = ColumnDifference(0, "values", UNLABELLED, 10.0)
    a, *sides = (column_angles((x[:, None] - 120) / 40, zeros=[-3.0]) for x in (values, *others))
    assert unit_factor(a, sides[0], at) == pytest.approx(2.54, rel=0.02)
    assert unit_factor(sides[0], a, at) == pytest.approx(1 / 2.54, rel=0.02)
    assert [unit_factor(a, side, at) for side in sides[1:]] == [None] * 3
    assert unit_factor(replace(a, zeros=None), sides[0], at) is None
