"""Tables for a first try: three sites with handwritten digits, in negative at the third.

python make_tables.py FOLDER writes FOLDER/0, FOLDER/1 and FOLDER/2, each with train.csv and test.csv.
"""

import sys
from pathlib import Path

import numpy as np

from pacfl.data import digits

DOMAIN_OF_SITE = (0, 0, 1)


def main(folder: Path) -> None:
    """Write the tables of all sites."""
    dataset = digits(("upright", "negative"))
    for site, domain in enumerate(DOMAIN_OF_SITE):
        (folder / str(site)).mkdir(parents=True)
        rng = np.random.default_rng(site)
        train = rng.choice(np.flatnonzero(dataset.source_train == domain), 200, replace=False)
        test = np.flatnonzero(dataset.source_test == domain)
        for name, x, y, rows in (
            ("train.csv", dataset.x_train, dataset.y_train, train),
            ("test.csv", dataset.x_test, dataset.y_test, test),
        ):
            table = np.column_stack([y[rows], x[rows].reshape(len(rows), -1)])
            np.savetxt(folder / str(site) / name, table, fmt="%d", delimiter=",")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
