"""Tables of text in Markdown and in LaTeX."""

from collections.abc import Sequence
from typing import Final

Grid = Sequence[Sequence[str]]  # headings first

_LATEX: Final = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def markdown(grid: Grid, notes: Sequence[str] = ()) -> str:
    r"""The grid as a table, with notes below.

    >>> print(markdown([["a", "b"], ["1", "2|3"]], ["Two numbers."]), end="")
    | a | b |
    |---|---|
    | 1 | 2\|3 |
    <BLANKLINE>
    Two numbers.
    """
    head, *rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in grid]
    lines = [head, "|---" * len(grid[0]) + "|", *rows]
    return "\n".join([*lines, *(["", " ".join(notes)] if notes else [])]) + "\n"


def latex(grid: Grid, bold: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """The grid as a table for the package booktabs, with notes as its caption.

    bold: for each row below the headings, which of its last cells are bold; the cells before them are names.
    """
    names = len(grid[0]) - len(bold[0])
    head, *rows = [[escape(cell) for cell in row] for row in grid]
    marks = [[False] * names + [bool(mark) for mark in row] for row in bold]
    body = [
        [rf"\textbf{{{cell}}}" if mark else cell for cell, mark in zip(row, of_row, strict=True)]
        for row, of_row in zip(rows, marks, strict=True)
    ]
    lines = [" & ".join(row) + r" \\" for row in (head, *body)]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{escape(' '.join(notes))}}}",
            rf"  \begin{{tabular}}{{{'l' * names}{'r' * len(bold[0])}}}",
            r"    \toprule",
            f"    {lines[0]}",
            r"    \midrule",
            *(f"    {line}" for line in lines[1:]),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escape("50 % of a_b ± 1"))
    50 \% of a\_b $\pm$ 1
    """
    return "".join(_LATEX.get(character, character) for character in text)
