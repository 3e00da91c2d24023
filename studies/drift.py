"""How often do clients seem to drift, or to copy somebody, that did not? `python -m studies.drift`.

Federations of one distribution. Each client in turn sends the signature of an independent sample of it: the test of
`pacfl replace` may say "drifted" in 1 % of cases. The same signature joins under another name: `pacfl join` may call
1 % of them copies. Then samples that moved, and samples of which a part is somebody else's: these should be noticed.
Every outcome is appended to a file at once; outcomes in the file are not computed again.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import beta

from pacfl.data import load_dataset
from pacfl.features import Schema
from pacfl.features.description import describe
from pacfl.features.merging import merged
from pacfl.features.reading import Reading, Samples
from pacfl.privacy import private_class_signatures, private_signature, seeded
from pacfl.signatures import SignatureFile
from pacfl.signatures.federation import Federation, federate, join
from pacfl.signatures.lifecycle import replace_client
from pacfl.signatures.signing import sign
from pacfl.subspace import Measure

Array = NDArray[Any]

CLIENTS: Final = 20
CLASSES: Final = 10
MOVED: Final = (0.5, 1.0)  # standard deviations by which samples move, in one direction
FRESH: Final = (0.0, 0.05, 0.2)  # share of samples that are not those of another client
TRIED: Final = 5  # clients of each federation that moved, or copied
POWER_RUNS: Final = 5  # federations in which some do; the others are for false alarms


@dataclass(frozen=True)
class Setting:
    """How clients of a federation make their signatures."""

    source: str
    sizes: tuple[int, int]  # samples of a client, from and to
    rank: int = 3
    labelled: bool = False
    alpha: float | None = None  # of the Dirichlet distribution of class shares; None: equal
    measure: Measure | None = None
    epsilon: float | None = None

    @property
    def columns(self) -> bool:
        """Whether the parties agree on a schema, so that columns are compared one by one."""
        return self.source == "patients"


SETTINGS: Final = {
    "table, rank 1, 20 samples": Setting("table", (20, 20), rank=1),
    "table, 50 samples": Setting("table", (50, 50)),
    "table, 200 samples": Setting("table", (200, 200)),
    "table, 30 to 1,000 samples": Setting("table", (30, 1000)),
    "table, rank 5, 100 samples": Setting("table", (100, 100), rank=5),
    "table, sum, 100 samples": Setting("table", (100, 100), measure="sum"),
    "table of 5 columns, 100 samples": Setting("small table", (100, 100)),
    "heavy tails, 150 samples": Setting("heavy tails", (150, 150)),
    "Fashion-MNIST, 200 samples": Setting("fmnist", (200, 200)),
    "table, classes, 200 samples": Setting("table", (200, 200), labelled=True),
    "table, unequal classes, 100 to 500": Setting("table", (100, 500), labelled=True, alpha=0.5),
    "Fashion-MNIST, classes, 300 samples": Setting("fmnist", (300, 300), labelled=True),
    "columns, 50 samples": Setting("patients", (50, 50), rank=1),
    "columns, 100 to 500 samples": Setting("patients", (100, 500), rank=1),
    "columns and classes, 100 to 500 samples": Setting("patients", (100, 500), rank=1, labelled=True),
    "table, epsilon 4, 1,000 samples": Setting("table", (1000, 1000), epsilon=4.0),
    "table, classes, epsilon 8, 2,000": Setting("table", (2000, 2000), labelled=True, epsilon=8.0),
}


class Source:
    """Samples of ten classes, which may move by some standard deviations."""

    def __init__(self, name: str, data: Path | None, rng: np.random.Generator) -> None:
        """Of a set of images in a folder, or simulated."""
        self.name = name
        self.images = load_dataset(name, data) if name == "fmnist" else None
        self.features = {"small table": 5, "patients": 8}.get(name, 30)
        self.means = rng.normal(size=(CLASSES, self.features)) + 2 * rng.normal(size=self.features)
        self.scales = np.arange(1, self.features + 1) ** -0.5
        self.towards = np.linalg.qr(rng.normal(size=(self.features, 1)))[0][:, 0]

    def draw(self, setting: Setting, rng: np.random.Generator, moved: float = 0.0) -> tuple[Array, Array]:
        """Samples and labels of one client."""
        n = int(rng.integers(setting.sizes[0], setting.sizes[1] + 1))
        if setting.columns:
            return patients(n, rng, moved)
        y = rng.choice(CLASSES, n, p=None if setting.alpha is None else rng.dirichlet(np.full(CLASSES, setting.alpha)))
        if self.images is not None:
            pools = [np.flatnonzero(self.images.y_train == c) for c in range(CLASSES)]
            x = self.images.x_train[[rng.choice(pools[c]) for c in y]].reshape(n, -1).astype(np.float64)
            return x + moved * x.std() * np.linspace(0, 1, x.shape[1]), y
        noise = (
            rng.standard_t(3, (n, self.features)) if self.name == "heavy tails" else rng.normal(size=(n, self.features))
        )
        return self.means[y] + noise * self.scales + moved * self.towards, y


def patients(n: int, rng: np.random.Generator, moved: float = 0.0) -> tuple[Array, Array]:
    """Columns of several kinds, of which the first may move, and an outcome that depends on two of them."""
    columns = [
        rng.normal(60, 15, n) + 15 * moved,
        rng.lognormal(0, 0.5, n),
        rng.uniform(0, 1, n),
        rng.poisson(1.5, n),
        rng.random(n) < 0.05,
        rng.random(n) < 0.5,
        rng.standard_t(3, n),
        rng.exponential(10, n).round(),
    ]
    x = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    return x, (x[:, 2] + x[:, 5] + rng.normal(0, 0.5, n) > 1).astype(np.int64)


def agreed(data: Sequence[tuple[Array, Array]]) -> Schema:
    """The schema of all clients."""
    return merged({f"c{i}": describe(as_table(x)) for i, (x, _) in enumerate(data)})


def as_table(x: Array) -> pa.Table:
    """Columns with names."""
    return pa.table({f"column {j}": x[:, j] for j in range(x.shape[1])})


def signed(
    x: Array, y: Array, setting: Setting, rng: np.random.Generator, schema: Schema | None = None
) -> SignatureFile:
    """The signature of a client's samples."""
    if setting.epsilon is None:
        how = Reading(labels="y" if setting.labelled else None, schema=schema)
        x = x if schema is None else schema.encode(as_table(x)).x
        return sign("client", Samples(x, y if setting.labelled else None), setting.rank, how)
    made = (
        private_class_signatures(x, y, range(CLASSES), setting.rank, setting.epsilon, noise=seeded(rng))
        if setting.labelled
        else private_signature(x, setting.rank, setting.epsilon, noise=seeded(rng))
    )
    basis = made.basis.astype(np.float32)
    private = made.split_half_angles, made.guarantee, made.classes
    return SignatureFile(basis, setting.rank, False, "raw", None, *private)


def outcome(source: Source, setting: Setting, rng: np.random.Generator, power: bool) -> dict[str, Any]:
    """What is said of the clients of one federation; power: also of clients that moved, and of copies."""
    data = [source.draw(setting, rng) for _ in range(CLIENTS)]
    schema = agreed(data) if setting.columns else None

    def made(own: Iterable[tuple[Array, Array]]) -> list[SignatureFile]:
        return [signed(*one, setting, rng, schema) for one in own]

    names = [f"c{i}" for i in range(CLIENTS)]
    federation = federate(dict(zip(names, made(data), strict=True)), setting.measure)
    redrawn = made(source.draw(setting, rng) for _ in names)
    drifts = [replace_client(federation, name, new).drift for name, new in zip(names, redrawn, strict=True)]
    tested = [drift for drift in drifts if not drift.obstacle]
    found = {
        "compared": sorted({drift.compared for drift in tested}),
        "tested": len(tested),
        "drifted": sum(drift.drifted for drift in tested),
        "size": [round(drift.size, 3) for drift in tested],
        "copies": sum(copies(federation, redrawn)),
        "joined": len(redrawn),
    }
    some = names[:TRIED] if power else []
    for by in MOVED:
        moved = made(source.draw(setting, rng, by) for _ in some)
        noticed = [replace_client(federation, name, new).drift.drifted for name, new in zip(some, moved, strict=True)]
        found[f"moved {by}"] = sum(noticed)
    for share in FRESH:
        partly = made(mixed(own, source.draw(setting, rng), share) for own in data[: len(some)])
        found[f"fresh {share}"] = sum(copies(federation, partly))
    return {**found, "tried": len(some)}


def mixed(own: tuple[Array, Array], other: tuple[Array, Array], share: float) -> tuple[Array, Array]:
    """Samples of which a share is replaced by others."""
    n = min(round(share * len(own[1])), len(other[1]))
    return np.concatenate([own[0][n:], other[0][:n]]), np.concatenate([own[1][n:], other[1][:n]])


def copies(federation: Federation, newcomers: list[SignatureFile]) -> list[bool]:
    """Whether newcomers, each alone, pass for copies."""
    return [join(federation, {"new": one}).federation.newcomers["new"].copy_of is not None for one in newcomers]


def outcomes(data: Path | None, runs: int, only: str, store: Path) -> Iterator[dict[str, Any]]:
    """All federations that are not in the store, of settings whose names contain a word."""
    done = {json.dumps(o["key"]) for o in map(json.loads, store.read_text().splitlines())} if store.exists() else set()
    for run in range(runs):
        for name, setting in SETTINGS.items():
            if only in name and json.dumps([name, run]) not in done and (data or setting.source != "fmnist"):
                rng = np.random.default_rng([run, *name.encode()])
                source = Source(setting.source, data, np.random.default_rng([0, *setting.source.encode()]))
                yield {"key": [name, run], **outcome(source, setting, rng, run < POWER_RUNS)}


def rate(count: int, n: int) -> str:
    """A count of n, with an exact upper bound of 95 %."""
    if n == 0:
        return "not tested"
    return f"{count} of {n:,} (at most {float(beta.ppf(0.95, count + 1, n - count)) if count < n else 1.0:.1%})"


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with fmnist.npz; without it, simulated ones only")
    parser.add_argument("--runs", type=int, default=20, help="federations for each setting")
    parser.add_argument("--only", default="", help="settings whose names contain this")
    parser.add_argument("--outcomes", type=Path, default=Path("drift.jsonl"))
    args = parser.parse_args()
    for one in outcomes(args.data, args.runs, args.only, args.outcomes):
        with args.outcomes.open("a") as file:
            file.write(json.dumps(one) + "\n")
    stored = [json.loads(line) for line in args.outcomes.read_text().splitlines()]
    later = [*(f"moved {by}" for by in MOVED), *(f"fresh {share}" for share in FRESH)]
    print("| clients | false drift | false copies | moved by 0.5 | by 1.0 | all copied | 95 % copied | 80 % copied |")
    print("|---|---|---|---|---|---|---|---|")
    for name in (*dict.fromkeys(o["key"][0] for o in stored), None):
        own = [o for o in stored if name in (None, o["key"][0])]
        total = {key: sum(o[key] for o in own) for key in ("tested", "drifted", "copies", "joined", "tried", *later)}
        false = rate(total["drifted"], total["tested"]), rate(total["copies"], total["joined"])
        noticed = [f"{total[key] / total['tried']:.0%}" if total["tried"] else "" for key in later]
        print(f"| {' | '.join([name or 'all', *false, *noticed])} |")


if __name__ == "__main__":
    main()
