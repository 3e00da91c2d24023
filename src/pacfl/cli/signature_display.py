"""Signatures and federations in words and tables."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from pacfl.cli.console import err, out
from pacfl.features.encoders import in_words
from pacfl.signatures import Federation, Joined, SignatureFile
from pacfl.signatures.federation import count
from pacfl.subspace import Diagnosis, Explanation
from pacfl.subspace.explanation import as_picture, block_means

FEWEST_SHOWN: Final = 20  # steps: shorter work needs no progress bar
MOST_PAIRS: Final = 10  # of clusters whose difference is printed; --json has all
SHADES: Final = " ░▒▓█"
MOST_LISTED: Final = 40  # classes or columns; --json has all


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars on stderr, one for each kind of work that reports its steps."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def advance(what: str, step: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total, visible=total >= FEWEST_SHOWN)
            progress.advance(tasks[what], step)

        yield advance


def print_federation(federation: Federation, folder: Path | None, as_json: bool) -> None:
    """The clusters, how far apart they are, and the evidence for them."""
    if as_json:
        print(json.dumps(federation.summary()))
        return
    evidence = federation.clustering.evidence
    out.print(f"[bold]{escape(federation.answer)}[/bold]", highlight=False)
    n_clusters, n = len(federation.clustering.numbers), len(federation.names)
    table = Table(title=f"{count(n_clusters, 'cluster')} of {count(n, 'client')}")
    headings, *rows = federation.table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "names" else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)
    out.print(federation.cut(), highlight=False)
    reasons, because = evidence["reasons"], evidence.get("not_guaranteed_because")
    out.print(reasons, highlight=False)
    if because and because.lower() not in reasons.lower():
        out.print(f"Not guaranteed: {because}", highlight=False)
    _print_without_cluster(federation.not_judged())
    print_diagnosis(federation.diagnosis)
    if folder is not None:
        out.print(f"Stored in {escape(str(folder))}", highlight=False)


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """The kind of difference, its size, and what to do; for a few clusters, also how each two differ."""
    out.print(f"[bold]Diagnosis:[/bold] {escape(diagnosis.words)}", highlight=False)
    if 1 < len(diagnosis.pairs) <= MOST_PAIRS:
        for pair in diagnosis.pairs:
            out.print(f"  {escape(' '.join(one.words for one in pair.differences))}", highlight=False)


def print_explanation(found: Explanation, as_json: bool) -> None:
    """Why two clients or clusters differ."""
    if as_json:
        print(json.dumps(found.as_json(), allow_nan=False))
        return
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


def print_left(federation: Federation, names: Sequence[str], folder: Path, as_json: bool) -> None:
    """The federation without clients that left."""
    if as_json:
        print(json.dumps({"left": list(names), **federation.summary()}))
        return
    out.print(f"{escape(', '.join(names))} left. {escape(federation.answer)}", highlight=False)
    print_diagnosis(federation.diagnosis)
    out.print(f"{federation.size()}, stored in {escape(str(folder))}", highlight=False)


def print_joined(joined: Joined, folder: Path, as_json: bool) -> None:
    """The newcomers' clusters."""
    if as_json:
        print(json.dumps(joined.summary()))
        return
    for name, cluster in joined.placed.items():
        if cluster < 0:
            continue
        does = "opens" if cluster in joined.opened else "joins"
        out.print(f"{escape(name)} {does} cluster {cluster}", highlight=False)
    _print_without_cluster({n: why for n, why in joined.federation.not_judged().items() if n in joined.placed})
    for suggestion in joined.suggestions:
        (a, b), name = suggestion.clusters, list(joined.placed)[suggestion.newcomer]
        out.print(f"suggestion: {escape(name)} is close to clusters {a} and {b}; merge them?", highlight=False)
    print_diagnosis(joined.federation.diagnosis)
    out.print(f"{joined.federation.size()}, stored in {escape(str(folder))}", highlight=False)


def _print_without_cluster(why: Mapping[str, str]) -> None:
    """Clients in no cluster, and what would help them."""
    for name, reason in why.items():
        out.print(f"{escape(name)} cannot be judged and is in no cluster: {reason}", highlight=False)


def print_signature(signature: SignatureFile, title: str) -> None:
    """Everything that is in a signature file."""
    contents = signature.contents()
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
    names = "how many classes there are" if signature.key else "which classes there are"
    return f"{shown} It also shows {names}, how many samples each has, and what these have in common."
