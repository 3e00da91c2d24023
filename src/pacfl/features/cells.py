"""Cells of text -> numbers, truth values, dates or text, as tables of all kinds write them."""

import re
from datetime import datetime
from typing import Any, Final

MISSING: Final = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "NULL", "Null", "null", "?")
DATES: Final = (  # for strptime
    *("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y/%m/%d"),
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%b-%Y", "%H:%M:%S", "%H:%M"),
)
TRIED: Final = 100  # cells on which a format of dates is tried before all are
DECIMAL_COMMA: Final = r"^([+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)$"
GROUPS_OF_THOUSANDS: Final = r"^[+-]?[0-9]{1,3}(,[0-9]{3})+$"


def typed(cells: Any, grouped: bool = True) -> Any:
    """A pyarrow column of text as float64, bool, timestamp or, failing these, text; missing cells are null.

    grouped: whether a comma before three digits may separate thousands, so that 1,234 is no number. It is not where
    commas are decimal, as in files with semicolons between cells.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    text = pc.utf8_trim_whitespace(cells)
    text = pc.if_else(pc.is_in(text, value_set=pa.array(MISSING)), pa.scalar(None, pa.string()), text)
    if text.null_count == len(text):
        return pa.chunked_array([pa.nulls(len(text))])
    for read in (_numbers, _booleans, _dates):
        found = read(text, grouped)
        if found is not None:
            return found
    return text


def is_missing(cell: str) -> bool:
    """Whether a cell stands for no value."""
    return cell.strip() in MISSING


def number(cell: str, grouped: bool = True) -> float | None:
    """The number in a cell, with a decimal point or comma; None where there is none."""
    text = cell.strip()
    if re.match(DECIMAL_COMMA, text) and not (grouped and re.match(GROUPS_OF_THOUSANDS, text)):
        text = text.replace(",", ".")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def is_date(cell: str) -> bool:
    """Whether a cell is a date or a time in one of the common formats."""
    return cell.strip()[:1].isdigit() and any(_parses(cell.strip(), form) for form in DATES)


def _parses(cell: str, form: str) -> bool:
    try:
        datetime.strptime(cell, form)
    except ValueError:
        return False
    return True


def _numbers(text: Any, grouped: bool) -> Any | None:
    import pyarrow as pa
    from pyarrow import compute as pc

    without_sign = pc.replace_substring_regex(text, r"^\+([0-9.,])", r"\1")
    try:
        return pc.cast(without_sign, pa.float64())
    except pa.ArrowInvalid:
        pass
    commas = pc.filter(without_sign, pc.fill_null(pc.match_substring(without_sign, ","), False))
    if not len(commas) or (grouped and pc.all(pc.match_substring_regex(commas, GROUPS_OF_THOUSANDS)).as_py()):
        return None
    points = pc.match_substring(without_sign, ".")
    if not pc.all(pc.match_substring_regex(commas, DECIMAL_COMMA)).as_py() or pc.any(points).as_py():
        return None
    try:
        return pc.cast(pc.replace_substring(without_sign, ",", "."), pa.float64())
    except pa.ArrowInvalid:
        return None


def _booleans(text: Any, _grouped: bool) -> Any | None:
    import pyarrow as pa
    from pyarrow import compute as pc

    lower = pc.utf8_lower(text)
    either = pc.all(pc.is_in(pc.drop_null(lower), value_set=pa.array(["true", "false"]))).as_py()
    return pc.equal(lower, "true") if either else None


def _dates(text: Any, _grouped: bool) -> Any | None:
    from pyarrow import compute as pc

    present = pc.drop_null(text)
    for form in DATES:
        few = pc.strptime(present.slice(0, TRIED), format=form, unit="s", error_is_null=True)
        if few.null_count == 0:
            parsed = pc.strptime(text, format=form, unit="s", error_is_null=True)
            if parsed.null_count == text.null_count:
                return parsed
    return None
