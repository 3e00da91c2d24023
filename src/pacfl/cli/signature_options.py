"""How data are read and where the tree is cut, as options of the commands say it."""

from typing import Annotated

import typer

from pacfl.errors import DataError
from pacfl.signatures.federation import Federation
from pacfl.signatures.reading import Preprocess, Reading

Rank = Annotated[int, typer.Option(min=1, help="Directions in the signature.")]
PerClass = Annotated[
    str | None,
    typer.Option(
        metavar="LABELS",
        help="Decompose every class on its own. Where the labels are: an array of the .npz, a column, "
        "a .npy file, or 'folders' for images.",
    ),
]
Prepare = Annotated[
    Preprocess,
    typer.Option(help="raw: as it is. normalise: mean 0 and deviation 1 per channel. unit: samples of length 1."),
]
ArrayName = Annotated[str | None, typer.Option("--array", help="Which array of an .npz holds the samples.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column that is no feature. May be repeated.")]
Resize = Annotated[str | None, typer.Option(metavar="WxH", help="Bring images to this size.")]
Grey = Annotated[bool, typer.Option("--grey", help="Read images without colour.")]


def reading(
    array: str | None,
    per_class: str | None,
    drop: list[str] | None,
    resize: str | None,
    grey: bool,
    preprocess: Preprocess,
) -> Reading:
    """From what was given."""
    return Reading(array, per_class, tuple(drop or ()), _size(resize), grey, preprocess)


def reading_as(federation: Federation, array: str | None, drop: list[str] | None) -> Reading:
    """How newcomers' data are read: as the federation's were, as far as that is told."""
    if federation.how["per_class"]:
        return Reading(array=array, drop=tuple(drop or ()))
    *steps, preprocess = federation.how["preprocess"].split(", ")
    resize = next((step.removeprefix("resize ") for step in steps if step.startswith("resize ")), None)
    return Reading(array, None, tuple(drop or ()), _size(resize), "grey" in steps, preprocess)


def degrees_of(text: str) -> float | None:
    """A threshold, or None for the automatic one."""
    if text == "auto":
        return None
    try:
        degrees = float(text)
    except ValueError:
        degrees = -1.0
    if not 0 <= degrees < float("inf"):
        raise DataError(f"--threshold must be 'auto' or a number of degrees, got {text!r}")
    return degrees


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise DataError(f"--resize must be WIDTHxHEIGHT such as 32x32, got {text!r}")
    return int(width), int(height)
