"""A table of means over seeds: its cells, and how it is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pacfl.errors import library
from pacfl.experiment import typeset
from pacfl.experiment.seeds import LEVEL, SeedMean
from pacfl.experiment.summary import in_percent
from pacfl.experiment.swept import in_words, short_names

if TYPE_CHECKING:
    from pandas import DataFrame

Key = tuple[Any, ...]  # the values of the settings of a row, or of a column
Cells = Mapping[tuple[Key, Key], SeedMean]
Protocol = Literal["received", "personal", "last_trained"]
Line = Literal["row", "column"]


@dataclass(frozen=True, eq=False)
class ResultTable:
    """Means over seeds, by the settings of rows and columns. `print` shows it as Markdown."""

    rows: tuple[str, ...]  # paths of settings
    columns: tuple[str, ...]
    row_keys: tuple[Key, ...]
    column_keys: tuple[Key, ...]
    cells: Cells
    metric: str
    protocol: Protocol | None  # None for what is not evaluated, as the number of clusters
    notes: tuple[str, ...]
    test: str | None = None  # the kind of test samples, where runs have several or it was chosen

    def markdown(self) -> str:
        """The table in Markdown, with notes below."""
        return typeset.markdown(self.text(bold="**{}**"), self.notes)

    def latex(self) -> str:
        """The table in LaTeX, with the notes as its caption; it needs the package booktabs."""
        return typeset.latex(self.text(), [[mean and mean.best for mean in row] for row in self._means()], self.notes)

    def records(self) -> list[dict[str, Any]]:
        """One for each cell: the settings, mean and standard deviation over seeds, marks, and the runs behind it."""
        return [
            {
                **dict(zip((*self.rows, *self.columns), (*row, *column), strict=True)),
                "mean": mean.mean,
                "std": mean.std,
                "best": mean.best,
                "tied": mean.tied,
                "runs": list(mean.runs),
            }
            for row in self.row_keys
            for column in self.column_keys
            if (mean := self.cells.get((row, column))) is not None
        ]

    def frame(self) -> "DataFrame":
        """The records as a data frame (extra: pandas)."""
        frame: DataFrame = library("pandas", "ResultTable.frame", "pandas").DataFrame(self.records())
        return frame

    def text(self, bold: str = "{}") -> list[list[str]]:
        """The cells as text, headings first; bold: how the best result is written."""
        names = short_names((*self.rows, *self.columns))
        heads = [
            ", ".join(_heading(names[p], v) for p, v in zip(self.columns, k, strict=True)) for k in self.column_keys
        ]
        counts = {len(mean.runs) for mean in self.cells.values()}
        body = [
            [*map(in_words, key), *(self._cell(mean, bold, len(counts) > 1) for mean in means)]
            for key, means in zip(self.row_keys, self._means(), strict=True)
        ]
        return [[*(names[path] for path in self.rows), *(heads if self.columns else [self._what()])], *body]

    def _means(self) -> list[list[SeedMean | None]]:
        return [[self.cells.get((row, column)) for column in self.column_keys] for row in self.row_keys]

    def _cell(self, mean: SeedMean | None, bold: str, count: bool) -> str:
        if mean is None:
            return "-"
        numbers = [mean.mean] if mean.std is None else [mean.mean, mean.std]
        shown = " ± ".join(f"{100 * x:.2f}" if in_percent(self.metric) else f"{x:.3g}" for x in numbers)
        marked = bold.format(shown) if mean.best else f"{shown} ≈" if mean.tied else shown
        return f"{marked} (n = {len(mean.runs)})" if count else marked

    def _what(self) -> str:
        return what_is_shown(self.metric, self.protocol, self.test)

    def __str__(self) -> str:
        return self.markdown()

    def __repr__(self) -> str:
        return f"ResultTable({self._what()}, {len(self.row_keys)} rows, {len(self.column_keys)} columns)"

    def _repr_markdown_(self) -> str:
        return self.markdown()


def what_is_shown(metric: str, protocol: Protocol | None, test: str | None = None) -> str:
    """A metric with its unit, its protocol and the kind of test samples, where these are to be named.

    >>> what_is_shown("accuracy", "last_trained"), what_is_shown("ari", None)
    ('accuracy in % (last-trained)', 'ari')
    >>> what_is_shown("loss", "received", "proportional")
    'loss (received, proportional test samples)'
    """
    unit = f"{metric} in %" if in_percent(metric) else metric.replace("_", " ")
    if protocol is None:
        return unit
    return f"{unit} ({protocol.replace('_', '-')}{'' if test is None else f', {test} test samples'})"


def notes_of(
    cells: Cells,
    metric: str,
    protocol: Protocol | None,
    along: Line,
    extra: Sequence[str],
    unfinished: int,
    without: int,
    test: str | None = None,
) -> tuple[str, ...]:
    """What a reader must know of the table, in sentences."""
    counts = sorted({len(mean.runs) for mean in cells.values()})
    what = what_is_shown(metric, protocol, test)
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    over = "of one seed" if counts == [1] else f"mean ± standard deviation over {seeds} seeds"
    compared = f"in its {along} on the same data by a t-test over the common seeds (two-sided, {100 * LEVEL:g} %)"
    notes = [f"{what[0].upper()}{what[1:]}, {over}."]
    if any(mean.best for mean in cells.values()):
        notes.append(f"Bold: distinguished from every other result {compared}.")
    if any(mean.tied for mean in cells.values()):
        notes.append(f"≈: not distinguished from the best {compared}.")
    if extra:
        notes.append(f"Runs differ in {', '.join(extra)} too, so each value has rows of its own.")
    if unfinished:
        notes.append(f"{unfinished} unfinished run{'s are' if unfinished > 1 else ' is'} left out.")
    if without:
        notes.append(f"{without} run{'s' if without > 1 else ''} without this value left out.")
    return tuple(notes)


def _heading(name: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{name} {in_words(value)}"
