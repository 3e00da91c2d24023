"""Tables for notebooks, and numbers in words: what a user wants to know about data at a glance."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

MOST_NAMES: Final = 8
MOST_ROWS: Final = 20
_STYLE: Final = ' style="text-align: left"'


def count(n: int, one: str, many: str = "") -> str:
    """A number of things.

    >>> count(1, "class", "classes"), count(60_000, "sample")
    ('1 class', '60,000 samples')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def extent(numbers: Iterable[int]) -> str:
    """The least and the largest of some numbers.

    >>> extent([30, 20, 40])
    '20..40'
    """
    values = list(numbers)
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}..{high:,}"


def listing(names: Sequence[str]) -> str:
    """The first few names."""
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*(name if len(name) <= 30 else f"{name[:29]}…" for name in names[:MOST_NAMES]), *more])


def html_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as HTML that needs nothing else; of many rows the first ones."""
    shown = [*rows[:MOST_ROWS], *([[f"and {len(rows) - MOST_ROWS:,} more"]] if len(rows) > MOST_ROWS else [])]
    lines = [*([_row("th", head)] if head else []), *(_row("td", row) for row in shown)]
    return "\n".join([f"<table><caption{_STYLE}>{escape(caption)}</caption>", *lines, "</table>"])


def _row(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}{_STYLE}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
