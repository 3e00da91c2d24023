import doctest
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pacfl.experiment import swept
from pacfl.experiment.config import expand
from pacfl.experiment.swept import beside_label, flatten, short_names, swept_settings
from tests.experiment.tables import table

words = st.sampled_from(["name", "kind", "lr", "epochs", "alpha"])
paths = st.lists(st.lists(words, min_size=1, max_size=3).map(".".join), unique=True, max_size=8)
values = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["iid", "by-set"]))
contents = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values), min_size=1, max_size=5)


def contents_of(**sections: Any) -> list[dict[str, Any]]:
    return [run.content() for run in expand(table(**sections))]


def test_the_examples_are_true() -> None:
    assert doctest.testmod(swept).failed == 0


def test_a_sweep_of_any_section_is_found_with_the_values_of_each_run() -> None:
    found = swept_settings(contents_of(learning={"lr": [0.1, 0.01]}, schedule={"rounds": [3, 5]}, seeds=[0, 1]))
    pairs = [(lr, rounds) for lr in (0.1, 0.01) for rounds in (3, 5) for _ in range(2)]
    assert found == [{"learning.lr": lr, "schedule.rounds": rounds} for lr, rounds in pairs]


def test_runs_that_differ_in_seed_and_algorithm_alone_have_no_swept_settings() -> None:
    assert swept_settings(contents_of(seeds=[0, 1], algorithm=[{"name": "fedavg"}, {"name": "solo"}])) == [{}] * 4


def test_a_setting_that_only_some_runs_have_is_swept() -> None:
    found = swept_settings(contents_of(algorithm=[{"name": "fedavg"}, {"name": "fedprox", "mu": 0.1}]))
    assert found == [{}, {"algorithm.mu": 0.1}]


def test_schemes_are_compared_setting_by_setting_and_joins_as_a_whole() -> None:
    schemes = [{"kind": "dirichlet", "alpha": 0.1}, {"kind": "iid"}]
    runs = [content for scheme in schemes for content in contents_of(data={"scheme": scheme})]
    assert swept_settings(runs) == [
        {"data.scheme.kind": "dirichlet", "data.scheme.alpha": 0.1},
        {"data.scheme.kind": "iid"},
    ]
    assert flatten({"schedule": {"joins": {"3": [1, 2]}}}) == {"schedule.joins": {"3": [1, 2]}}


def test_code_of_plug_ins_is_a_setting_only_where_there_are_two_versions_of_it() -> None:
    old, new = {"plugins": {"mine": "a" * 64}}, {"plugins": {"mine": "b" * 64}}
    assert swept_settings([{}, old, old]) == [{}, {}, {}]
    assert swept_settings([{}, old, new]) == [{}, {"plugins.mine": "a" * 64}, {"plugins.mine": "b" * 64}]


def test_what_the_label_of_an_algorithm_has_is_not_shown_beside_it() -> None:
    settings = [{"algorithm.mu": 0.1, "learning.lr": 0.1, "data.clients": 5}, {"aggregation.rule": "median"}]
    assert beside_label(settings, besides=("data.clients",)) == ["learning.lr"]


@given(contents)
def test_two_runs_have_equal_swept_settings_only_if_they_are_equal(runs: list[dict[str, Any]]) -> None:
    found = swept_settings(runs)
    for a, run_a in zip(found, runs, strict=True):
        for b, run_b in zip(found, runs, strict=True):
            assert (a == b) == (run_a == run_b)


@given(paths)
def test_headings_distinguish_all_settings(given_paths: list[str]) -> None:
    names = short_names(given_paths)
    assert list(names) == given_paths
    assert len(set(names.values())) == len(given_paths)


def test_a_sweep_that_has_the_default_shows_it() -> None:
    """Though a setting that came later is not stored at its default."""
    found = swept_settings(contents_of(model={"name": "mlp", "batch-norm": ["averaged", "local"]}))
    assert found == [{"model.batch_norm": "averaged"}, {"model.batch_norm": "local"}]


def test_the_defaults_that_are_not_stored_are_those_of_the_settings() -> None:
    (run,) = expand(table())
    stored = flatten(run.content())
    for path, default in swept.NOT_STORED.items():
        value: Any = run
        for name in path.split("."):
            value = getattr(value, name)
        assert value == default
        assert path not in stored
