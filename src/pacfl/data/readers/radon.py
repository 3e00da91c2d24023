"""Radon in houses of nine states, by county: srrs2.dat and cty.dat in the wheel of pymc3 3.11."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.readers.collected import Collected, enough, every_fifth
from pacfl.data.readers.delimited import categories, numbers, words
from pacfl.data.readers.packages import members
from pacfl.data.readers.search import reading

FILES: Final = ("pymc3-3.11*.whl",)
HOUSES, COUNTIES = "tests/data/srrs2.dat", "tests/data/cty.dat"
COLUMNS: Final = ("state2", "county", "stfips", "cntyfips", "floor", "basement", "typebldg", "room", "activity")
LEAST: Final = 20  # houses of a county


def collected(paths: Sequence[Path]) -> Collected:
    """The logarithm of radon activity, from floor, basement, building and the county's uranium; clients are counties.

    Repeated measurements of a house are left out, and counties of fewer than 20 houses.
    """
    files = members(paths[0], (HOUSES, COUNTIES))
    with reading(paths[0], "tables of houses and counties"):
        table = words(files[HOUSES], (*COLUMNS, "dupflag"))
        counties = words(files[COUNTIES], ("stfips", "ctfips", "Uppm"))
        place = _codes(counties["stfips"], counties["ctfips"])
        uranium = dict(zip(place, np.log(np.maximum(numbers(counties["Uppm"]), 0.01)).tolist(), strict=True))
        client = np.array([f"{a} {b.lower()}" for a, b in zip(table["state2"], table["county"], strict=True)])
        activity = np.log(numbers(table["activity"]) + 0.1)
    rows = np.flatnonzero(table["dupflag"] == "0")
    rows = rows[enough(client[rows], LEAST)]
    x = {name: categories(table[name][rows]) for name in ("floor", "basement", "typebldg", "room")}
    of_houses = _codes(table["stfips"][rows], table["cntyfips"][rows])
    x["uranium"] = np.array([uranium.get(code, np.nan) for code in of_houses])
    return Collected(x, activity[rows].astype(np.float32), client[rows], every_fifth(client[rows]))


def _codes(states: NDArray[np.str_], counties: NDArray[np.str_]) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in zip(states, counties, strict=True)]
