"""Descriptions of all parties' tables -> the schema that they agree on.

Centre and scale of numbers are median and interquartile range of a mixture of normal distributions, one for each party
with its own centre and scale, weighted by its rows: what the pooled rows would have if each party's were normal. A
party with few rows, whatever it says, moves them little.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from scipy.special import ndtr

from pacfl.errors import DataError
from pacfl.features.description import IQR_OF_NORMAL, MOST_SQUARED, ColumnDescription, TableDescription
from pacfl.features.schema import OTHER, Category, Column, Dropped, Labels, Number, Schema

MOST_CATEGORIES: Final = 50  # of a column; the rest are `other`
FAMILY: Final = {"number": "numbers", "boolean": "numbers", "category": "text", "text": "text", "date": "dates"}
BISECTIONS: Final = 200
DROPPED: Final = "left out when the schema was made"
Parties = Mapping[str, tuple[int, ColumnDescription]]  # rows and column of each


def merged(described: Mapping[str, TableDescription], drop: Sequence[str] = ()) -> Schema:
    """The schema of parties, by name; it does not depend on their order."""
    if not described:
        raise DataError("a schema is made of at least one table or description")
    parties = dict(sorted(described.items()))
    labels, group = (_agreed(parties, what) for what in ("labels", "group"))
    names = sorted({column.name for one in parties.values() for column in one.columns} - set(drop))
    by_name = {name: _of_parties(parties, name) for name in names}
    _check_complete(parties, by_name)
    columns: list[Column] = [_merged_column(name, by_name[name]) for name in names if name not in (labels, group)]
    columns += [Dropped(name, DROPPED) for name in drop]
    schema = Schema(
        tuple(sorted(columns, key=lambda column: column.name)),
        None if labels is None else _merged_labels(labels, by_name[labels]),
        group,
    )
    if not schema.features:
        reasons = "; ".join(f"{c.name!r}: {c.reason}" for c in schema.columns if c.kind == "dropped")
        raise DataError(f"no column is left to be a feature: {reasons}")
    return schema


def pooled(parties: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Centre and scale of weight, centre and scale of each party; scale 0 if all are constant and equal.

    >>> pooled([(10, 5.0, 2.0), (30, 5.0, 2.0)])
    (5.0, 2.0)
    """
    largest = max(max(abs(centre), scale) for _, centre, scale in parties)
    if largest > MOST_SQUARED:
        centre, scale = pooled([(weight, c / largest, s / largest) for weight, c, s in parties])
        return centre * largest, scale * largest
    total = math.fsum(weight for weight, _, _ in parties)
    mean = math.fsum(weight * centre for weight, centre, _ in parties) / total
    variance = math.fsum(weight * (scale**2 + (centre - mean) ** 2) for weight, centre, scale in parties) / total

    def below(value: float) -> float:
        shares = (weight * _normal_share(value - centre, scale) for weight, centre, scale in parties)
        return math.fsum(shares) / total

    bounds = min(c - 10 * s for _, c, s in parties), max(c + 10 * s for _, c, s in parties)
    first, middle, third = (_solve(below, share, *bounds) for share in (0.25, 0.5, 0.75))
    scale = (third - first) / IQR_OF_NORMAL or math.sqrt(variance)  # 0 where most parties are constant
    return float(f"{middle:.6g}"), float(f"{scale:.6g}")


def _normal_share(distance: float, scale: float) -> float:
    return float(ndtr(distance / scale)) if scale > 0 else float(distance >= 0)


def _solve(share_below: Callable[[float], float], share: float, low: float, high: float) -> float:
    for _ in range(BISECTIONS):
        middle = low / 2 + high / 2
        low, high = (low, middle) if share_below(middle) >= share else (middle, high)
    return high


def _merged_column(name: str, parties: Parties) -> Column:
    known = {party: one for party, one in parties.items() if one[1].type != "empty"}
    if not known:
        return Dropped(name, "empty in all tables")
    families = {party: FAMILY[column.type] for party, (_, column) in known.items() if column.type in FAMILY}
    if len(set(families.values())) > 1:
        raise _conflict(name, families)
    reason = _reason_to_drop(known)
    if reason is not None:
        return Dropped(name, reason)
    missing = any(column.missing > 0 for _, column in parties.values())
    if next(iter(families.values())) == "numbers":
        centre, scale = pooled(_statistics(known))
        return Number(name, centre, scale, missing) if scale > 0 else Dropped(name, f"constant, {centre:g} in all rows")
    values = [value for value in _totals(known) if value != OTHER][:MOST_CATEGORIES]
    if not values:
        return Dropped(name, "no category has enough rows to be named")
    whole = len(values) == 1 and sum(_totals(known).values()) >= sum(rows for rows, _ in parties.values())
    return (
        Dropped(name, f"constant, {values[0]!r} in all rows")
        if whole
        else Category(name, tuple(sorted(values)), missing)
    )


def _reason_to_drop(known: Parties) -> str | None:
    """Why a column of parties with values is no feature: what those with most of the rows say of it."""
    rows: dict[str, int] = {}
    for n, column in known.values():
        rows[column.type] = rows.get(column.type, 0) + n
    total = sum(rows.values())
    for kind, reason in (
        ("date", "dates or times"),
        ("identifier", "identifies rows: its values hardly repeat, or it counts rows"),
        ("text", "free text"),
    ):
        if 2 * rows.get(kind, 0) >= total:
            return reason
    unnamed = rows.get("identifier", 0) + rows.get("text", 0) + rows.get("date", 0)
    return "identifiers or free text" if 2 * unnamed >= total else None


def _merged_labels(name: str, parties: Parties) -> Labels:
    known = {party: one for party, one in parties.items() if one[1].type != "empty"}
    families = {party: FAMILY.get(column.type, "other") for party, (_, column) in known.items()}
    if not known or set(families.values()) - {"numbers", "text"}:
        kinds = ", ".join(sorted({column.type for _, column in parties.values()}))
        raise DataError(f"column {name!r} cannot be labels: it holds {kinds}; labels are text or numbers")
    if len(set(families.values())) > 1:
        raise _conflict(name, families)
    totals = _totals(known)
    if "text" in families.values() or all(column.counts for _, column in known.values()):
        if not totals:
            raise DataError(f"column {name!r}: no class has enough rows to be named; lower --minimum-count")
        return Labels(name, "classes", tuple(sorted(totals, key=_by_number)))
    centre, scale = pooled(_statistics(known))
    if not scale > 0:
        raise DataError(f"column {name!r}: all labels are equal, so there is nothing to predict; leave out --labels")
    return Labels(name, "value", (), centre, scale)


def _statistics(known: Parties) -> list[tuple[float, float, float]]:
    """Weight, centre and scale of the parties that have numbers, in an order that does not depend on names."""
    return sorted(
        (rows * (1 - column.missing) or 1.0, column.centre, column.scale)
        for rows, column in known.values()
        if column.centre is not None and column.scale is not None
    )


def _totals(known: Parties) -> dict[str, int]:
    """Rows of each category in all parties, the most frequent first."""
    totals: dict[str, int] = {}
    for _, column in known.values():
        for value, count in column.counts.items():
            totals[value] = totals.get(value, 0) + count
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def _by_number(name: str) -> tuple[bool, float, str]:
    """Classes that are numbers in their order, before others by the alphabet."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


def _of_parties(parties: Mapping[str, TableDescription], name: str) -> dict[str, tuple[int, ColumnDescription]]:
    return {
        party: (one.rows, column) for party, one in parties.items() for column in one.columns if column.name == name
    }


def _check_complete(parties: Mapping[str, TableDescription], by_name: Mapping[str, Parties]) -> None:
    """Refuse columns that some party lacks: filled in, they would distinguish parties by what they record."""
    found = []
    for name, having in by_name.items():
        lacking = [party for party in parties if party not in having]
        if lacking:
            only = len(having) < len(lacking)
            found.append(f"{name!r} is {'only in' if only else 'missing in'} {', '.join(having if only else lacking)}")
    if found:
        raise DataError(
            f"tables must have the same columns: {'; '.join(found)}. Rename them, or leave them out with --drop"
        )


def _agreed(parties: Mapping[str, TableDescription], what: str) -> str | None:
    """The column of labels or groups that all descriptions name."""
    named: dict[str | None, list[str]] = {}
    for party, one in parties.items():
        named.setdefault(getattr(one, what), []).append(party)
    if len(named) > 1:
        kinds = "; ".join(f"{name!r} in {', '.join(who)}" for name, who in named.items())
        raise DataError(
            f"tables must be described with the same --{what}, got {kinds}; describe them again with the same"
        )
    return next(iter(named))


def _conflict(name: str, families: Mapping[str, str]) -> DataError:
    kinds: dict[str, list[str]] = {}
    for party, family in families.items():
        kinds.setdefault(family, []).append(party)
    found = "; ".join(f"{family} in {', '.join(who)}" for family, who in kinds.items())
    return DataError(f"column {name!r} holds {found}; fix the cells that differ, or leave it out with --drop {name}")
