"""Emoji as four vendors draw them: npm's package emoji-datasource."""

import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.readers.collected import Collected
from pacfl.data.readers.packages import members
from pacfl.data.readers.search import reading
from pacfl.errors import DataError, library
from pacfl.features.images import MOST_PIXELS, on_white
from pacfl.features.splitting import rows_for_testing

FILES: Final = ("emoji-datasource-[0-9]*.tgz",)
LIST: Final = "package/emoji.json"
VENDORS: Final = {"apple": "Apple", "facebook": "Facebook", "google": "Google", "twitter": "Twitter"}
CLASSES: Final = (
    *("Activities", "Animals & Nature", "Flags", "Food & Drink", "Objects"),
    *("People & Body", "Smileys & Emotion", "Symbols", "Travel & Places"),
)
SIDE: Final = 32  # pixels of an image
BORDER: Final = 1  # transparent pixels around it on the sheet
PEOPLE: Final = frozenset({"1F468", "1F469", "1F9D1", "2640", "2642"})  # man, woman, person, and the signs
JOINERS: Final = frozenset({"200D", "FE0F", "27A1"})  # what joins characters, and says which way they face


def collected(paths: Sequence[Path]) -> Collected:
    """In which of Unicode's nine groups an emoji is; clients are vendors.

    An emoji is for testing at all vendors or at none, together with those that only show another person or look the
    other way. Other tones of the skin are left out.
    """
    with reading(paths[0], "a list of emoji"):
        listed = json.loads(members(paths[0], [LIST])[LIST])
        emoji = [entry for entry in listed if entry["category"] in CLASSES]
        drawn = [(vendor, entry) for vendor in VENDORS for entry in emoji if entry[f"has_img_{vendor}"]]
        client = np.array([VENDORS[vendor] for vendor, _ in drawn])
        y = np.array([CLASSES.index(entry["category"]) for _, entry in drawn])
        group = np.array([motif(entry["unified"]) for _, entry in drawn])
        places = [(vendor, int(entry["sheet_x"]), int(entry["sheet_y"])) for vendor, entry in drawn]
    return Collected(partial(images, paths[0], places), y, client, rows_for_testing(len(y), group), group)


def motif(unified: str) -> str:
    """What an emoji shows, whoever does it and whichever way: its characters without those.

    >>> motif("1F469-200D-1F680"), motif("1F3C3-200D-2640-FE0F-200D-27A1-FE0F"), motif("1F468")
    ('1F680', '1F3C3', '1F468')
    """
    characters = unified.split("-")
    return "-".join(c for c in characters if c not in PEOPLE | JOINERS) or unified


def images(path: Path, places: Sequence[tuple[str, int, int]]) -> NDArray[np.uint8]:
    """(n, 32, 32, 3) from the vendors' sheets, on white, as most viewers show them."""
    vendors = sorted({vendor for vendor, _, _ in places})
    names = {vendor: f"package/img/{vendor}/sheets/{SIDE}.png" for vendor in vendors}
    files = members(path, tuple(names.values()))
    sheets = {vendor: _sheet(path, vendor, files[name]) for vendor, name in names.items()}
    return np.stack([_cut(path, sheets, *place) for place in places])


def _sheet(path: Path, vendor: str, content: bytes) -> NDArray[np.uint8]:
    pil = library("PIL.Image", f"{path}: reading images", "data")
    with reading(path, f"the sheet of {vendor}"), pil.open(io.BytesIO(content)) as sheet:
        if sheet.width * sheet.height > MOST_PIXELS:
            raise DataError(f"{path}: the sheet of {vendor} is {sheet.width}x{sheet.height}, too large; get it again")
        return np.asarray(on_white(sheet).convert("RGB"))


def _cut(path: Path, sheets: Mapping[str, NDArray[np.uint8]], vendor: str, column: int, row: int) -> NDArray[np.uint8]:
    top, left = ((SIDE + 2 * BORDER) * at + BORDER for at in (row, column))
    image = sheets[vendor][top : top + SIDE, left : left + SIDE]
    if image.shape != (SIDE, SIDE, 3):
        raise DataError(f"{path}: the sheet of {vendor} has no image at {column}, {row}; get the file again")
    return image
