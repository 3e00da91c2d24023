"""The description of a table with differential privacy for every single row: noisy counts, and nothing else.

Every cell is in one of the bins of its column: missing, a date, an octave of numbers (powers of 2, by sign), or its own
text. A second count divides the octaves in which numbers were found into equal bins. Adding or removing a row changes
one bin of each of c columns by 1, in both counts: √(2 c) in all, for which Gaussian noise is calibrated exactly
(Gaussian mechanisms compose to one, also if the second depends on what the first gave). Texts are not known in advance:
those whose noisy count is not above a threshold are not named, and one row's text exceeds it with probability at most
delta / 2 in all columns together (Wilkins et al., 2024). Types, shares, centres and scales follow from the counts.

What is not hidden: names of columns, the encoding of the file, and what the types of a Parquet file say.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pacfl.errors import DataError
from pacfl.features.cells import DECIMAL_COMMA, is_date, is_missing, number
from pacfl.features.description import (
    IDENTIFIER,
    IQR_OF_NORMAL,
    MOST_VALUES,
    ColumnDescription,
    TableDescription,
    category_name,
    check_columns,
    rounded,
)
from pacfl.privacy import Noise, gaussian_sigma, secret

GRID: Final = 1 << 18  # steps of a count, so that noise in integers is as good as continuous
LEAST_OCTAVE, MOST_OCTAVE = -30, 60  # powers of 2; smaller numbers count as 0, larger ones as the largest
MISSING, DATE, ZERO = "missing", "date", 0
BINS: Final = 32  # of the numbers of a column
CERTAIN: Final = 3.0  # standard deviations of noise above which a count is taken for more than noise
ROWS: Final = 20.0  # standard deviations of noise that a table must have rows

Bin = int | str | tuple[str]  # an octave, missing or date, or a text


@dataclass(frozen=True)
class _Counting:
    """How counts get their noise."""

    sigma: float
    threshold: float  # of texts
    noise: Noise

    def noisy(self, counts: Sequence[int]) -> NDArray[np.float64]:
        """Counts with noise of standard deviation sigma."""
        noise = self.noise(math.ceil((self.sigma * GRID) ** 2), len(counts))
        return np.asarray((np.asarray(counts, dtype=np.int64) * GRID + noise) / GRID)


def describe_privately(
    cells: Mapping[str, Sequence[str]],
    *,
    epsilon: float,
    delta: float,
    labels: str | None = None,
    drop: Sequence[str] = (),
    noise: Noise = secret,
) -> TableDescription:
    """The description of a table, its cells as text: (epsilon, delta) private if one row is added or removed."""
    names = [name for name in cells if name not in drop]
    check_columns(list(cells), labels, None, drop)
    contributions = len(names) + (labels is not None)  # labels are counted twice: as numbers and as classes
    try:
        sigma = gaussian_sigma(epsilon, delta / 2, math.sqrt(2 * contributions))
    except ValueError as error:
        raise DataError(str(error)) from None
    threshold = 1 + sigma * float(-ndtri(delta / (2 * contributions)))
    counting = _Counting(sigma, threshold, noise)
    first = {name: _first_count(_counted(cells[name], _bin), counting) for name in names}
    rows = round(float(np.median([sum(found.values()) for found in first.values()]))) if first else 0
    if rows < ROWS * sigma:
        raise DataError(
            f"the table has too few rows for epsilon {epsilon:g} with {contributions} columns: counts have noise of "
            f"standard deviation {sigma:.0f}, and a useful description takes over {ROWS * sigma:.0f} rows; give a "
            "larger --epsilon, or leave out columns with --drop"
        )
    columns = [_column(name, cells[name], first[name], rows, counting) for name in names if name != labels]
    if labels is not None:
        columns.append(_labels(labels, cells[labels], first[labels], rows, counting))
    return TableDescription(rows, tuple(columns), labels, None, math.ceil(threshold), epsilon, delta)


def _counted(cells: Sequence[str], bin_of: Callable[[str], Bin]) -> Counter[Bin]:
    """Cells in each bin."""
    counts: Counter[Bin] = Counter()
    for cell, n in Counter(cells).items():
        counts[bin_of(cell)] += n
    return counts


def _bin(cell: str) -> Bin:
    """Where a cell is counted, which does not depend on others."""
    text = cell.strip()
    if is_missing(text):
        return MISSING
    value = _value(text)
    if value is not None:
        return _octave(value)
    return DATE if is_date(text) else (category_name(text),)


def _value(text: str) -> float | None:
    """The number in a cell; truth values are 0 and 1."""
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    value = number(text)
    return value if value is not None and math.isfinite(value) else None


def _octave(value: float) -> int:
    """0 for 0; ± (1 + k - LEAST_OCTAVE) for numbers of size 2^k to 2^(k + 1)."""
    if abs(value) < 2.0**LEAST_OCTAVE:
        return ZERO
    k = min(math.frexp(abs(value))[1] - 1, MOST_OCTAVE)
    return (1 if value > 0 else -1) * (1 + k - LEAST_OCTAVE)


def _bounds(octave: int) -> tuple[float, float]:
    """The numbers of an octave."""
    if octave == ZERO:
        return 0.0, 0.0
    low = 2.0 ** (abs(octave) - 1 + LEAST_OCTAVE)
    return (low, 2 * low) if octave > 0 else (-2 * low, -low)


def _first_count(true: Counter[Bin], counting: _Counting) -> dict[Bin, float]:
    """The bins that are certainly not empty, with noisy counts; texts only above the threshold."""
    largest = 1 + MOST_OCTAVE - LEAST_OCTAVE
    known: list[Bin] = [MISSING, DATE, *range(-largest, largest + 1)]
    texts: list[Bin] = sorted(one for one in true if isinstance(one, tuple))
    noisy = counting.noisy([true[one] for one in (*known, *texts)])
    return {
        one: count
        for one, count in zip((*known, *texts), noisy.tolist(), strict=True)
        if count > (counting.threshold if isinstance(one, tuple) else CERTAIN * counting.sigma)
    }


def _column(
    name: str, cells: Sequence[str], found: Mapping[Bin, float], rows: int, counting: _Counting
) -> ColumnDescription:
    missing = min(round(found.get(MISSING, 0.0) / rows, 3), 1.0)
    texts = {one[0]: count for one, count in found.items() if isinstance(one, tuple)}
    octaves = [one for one in found if isinstance(one, int)]
    kinds = {"number": sum(found[one] for one in octaves), "category": sum(texts.values()), "date": found.get(DATE, 0)}
    kind = max(kinds, key=lambda one: kinds[one])
    if not kinds[kind]:
        return ColumnDescription(name, "empty" if missing > 0.5 else "text", missing)
    if kind == "date":
        return ColumnDescription(name, "date", missing)
    if kind == "category":
        return ColumnDescription(name, "category", missing, counts=_counts(texts))
    if IDENTIFIER.search(name):
        return ColumnDescription(name, "identifier", missing)
    return ColumnDescription(name, "number", missing, *_centre_and_scale(cells, octaves, counting))


def _labels(
    name: str, cells: Sequence[str], found: Mapping[Bin, float], rows: int, counting: _Counting
) -> ColumnDescription:
    """Classes if those that can be named have half of all rows, else values."""
    column = _column(name, cells, found, rows, counting)
    named = _first_count(_counted(cells, lambda c: MISSING if is_missing(c) else (category_name(c),)), counting)
    classes = _counts({one[0]: count for one, count in named.items() if isinstance(one, tuple)})
    if 2 * sum(classes.values()) < rows:
        classes = {}
    if column.type == "identifier":
        column = ColumnDescription(name, "number", column.missing, *_centre_and_scale(cells, list(found), counting))
    if column.type not in ("number", "category") or (column.type == "category" and not classes):
        raise DataError(f"column {name!r}: the labels cannot be described privately; give a larger --epsilon")
    return ColumnDescription(name, column.type, column.missing, column.centre, column.scale, classes)


def _counts(texts: Mapping[str, float]) -> dict[str, int]:
    common = sorted(texts.items(), key=lambda item: (-item[1], item[0]))[:MOST_VALUES]
    return {value: round(count) for value, count in common}


def _centre_and_scale(cells: Sequence[str], octaves: Sequence[Bin], counting: _Counting) -> tuple[float, float]:
    """Median and interquartile range of noisy counts in equal bins between the octaves where numbers were found."""
    bounds = [_bounds(octave) for octave in octaves if isinstance(octave, int)]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    if low == high:
        return 0.0, 0.0
    values = [value for cell in cells if (value := _value(cell.strip())) is not None]
    counts, edges = np.histogram(np.clip(values, low, high), BINS, (low, high))
    noisy = counting.noisy(counts.tolist())
    certain = np.where(noisy > CERTAIN * counting.sigma, noisy, 0.0)
    if not certain.any():
        certain[int(noisy.argmax())] = 1.0
    below = np.concatenate([[0.0], np.cumsum(certain)]) / certain.sum()
    rising = np.concatenate([[True], np.diff(below) > 0])
    rising[:-1] |= rising[1:]  # the left edge of every bin with numbers
    first, middle, third = np.interp([0.25, 0.5, 0.75], below[rising], edges[rising]).tolist()
    return rounded(middle, (third - first) / IQR_OF_NORMAL)


def text_cells(table: Any) -> dict[str, list[str]]:
    """The cells of a table that `read_table` gave as text; commas are decimal where others separate cells."""
    decimal = (table.schema.metadata or {}).get(b"delimiter", b",") != b","

    def text(cell: Any) -> str:
        written = "" if cell is None else str(cell)
        return re.sub(DECIMAL_COMMA, r"\1.\2", written.strip()) if decimal else written

    return {name: [text(cell) for cell in table.column(name).to_pylist()] for name in table.column_names}
