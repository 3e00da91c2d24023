"""Heart disease in four hospitals: UCI's processed files with a header, one for each hospital."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pacfl.data.readers.collected import Collected, every_fifth
from pacfl.data.readers.delimited import categories, numbers, words
from pacfl.data.readers.search import reading

FILES: Final = tuple(f"heart/{place}.csv" for place in ("cleveland", "hungarian", "switzerland", "va"))
NUMBERS: Final = ("age", "trestbps", "chol", "thalach", "oldpeak", "ca")
CATEGORIES: Final = ("sex", "cp", "fbs", "restecg", "exang", "slope", "thal")
NEVER_ZERO: Final = ("trestbps", "chol")  # a cholesterol of 0, as all of Switzerland's, was not measured


def collected(paths: Sequence[Path]) -> Collected:
    """Whether arteries are narrowed (target above 0), from 13 columns; clients are hospitals, samples patients."""
    tables = []
    for path in paths:
        with reading(path, "a table of patients"):
            tables.append(words(path.read_bytes(), (*NUMBERS, *CATEGORIES, "target")))
    joined = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    client = np.repeat([path.stem for path in paths], [len(table["target"]) for table in tables])
    with reading(paths[0].parent, "tables of patients"):
        columns = {name: numbers(joined[name]) for name in NUMBERS}
        for name in NEVER_ZERO:
            columns[name] = np.where(columns[name] == 0, np.nan, columns[name])
        y = (numbers(joined["target"]) > 0).astype(np.int64)
    return Collected(columns | {name: categories(joined[name]) for name in CATEGORIES}, y, client, every_fifth(client))
