"""Results in the forms that other programs read."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

NOT_FOR_TABLES: Final = frozenset({"by_client", "metrics_by_client", "cluster_of", "sampled", "lost", "sizes"})


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """One value for each name; names of nested values are joined by dots. What belongs to single clients is left out.

    >>> flat({"round": 3, "accuracy": {"received": {"mean": 0.5}}, "sampled": [1, 2]})
    {'round': 3, 'accuracy.received.mean': 0.5}
    """
    return dict(_leaves(record, ""))


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """A header and a line for each record; what a record does not have is left empty."""
    rows = [flat(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if key in NOT_FOR_TABLES:
            continue
        if isinstance(part, Mapping):
            yield from _leaves(part, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", part
