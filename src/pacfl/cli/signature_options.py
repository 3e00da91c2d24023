"""Options that say how data are read and where the dendrogram is cut."""

from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from pacfl.errors import DataError
from pacfl.features import read_schema
from pacfl.features.reading import Preprocess, Reading
from pacfl.signatures.figures import Picture

OF_ONE_CLIENT: Final = ("hash_labels", "minimum_count")  # options that say how its signature alone is made
AS_OTHERS_HAVE: Final = (*OF_ONE_CLIENT, "rank", "per_class", "preprocess", "resize", "grey")  # no choice of newcomers
OF_SIGNATURES: Final = (
    *(*OF_ONE_CLIENT, "labels", "group", "blocks", "rank", "per_class", "preprocess"),
    *("encoder", "text", "skip_unreadable"),
)  # not of predictions

Rank = Annotated[
    int | None,
    typer.Option(min=1, help="Directions in the signature. [default: 3, with a schema 1]", show_default=False),
]
PerClass = Annotated[
    str | None,
    typer.Option(
        metavar="LABELS",
        help="Decompose every class on its own and orthonormalise, to imitate the published code. "
        "LABELS as for --labels.",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="LABELS",
        help="Compare the same classes with each other. Where the labels are: an array of the .npz, a column, "
        "a .npy file, or 'folders' for images.",
    ),
]
HashLabels = Annotated[
    Path | None,
    typer.Option(metavar="KEYFILE", help="Hash the names of classes with the federation's key in this file."),
]
Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="KEYFILE", help="The clients' key, made by 'pacfl key', which hides directions."),
]
MinimumCount = Annotated[
    int | None,
    typer.Option(metavar="N", help="Leave out classes with fewer samples. [default: 4]", show_default=False),
]
Classes = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES|FILE",
        help="With --labels and --epsilon: all classes that any client may have, separated by commas, or a text file "
        "with one on each line. The same for all clients.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="GROUPS",
        help="Samples of one group depend on each other, as rows of a patient or windows of a recording do. Where the "
        "groups are, as for --labels; no feature.",
    ),
]
Blocks = Annotated[
    int | None, typer.Option(metavar="N", help="N consecutive samples are a group, for signals and films.")
]
Prepare = Annotated[
    Preprocess | None,
    typer.Option(
        help="raw: unchanged. normalise: mean 0 and standard deviation 1 per channel. unit: samples of length 1. "
        "[default: raw]",
        show_default=False,
    ),
]
ArrayName = Annotated[str | None, typer.Option("--array", help="Which array of an .npz holds the samples.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column that is not a feature. May be repeated.")]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first row of a CSV names the columns. [default: it does if a cell is not a number]",
        show_default=False,
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="What the columns of a table are, made by 'pacfl schema init'."),
]
Resize = Annotated[str | None, typer.Option(metavar="WxH", help="Resize images to this size.")]
Grey = Annotated[bool, typer.Option("--grey", help="Read images without colour.")]
Encoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|MODULE:FUNCTION",
        help="Features that are compared: spectrum or standardise (signals), ngrams (text), or a function.",
    ),
]
Text = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column, or field of JSON lines, that holds texts.")
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read, and list them.")
]
Pictures = Annotated[
    Picture | None, typer.Option(help="Format of the pictures in the folder. [default: svg]", show_default=False)
]


class DataOptions(NamedTuple):
    """How data are signed and read, as far as options say it."""

    rank: int | None
    reading: Reading | None


def data_options(
    labels: Labels = None,
    hash_labels: HashLabels = None,
    minimum_count: MinimumCount = None,
    group: Group = None,
    blocks: Blocks = None,
    rank: Rank = None,
    per_class: PerClass = None,
    preprocess: Prepare = None,
    encoder: Encoder = None,
    text: Text = None,
    array: ArrayName = None,
    schema: SchemaFile = None,
    drop: Drop = None,
    header: Header = None,
    resize: Resize = None,
    grey: Grey = False,
    skip_unreadable: SkipUnreadable = False,
) -> DataOptions:
    """The rank, and the reading that the options describe; None if none was given."""
    options = {
        "labels": labels,
        "hash_labels": hash_labels,
        "minimum_count": minimum_count,
        "group": group,
        "blocks": blocks,
        "per_class": per_class,
        "preprocess": preprocess,
        "encoder": encoder,
        "text": text,
        "array": array,
        "header": header,
        "grey": grey or None,
        "skip_unreadable": skip_unreadable or None,
        "schema": None if schema is None else read_schema(schema),
        "drop": tuple(drop) if drop else None,
        "resize": None if resize is None else _size(resize),
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return DataOptions(rank, Reading(**given) if given else None)


def class_list(text: str | None) -> list[str] | None:
    """The names of classes that an option lists, or the file that it names."""
    if text is None:
        return None
    path = Path(text)
    try:
        listed = path.read_text(encoding="utf-8").splitlines() if path.is_file() else text.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a list of classes: {error}") from None
    names = [name.strip() for name in listed if name.strip()]
    if len(set(names)) < max(len(names), 1):
        raise DataError(f"--classes must name different classes, got {text!r}")
    return names


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


def _size(text: str) -> tuple[int, int]:
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise DataError(f"--resize must be WIDTHxHEIGHT such as 32x32, got {text!r}")
    return int(width), int(height)
