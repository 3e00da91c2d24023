from typing import Any

import pytest

from pacfl.experiment.seeds import mark_best, seed_mean
from pacfl.reproduce.accuracy import distances
from pacfl.reproduce.tables import Table, clusters_and_ari, leaders, markdown, over_seeds, percent, settings


def runs(*means: float, protocol: str = "received") -> list[dict[str, Any]]:
    return [
        {"accuracy": {protocol: {"mean": mean / 100}}, "learning": {"lr": 0.01}, "algorithm": {}, "seed": seed}
        for seed, mean in enumerate(means)
    ]


DIVERGED = {"diverged": "client 3 diverged in round 7", "learning": {"lr": 0.1}, "algorithm": {"mu": 0.001}}


def test_one_seed_has_no_standard_deviation_and_three_have_the_divisor_n() -> None:
    assert over_seeds([97.0]) == "97.00"
    assert over_seeds([1.0, 2.0, 3.0]) == "2.00 ± 0.82"  # √(2/3)
    assert over_seeds([]) == "-"


def test_runs_that_diverged_are_counted_and_not_averaged() -> None:
    assert percent(runs(90.0), "received") == "90.00"
    assert percent([*runs(90.0), DIVERGED], "received") == "90.00 (1 of 2 diverged)"
    assert percent([DIVERGED], "received") == "diverged"
    assert percent([], "received") == "not run"
    assert percent(runs(90.0), "personal") == "-"


def test_a_tie_is_what_the_test_over_seeds_does_not_distinguish() -> None:
    """77 ± 1 and 75.5 ± 1: t = 1.5 / sqrt(1² + 1²) = 1.1; 60 ± 1: t = 17 / 1.4 = 12. The limit for 2 seeds is 4.3."""
    close, far = runs(74.5, 76.5), runs(59, 61)
    found = leaders({"a": runs(76, 78), "b": close, "c": far}, "received")
    assert found == "received: a is first with 77.00 ± 1.00; tied with it: b."
    assert leaders({"a": runs(76, 78), "c": far}, "received").endswith("tied with it: none.")


def test_ties_are_those_of_the_report() -> None:
    columns = {"a": [91.4, 91.8, 91.6], "b": [91.2, 91.9, 91.0], "c": [68.2, 73.4, 70.8], "d": [90.0, 91.7, 91.3]}
    by_seed = [dict(enumerate(values)) for values in columns.values()]
    marked = mark_best([seed_mean({str(s): v for s, v in one.items()}) for one in by_seed], by_seed)
    tied = [name for name, mean in zip(columns, marked, strict=True) if mean.tied]
    assert tied == ["a", "b", "d"]
    found = leaders({name: runs(*values) for name, values in columns.items()}, "received")
    assert found.endswith(f"tied with it: {', '.join(tied[1:])}.")


def test_with_one_seed_nothing_is_tied() -> None:
    assert "with one seed no standard deviation is known" in leaders({"a": runs(76), "b": runs(10)}, "received")
    assert leaders({"a": []}, "received") == "received: nothing was run."


@pytest.mark.parametrize(("name", "shown"), [("solo", ("-", "-")), ("fedavg", ("1", "0.00 ± 0.00"))])
def test_a_method_without_clusters_has_none_in_the_table(name: str, shown: tuple[str, str]) -> None:
    stored = [{"clusters": 1, "ari": 0.0, "algorithm": {"name": name}, "seed": seed} for seed in (0, 1)]
    assert clusters_and_ari([*stored, {"algorithm": {"name": name}, "diverged": "in round 7"}]) == shown


def test_settings_show_what_was_tuned() -> None:
    assert settings(runs(1.0)) == "0.01"
    assert settings([DIVERGED]) == "0.1, mu 0.001"


def test_distances_are_between_means() -> None:
    found = distances(
        {"a": runs(90, 92), "b": runs(50), "c": []}, {"a": "89.00 ± 0.10", "c": "1"}, dict.fromkeys("abc", "received")
    )
    assert found == pytest.approx([2.0])


def test_markdown_has_all_rows_and_escapes_bars() -> None:
    table = Table("t", ("a", "b"), (("1|2", "3"),), ("a note",))
    assert markdown(table) == "**t**\n\n| a | b |\n|---|---|\n| 1\\|2 | 3 |\n\na note\n"
