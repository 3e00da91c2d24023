from typing import Any

import pytest

from pacfl.reproduce.accuracy import distances
from pacfl.reproduce.tables import Table, leaders, markdown, over_seeds, percent, settings


def runs(*means: float, protocol: str = "received") -> list[dict[str, Any]]:
    return [{"accuracy": {protocol: {"mean": mean / 100}}, "learning": {"lr": 0.01}, "algorithm": {}} for mean in means]


DIVERGED = {"diverged": "client 3 diverged in round 7", "learning": {"lr": 0.1}, "algorithm": {"mu": 0.001}}


def test_one_seed_has_no_deviation_and_three_have_that_of_the_population() -> None:
    assert over_seeds([97.0]) == "97.00"
    assert over_seeds([1.0, 2.0, 3.0]) == "2.00 ± 0.82"  # √(2/3)
    assert over_seeds([]) == "-"


def test_runs_that_diverged_are_counted_and_not_averaged() -> None:
    assert percent(runs(90.0), "received") == "90.00"
    assert percent([*runs(90.0), DIVERGED], "received") == "90.00 (1 of 2 diverged)"
    assert percent([DIVERGED], "received") == "diverged"
    assert percent([], "received") == "not run"
    assert percent(runs(90.0), "personal") == "-"


def test_a_tie_is_a_difference_below_both_deviations_together() -> None:
    """77 ± 1 and 75.5 ± 1 differ by 1.5 < 2; 70 ± 1 is further."""
    told = leaders({"a": runs(76, 78), "b": runs(74.5, 76.5), "c": runs(69, 71)}, "received")
    assert told == "received: first is a with 77.00 ± 1.00; within the deviations of it, and so tied: b."
    assert "tied: nobody" in leaders({"a": runs(76, 78), "c": runs(69, 71)}, "received")


def test_with_one_seed_nobody_is_said_to_have_won() -> None:
    assert "with one seed no deviation is known" in leaders({"a": runs(76), "b": runs(10)}, "received")
    assert leaders({"a": []}, "received") == "received: nothing was run."


def test_settings_show_what_was_tuned() -> None:
    assert settings(runs(1.0)) == "0.01"
    assert settings([DIVERGED]) == "0.1, mu 0.001"


def test_distances_are_between_means() -> None:
    found = distances(
        {"a": runs(90, 92), "b": runs(50), "c": []}, {"a": "89.00 ± 0.10", "c": "1"}, dict.fromkeys("abc", "received")
    )
    assert found == pytest.approx([2.0])


def test_markdown_keeps_rows_and_bars() -> None:
    table = Table("t", ("a", "b"), (("1|2", "3"),), ("a note",))
    assert markdown(table) == "**t**\n\n| a | b |\n|---|---|\n| 1\\|2 | 3 |\n\na note\n"
