"""Orange juice in 83 stores near Chicago: orangeJuice.rda in Debian's package r-cran-bayesm."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pacfl.data.readers.collected import Collected, last_part
from pacfl.data.readers.packages import member
from pacfl.data.readers.rdata import read_rda
from pacfl.data.readers.search import reading

FILES: Final = ("r-cran-bayesm_*.deb",)
N_BRANDS: Final = 11


def collected(paths: Sequence[Path]) -> Collected:
    """The logarithm of units sold of a brand in a week, from all brands' prices, its own and its promotion.

    Clients are stores; the last fifth of a store's weeks are for testing, and a week is a group.
    """
    content = member(paths[0], "bayesm/data/orangeJuice.rda")
    with reading(paths[0], "R data"):
        sales = read_rda(content)["orangeJuice"]["yx"]
        brand, week, store = (np.asarray(sales[name]).astype(int) for name in ("brand", "week", "store"))
        prices = np.log(np.stack([sales[f"price{i}"] for i in range(1, N_BRANDS + 1)], axis=1))
        x = {
            "brand": np.array([f"{number:02d}" for number in brand]),
            "price": prices[np.arange(len(brand)), brand - 1],
            "deal": np.asarray(sales["deal"], dtype=np.float64),
            "feature": np.asarray(sales["feat"], dtype=np.float64),
            **{f"price {i + 1}": prices[:, i] for i in range(N_BRANDS)},
        }
        y = np.asarray(sales["logmove"], dtype=np.float32)
    client = np.array([f"store {number:03d}" for number in store])
    return Collected(x, y, client, last_part(client, week), week)
