"""Rows of options in which every two values of different options occur together (a pairwise covering array)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, Final

import numpy as np

Row = dict[str, Any]
Options = Mapping[str, Sequence[Any]]
Rule = tuple[Mapping[str, Sequence[Any]], str]  # values that do not occur together, and why
Pair = tuple[tuple[str, Any], tuple[str, Any]]

CANDIDATES: Final = 40  # rows that are tried for each one that is taken


def refused_because(row: Mapping[str, Any], rules: Sequence[Rule]) -> str | None:
    """Why a row, or a part of one, is impossible."""
    for values, why in rules:
        if all(name in row and row[name] in some for name, some in values.items()):
            return why
    return None


def pairs_of(row: Mapping[str, Any]) -> Iterator[Pair]:
    """Every two values of a row."""
    yield from combinations(row.items(), 2)


def possible_pairs(options: Options, rules: Sequence[Rule]) -> list[Pair]:
    """Every two values of different options that no rule refuses."""
    found = []
    for a, b in combinations(options, 2):
        for left, right in product(options[a], options[b]):
            if refused_because({a: left, b: right}, rules) is None:
                found.append(((a, left), (b, right)))
    return found


def covering_rows(options: Options, rules: Sequence[Rule], cost: Callable[[Row], float]) -> list[Row]:
    """Rows that cover all possible pairs, those that cover most at a low cost first.

    Greedy: the first pair that is left is completed at random, and of many such rows the best is taken. The same rows
    for the same options.
    """
    rng = np.random.default_rng(0)
    left, rows = dict.fromkeys(possible_pairs(options, rules)), []
    while left:
        tried = [_completed(dict(next(iter(left))), options, rules, left, rng) for _ in range(CANDIDATES)]
        made = [row for row in tried if row is not None]
        if not made:
            raise ValueError(f"no row has {next(iter(left))}; a rule should say why")
        best = max(made, key=lambda row: sum(pair in left for pair in pairs_of(row)) / (1 + cost(row)) ** 0.5)
        rows.append(best)
        for pair in pairs_of(best):
            left.pop(pair, None)
    return rows


def _completed(
    part: Row, options: Options, rules: Sequence[Rule], left: Mapping[Pair, None], rng: np.random.Generator
) -> Row | None:
    """A row with these values whose others cover many pairs that are left; None at a dead end."""
    row: Row = {}
    place = {name: k for k, name in enumerate(options)}
    order = [*part, *(str(name) for name in rng.permutation([name for name in place if name not in part]))]
    for name in order:
        values = [part[name]] if name in part else list(options[name])
        allowed = [value for value in values if refused_because({**row, name: value}, rules) is None]
        if not allowed:
            return None
        gains = [_gain(row, name, value, place, left) + rng.random() for value in allowed]
        row[name] = allowed[int(np.argmax(gains))]
    return {name: row[name] for name in place}


def _gain(row: Row, name: str, value: Any, place: Mapping[str, int], left: Mapping[Pair, None]) -> int:
    """How many pairs that are left one more value would cover."""
    return sum(
        (((other, known), (name, value)) if place[other] < place[name] else ((name, value), (other, known))) in left
        for other, known in row.items()
    )
