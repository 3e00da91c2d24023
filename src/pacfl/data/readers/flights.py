"""Flights in the United States in 2001, by airport: flights-20k.json in npm's package vega-datasets."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.data.readers.collected import Collected, enough, last_part
from pacfl.data.readers.packages import member
from pacfl.data.readers.search import reading

FILES: Final = ("vega-datasets-*.tgz",)
LATE: Final = 15  # minutes, by which airlines report a flight as delayed
LEAST: Final = 100  # flights of an airport


def collected(paths: Sequence[Path]) -> Collected:
    """Whether a flight arrives late, from hour, weekday and distance; clients are airports of departure.

    The last fifth of an airport's days are for testing, and a day is a group. Airports of fewer than 100 flights are
    left out.
    """
    content = member(paths[0], "data/flights-20k.json")
    with reading(paths[0], "a list of flights"):
        flights = json.loads(content)
        flights = [flight for flight, used in zip(flights, _used(flights), strict=True) if used]
        minutes = np.array([flight["date"].replace("/", "-") for flight in flights], dtype="datetime64[m]").astype(int)
        client = np.array([flight["origin"] for flight in flights])
        day = minutes // (24 * 60)
        x = {
            "hour": minutes % (24 * 60) / 60,
            "weekday": np.array([str(weekday) for weekday in day % 7]),
            "distance": np.log(np.array([flight["distance"] for flight in flights], dtype=np.float64)),
        }
        late = np.array([flight["delay"] > LATE for flight in flights]).astype(np.int64)
    return Collected(x, late, client, last_part(client, day), day)


def _used(flights: list[dict[str, Any]]) -> list[bool]:
    used: list[bool] = enough(np.array([flight["origin"] for flight in flights]), LEAST).tolist()
    return used
