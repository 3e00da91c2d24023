"""The one layer that reads settings: what it takes, what it refuses, and in which words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from pacfl import algorithms
from pacfl.errors import ConfigError
from pacfl.experiment.config import expand
from pacfl.settings import (
    NonNegative,
    Positive,
    PositiveInt,
    PositiveShare,
    Share,
    ShareBelowOne,
    build,
    check,
    content,
    later,
    suggestion,
)


@dataclass(frozen=True)
class Example:
    count: PositiveInt
    share: Share = 0.5
    kind: Literal["a", "b"] = "a"
    rates: tuple[float, ...] = ()
    when: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    limit: NonNegative | None = None
    text: str = ""

    def __post_init__(self) -> None:
        check(self)


def test_a_table_becomes_a_dataclass() -> None:
    table = {"count": 3, "share": 1, "rates": [1, 0.5], "when": {"2": [0, 1]}, "limit": 2}
    made = build(Example, table, "example")
    assert made == Example(3, 1.0, "a", (1.0, 0.5), {2: (0, 1)}, 2.0)
    assert type(made.share) is float


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"\[example\] needs count"),
        ({"count": 0}, r"\[example\] count must be an integer of at least 1, got 0"),
        ({"count": True}, "count must be an integer of at least 1, got True"),
        ({"count": 1.5}, "count must be an integer of at least 1, got 1.5"),
        ({"count": 1, "share": 2}, "share must be a number from 0 to 1, got 2"),
        ({"count": 1, "kind": "c"}, "kind must be one of 'a', 'b', got 'c'"),
        ({"count": 1, "rates": "x"}, "rates must be a list, a number each, got 'x'"),
        ({"count": 1, "rates": ["x"]}, "rates must be a list, a number each"),
        ({"count": 1, "when": {"x": [1]}}, "the keys of example.when must be an integer each, got 'x'"),
        ({"count": 1, "limit": -1}, "limit must be a number of at least 0 or left out, got -1"),
        ({"count": 1, "limit": float("nan")}, "limit must be"),
        (
            {"count": 1, "cuont": 1},
            r"\[example\] has no setting 'cuont' \(did you mean 'count'\?\); there are count, sh",
        ),
        (7, r"\[example\] must be a table, got 7"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(table: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Example, table, "example")


@pytest.mark.parametrize(
    ("hint", "inside", "outside"),
    [(Positive, 0.1, 0), (PositiveShare, 1, 0), (ShareBelowOne, 0, 1), (Share, 1, 1.1)],
)
def test_bounds_are_included_or_excluded(hint: Any, inside: float, outside: float) -> None:
    class Made:
        __annotations__ = {"x": hint}

    made = dataclass(frozen=True)(Made)
    check(made(inside))  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="x must be a number"):
        check(made(outside))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("section", "old", "new"),
    [
        ("learning", "batch", "batch-size"),
        ("schedule", "sample", "participation"),
        ("schedule", "loss", "client-dropout"),
    ],
)
def test_a_setting_under_its_old_name_is_refused_with_the_new_one(section: str, old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[{section}\] has no setting '{old}': it is called '{new}' now"):
        expand({section: {old: 1}, "algorithm": [{"name": "fedavg"}]})


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ifca", "k", "clusters"),
        ("fedavg", "update-clip", "aggregation.clip-norm"),
        ("fedavg", "clip-norm", "aggregation.clip-norm"),
        ("fedavg", "private-noise", "aggregation.noise"),
        ("pacfl", "update_noise", "aggregation.noise-multiplier"),
        ("pacfl", "noise-multiplier", "aggregation.noise-multiplier"),
        ("pacfl", "private-noise", "signature-noise' or 'aggregation.noise"),
    ],
)
def test_a_hyper_parameter_under_its_old_name_is_refused_with_the_new_one(name: str, old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no setting '{old}': it is called '{new}' now"):
        algorithms.build(name, **{old: 1})


def test_a_suggestion_names_the_nearest_word_and_all() -> None:
    assert suggestion("pacfk", ["fedavg", "pacfl"]) == " (did you mean 'pacfl'?); there are fedavg, pacfl"
    assert suggestion("x", []) == "; there are none"


@dataclass(frozen=True)
class Grown:
    first: int = 1
    added: str = later("as before")
    nested: Example = field(default_factory=lambda: Example(1))
    maybe: float | None = later(None)


def test_a_setting_that_came_later_is_left_out_while_it_has_its_default() -> None:
    """So that results stored without it are found again."""
    assert content(Grown()).keys() == {"first", "nested"}
    assert content(Grown(added="x", maybe=0.0)) == {**content(Grown()), "added": "x", "maybe": 0.0}
    assert content(Grown())["nested"]["rates"] == []
