"""Deterding's vowels, spoken by 15 people: Vowel.rda in Debian's package r-cran-mlbench."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pacfl.data.readers.collected import Collected
from pacfl.data.readers.packages import member
from pacfl.data.readers.rdata import read_rda
from pacfl.data.readers.search import reading

FILES: Final = ("r-cran-mlbench_*.deb",)
N_FRAMES: Final = 6  # of each vowel of each speaker
N_TRAIN: Final = 4


def collected(paths: Sequence[Path]) -> Collected:
    """Which of 11 vowels, from nine log area ratios; clients are speakers, the last two of six frames are for tests."""
    content = member(paths[0], "mlbench/data/Vowel.rda")
    with reading(paths[0], "R data"):
        table = read_rda(content)["Vowel"]
        columns = {name: np.asarray(table[name], dtype=np.float64) for name in (f"V{i}" for i in range(2, 11))}
        speaker, vowel = table["V1"].astype(int), table["Class"]
    client = np.array([f"speaker {number:02d}" for number in speaker])
    test = np.zeros(len(vowel), dtype=np.bool_)
    for name in np.unique(client):
        for word in np.unique(vowel):
            test[np.flatnonzero((client == name) & (vowel == word))[N_TRAIN:]] = True
    return Collected(columns, np.unique(vowel, return_inverse=True)[1], client, test)
