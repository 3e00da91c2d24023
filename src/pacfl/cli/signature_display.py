"""Signatures, and why they differ, in words and tables."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Timer
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from pacfl.cli.console import err, out
from pacfl.features.encoders import in_words
from pacfl.folders import Folder
from pacfl.signatures import SignatureFile
from pacfl.signatures.federation import count
from pacfl.subspace import Explanation
from pacfl.subspace.explanation import as_picture, block_means

SHOWN_AFTER: Final = 2.0  # seconds: shorter work needs no progress bar
SHADES: Final = " ░▒▓█"
MOST_LISTED: Final = 40  # classes or columns; --json has all


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars on stderr: one for each kind of work that reports its steps, and one that moves during all else."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=err, transient=True, disable=not err.is_terminal
    ) as progress:
        tasks: dict[str, TaskID] = {}
        start = time.monotonic()
        working = progress.add_task("working", total=None, visible=False)

        def show_working() -> None:
            busy = any(task.visible and not task.finished for task in progress.tasks if task.id != working)
            progress.update(working, visible=not busy)

        timer = Timer(SHOWN_AFTER, show_working)
        timer.daemon = True

        def advance(what: str, step: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total, visible=False)
            elif progress.tasks[tasks[what]].finished:
                progress.reset(tasks[what], total=total)  # the same work on another file
            shown = time.monotonic() - start >= SHOWN_AFTER and total > 1
            progress.update(tasks[what], advance=step, visible=shown)
            if time.monotonic() - start >= SHOWN_AFTER:
                show_working()

        timer.start()
        try:
            yield advance
        finally:
            timer.cancel()


def print_explanation(found: Explanation, folder: Folder, as_json: bool) -> None:
    """Why two clients or clusters differ; `kind` is that of the difference, so the folder has its own."""
    if as_json:
        of = {"path": str(folder.path), "kind": folder.kind}
        print(json.dumps({**found.as_json(), "folder": of}, allow_nan=False))
        return
    out.print(f"In {folder}:", soft_wrap=True, markup=False, highlight=False)
    out.print(escape(found.words), highlight=False)
    a, b = found.names
    for title, headings, rows in _explaining_tables(found, a, b):
        table = Table(title=title, title_justify="left")
        for i, heading in enumerate(headings):
            table.add_column(escape(heading), justify="right" if i else "left")
        for row in rows[:MOST_LISTED]:
            table.add_row(*map(escape, row))
        out.print(table)
    picture = as_picture(found.contributions)
    if picture is not None and found.kind == "inputs":
        out.print(f"What each pixel contributes, from none to most ({SHADES[-1]}):", highlight=False)
        for line in shaded(picture):
            out.print(line, highlight=False, markup=False)


def _explaining_tables(
    found: Explanation, a: str, b: str
) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, headings and rows of what carries the difference."""
    if found.kind == "concept":
        headings = (f"label in {a}", f"in {b}", "apart under the same label", "left between these")
        moved: list[tuple[str, ...]] = [(r.a, r.b, f"{r.size:.1f}", f"{r.left:.1f}") for r in found.relabelled]
        yield "The same inputs, other labels; differences in units of noise", headings, moved
    if found.kind == "labels":
        yield "Class shares", ("class", a, b), [(one.name, f"{one.a:.1%}", f"{one.b:.1%}") for one in found.shares]
    if found.kind == "inputs" and found.classes:
        yield "Classes", ("class", "in units of noise"), [(one.name, f"{one.size:.1f}") for one in found.classes]
    if found.kind == "inputs" and found.contributions.ndim == 1:
        headings = ("feature", "of the difference", "in units of noise", f"times larger in {a}")
        yield (
            "Features",
            headings,
            [
                (f.name, f"{f.share:.1%}", f"{f.above_noise:.1f}", "" if f.factor is None else f"{f.factor:.3g}")
                for f in found.features
            ],
        )


def shaded(picture: NDArray[np.float64], most: int = 32) -> list[str]:
    """A picture as lines of characters, two for each pixel; means of blocks where it is larger than a terminal."""
    means = block_means(picture, most)
    steps = np.rint(means / max(float(means.max()), 1e-300) * (len(SHADES) - 1)).astype(int)
    return ["".join(2 * SHADES[step] for step in row) for row in steps.tolist()]


def print_signature(signature: SignatureFile, title: str) -> None:
    """Everything that is in a signature file."""
    contents = signature.contents()
    contents["keyed"] = " and ".join(contents["keyed"]) or None
    split_half_angles = contents.pop("self_angles")
    privacy, classes, columns = (contents.pop(key) for key in ("privacy", "classes", "columns"))
    if privacy is not None:
        contents["samples"] = "not disclosed"
        contents |= {"private": f"epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g} for each sample"}
        contents["reduced by"] = privacy["reduction"]
    table = Table(title=escape(title), show_header=False)
    table.add_row("basis", f"{contents.pop('features')} features by {contents.pop('directions')} directions, float32")
    contents = {key: value for key, value in contents.items() if value is not None}
    if signature.encoder is not None:
        contents["encoder"] = in_words(signature.encoder)
    if columns is not None:
        contents["columns"] = _listed(columns)
    if classes is not None:
        contents["classes"] = _classes(classes["names"], classes["counts"], privacy is not None)
    for key, value in contents.items():
        table.add_row(key.replace("_", " "), escape(str(value)))
    for measure, angles in split_half_angles.items():
        scale = "none: too few samples"
        if angles:
            scale = f"{np.sqrt(np.mean(np.square(angles))):.3g}° over {len(angles)} comparisons"
        table.add_row(f"noise scale, {measure}", scale)
    out.print(table)
    out.print(f"This is all that is in the file. {_disclosure(signature)}", highlight=False)


def _classes(names: Sequence[str], counts: Sequence[int], private: bool) -> str:
    """Which classes there are, with their samples."""
    if not names:
        return "none stands out of the noise" if private else "none has enough samples"
    about = "about " if private else ""
    return f"{len(names)}: {_listed([f'{name} ({about}{n})' for name, n in zip(names, counts, strict=True)])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _disclosure(signature: SignatureFile) -> str:
    """What the file shows of the samples."""
    if signature.directions_key is not None:
        hidden = "Directions are seen with the key only; angles to others of the same key are seen by all."
        return f"{hidden} {_disclosure(replace(signature, keyed=()))}" if signature.samples is None else hidden
    if signature.samples is None:
        labels = "" if signature.classes is None else " and its label"
        return f"Differential privacy hides every single sample{labels} in it."
    if signature.samples <= signature.rank:
        verb = "is" if signature.samples == 1 else "are"
        return f"{count(signature.samples, 'sample')} {verb} in it: the basis spans what it was computed from."
    shown = (
        f"The basis is computed from {signature.samples} samples and shows what they have in common; "
        "it is not private. --epsilon hides every sample."
    )
    if signature.classes is None or not len(signature.classes):
        return shown
    names = "how many classes there are" if signature.names_key else "which classes there are"
    return f"{shown} It also shows {names}, how many samples each has, and what these have in common."
