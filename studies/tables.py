"""Are tables that differ separated, and others not? `python -m studies.tables [--seeds 20] [--splits 240]`.

Tables of scikit-learn and simulated hospitals, divided among parties, with a schema of all of them. First, what is
found if three of six parties differ, and whether the first and the last are said to have another unit. Then, how often
parties with random rows of one table are separated.
"""

import argparse
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn import datasets

from pacfl.features.description import describe
from pacfl.features.merging import merged
from pacfl.features.reading import Reading, Samples
from pacfl.learning.randomness import stream
from pacfl.signatures import Federation
from pacfl.signatures.federation import federate
from pacfl.signatures.signing import default_rank, sign
from pacfl.subspace import adjusted_rand_index

Array = NDArray[np.float64]
SETS: Final = ("breast_cancer", "wine", "diabetes")
PARTIES: Final = (2, 3, 5, 10)
HALF: Final = np.array([0, 0, 0, 1, 1, 1])
SHIFT: Final = 3.5  # standard deviations of a column
UNIT: Final = 2.54
PATIENTS: Final = 100  # of a hospital


def load(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Rows and classes of a set."""
    found = getattr(datasets, f"load_{name}")()
    return np.array(found.data, dtype=np.float64), np.asarray(found.target)


def divided(x: Array, n: int, rng: np.random.Generator) -> list[Array]:
    """Random rows of a table for each of n parties."""
    return [x[rows] for rows in np.array_split(rng.permutation(len(x)), n)]


def one_column(name: str, change: str, rng: np.random.Generator) -> tuple[list[Array], NDArray[np.intp]]:
    """Three of six parties have one column shifted, or in another unit."""
    x, _ = load(name)
    parties, column = divided(x, 6, rng), int(rng.integers(x.shape[1]))
    for own in parties[3:]:
        own[:, column] = own[:, column] * UNIT if change == "unit" else own[:, column] + SHIFT * x[:, column].std()
    return parties, HALF


def mixtures(name: str, rng: np.random.Generator) -> tuple[list[Array], NDArray[np.intp]]:
    """Three parties have 90 % of their rows of one class, three 10 %."""
    x, y = load(name)
    first, second = (rng.permutation(np.flatnonzero((y == 0) == is_first)) for is_first in (True, False))
    many = int(0.3 * min(len(first), len(second)))
    few = max(many // 9, 1)
    of_first, of_second = ([many] * 3 + [few] * 3, [few] * 3 + [many] * 3)
    rows = zip(np.split(first, np.cumsum(of_first))[:6], np.split(second, np.cumsum(of_second))[:6], strict=True)
    return [x[np.concatenate(own)] for own in rows], HALF


def hospital(age: float, rng: np.random.Generator, only_age: bool) -> Array:
    """Age, height, weight, pressure, pulse, creatinine, sodium and leucocytes of adults or children."""
    adults, n = age > 18 or only_age, PATIENTS
    height = rng.normal(172 if adults else 128, 9, n)
    weight = (height / 100) ** 2 * rng.normal(25 if adults else 17, 3, n)
    pressure, pulse = rng.normal(125 if adults else 105, 12, n), rng.normal(72 if adults else 90, 10, n)
    creatinine = rng.lognormal(-0.1 if adults else -0.7, 0.25, n)
    others = rng.normal(140, 3, n), rng.lognormal(2, 0.4, n)
    return np.column_stack(
        [rng.normal(age, age / 4, n).clip(0.1), height, weight, pressure, pulse, creatinine, *others]
    )


def hospitals(only_age: bool, rng: np.random.Generator) -> tuple[list[Array], NDArray[np.intp]]:
    """Three hospitals of adults and three of children, or of adults of whom only the age is that of children."""
    return [hospital(8.0 if group else 60.0, rng, only_age) for group in HALF], HALF


def species(rng: np.random.Generator) -> tuple[list[Array], NDArray[np.intp]]:
    """Two parties for each species of iris."""
    x, y = load("iris")
    return [own for k in range(3) for own in divided(x[y == k], 2, rng)], np.repeat(np.arange(3), 2)


CASES: Final[dict[str, Any]] = {
    **{f"a column shifted by {SHIFT} deviations, {name}": (one_column, name, "shift") for name in SETS},
    **{f"a column x {UNIT}, {name}": (one_column, name, "unit") for name in SETS},
    **{f"90/10 against 10/90 of a class, {name}": (mixtures, name) for name in SETS[:2]},
    "ages 8 against 60": (hospitals, True),
    "children against adults": (hospitals, False),
    "species of iris": (species,),
}


def clustered(parties: Sequence[Array]) -> Federation:
    """The federation of parties that agreed on a schema."""
    tables = [pa.table({f"column {j}": own[:, j] for j in range(own.shape[1])}) for own in parties]
    schema = merged({f"party {i}": describe(table) for i, table in enumerate(tables)})
    how = Reading(schema=schema)
    samples = {f"party {i}": Samples(schema.encode(table).x, None, schema.features) for i, table in enumerate(tables)}
    return federate({name: sign(name, one, default_rank(how), how) for name, one in samples.items()})


def main() -> None:
    """Print both tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--splits", type=int, default=240, help="random divisions of all sets together")
    args = parser.parse_args()
    print("| six parties that differ in | found | named as another unit |\n|---|---|---|")
    for case, (make, *options) in CASES.items():
        found = named = 0
        for seed in range(args.seeds):
            rng = stream(seed, f"tables: {case}")
            parties, truth = make(*options, rng=rng)
            federation = clustered(parties)
            found += adjusted_rand_index(truth, federation.clustering.labels) == 1
            named += "different unit?" in federation.explain("party 0", "party 5").words
        print(f"| {case} | {found} of {args.seeds} | {named} of {args.seeds} |", flush=True)
    print(f"\n| random rows of | {' | '.join(f'{n} parties' for n in PARTIES)} |\n{'|---' * (1 + len(PARTIES))}|")
    each = args.splits // (len(SETS) * len(PARTIES))
    for name in SETS:
        x, _ = load(name)
        cells = []
        for n in PARTIES:
            divisions = [divided(x, n, stream(seed, f"random rows: {name} {n}")) for seed in range(each)]
            labels = [clustered(parties).clustering.labels for parties in divisions]
            split = sum(len(set(own[own >= 0].tolist())) > 1 for own in labels)
            left = sum(int((own < 0).sum()) for own in labels)
            cells.append(f"{split} of {each} split" + (f", {left} parties not judged" if left else ""))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
