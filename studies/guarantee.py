"""How often is a homogeneous federation split? `python -m studies.guarantee --data DATA --store FILE`.

Every two values of two options occur together in some row (`studies.covering`). In each row, federations of one
distribution are clustered, and those with more than one cluster are counted: separately where the evidence guarantees
the error rate and where it does not.

Clients are members of a pool of signatures of independent samples; a federation is a random subset of it. Each
federation is what a federation of that kind is, but two of them may share clients, so bounds are those of independent
federations and a little too narrow.

The heights that chance reaches are simulated for the first federations of a row. Others are first clustered with the
lowest of these, less their range; only if that splits them, they are clustered with their own.
`--show ROW FEDERATION` prints the evidence of one of them.
"""

import argparse
import json
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.stats import binomtest

from pacfl.features.reading import PREPROCESSES, preprocessed
from pacfl.privacy import noise_scale as private_noise
from pacfl.privacy import private_class_signatures, private_signature, seeded
from pacfl.signatures.class_arrays import as_stored
from pacfl.signatures.federation import NORMALISED
from pacfl.subspace import (
    COMPARES,
    LINKAGES,
    MEASURES,
    ClientSignature,
    Clustering,
    RankWarning,
    class_signatures,
    cluster_clients,
    clustering,
    guarantee,
    proximity,
    signature,
    split_half_angles,
    threshold,
    together,
)
from studies.covering import Row, Rule, covering_rows
from studies.populations import SETS, SIMULATED, Population
from studies.screening import CHECKED, FULL, Screening

Array = NDArray[np.float64]

EPSILON: Final = 2.0  # of private signatures
SIGNING: Final = 60.0  # seconds for a pool of signatures, unless twice a federation takes longer

OTHER_LINKAGES: Final = tuple(linkage for linkage in LINKAGES if linkage != "average")
OPTIONS: Final[Mapping[str, Sequence[Any]]] = {
    "data": (*SIMULATED, *SETS),
    "clients": (2, 3, 5, 10, 30, 100, 1000, 5000),
    "rank": (1, 2, 3, 5, 10, 20),
    "samples": (20, 60, 200, 1000, 5000),
    "features": (5, 30, 200, 784, 3000),
    "measure": MEASURES,
    "linkage": LINKAGES,
    "preprocess": PREPROCESSES,
    "compare": COMPARES,
    "classes": (1, 2, 10, 100),
    "shares": ("balanced", "long tail", "Dirichlet"),
    "sizes": ("equal", "unequal"),
    "private": (False, True),
}
RULES: Final[Sequence[Rule]] = (
    ({"compare": ["classes"], "linkage": OTHER_LINKAGES}, "refused: classes are compared with average linkage"),
    ({"compare": ["classes"], "classes": [1]}, "refused: there are no labels"),
    ({"preprocess": ["normalise"], "private": [True]}, "refused: normalising looks at all samples"),
    ({"shares": ["Dirichlet"], "compare": ["inputs"]}, "not homogeneous: inputs differ where class shares do"),
    ({"shares": ["Dirichlet"], "linkage": OTHER_LINKAGES}, "not homogeneous: inputs are compared, and differ"),
    ({"shares": ["Dirichlet"], "preprocess": ["normalise"]}, "not homogeneous: each client's classes move its mean"),
    ({"shares": ["Dirichlet", "long tail"], "classes": [1]}, "one class has no shares"),
    ({"classes": [100], "data": SETS}, "the sets have ten classes"),
    ({"classes": [100], "clients": [1000, 5000]}, "too long: 100 classes of that many clients take hours"),
    ({"classes": [100], "samples": [20, 60], "compare": ["classes"]}, "no class has the four samples it needs"),
)


def federations_of(clients: int) -> int:
    """How many federations of so many clients a row has."""
    return 1000 if clients <= 100 else 100 if clients <= 1000 else 20


def by_classes(row: Row) -> bool:
    """Whether classes may be compared, so that clients send them."""
    return bool(row["compare"] != "inputs" and row["linkage"] == "average" and row["classes"] > 1)


def seconds_to_sign(row: Row) -> float:
    """Of one client, about: to choose rows that are cheap, and the size of a pool."""
    n, features = row["samples"], row["features"]
    small = min(n, features)
    drawn = 2e-8 * n * features
    if row["measure"] in ("smallest", "sum"):
        drawn += 1e-3 * min(row["rank"], small) ** 2
    if row["private"]:
        return float(drawn + 5e-9 * n * features + 0.03 + (5e-3 * row["classes"] if by_classes(row) else 0.0))
    directions = 2e-4 + 3e-11 * n * features * small + 1e-10 * small**3
    halves = (0.08 if row["measure"] in ("sum", "trace") else 0.03) * min(n / 200, 1) + 0.004
    classes = row["classes"] * (2e-3 + 3e-10 * n * features / row["classes"]) if by_classes(row) else 0.0
    return float(drawn + directions + halves + classes)


def pool_size(row: Row) -> int:
    """How many signatures a row's federations are drawn from: two to four times as many as one has."""
    n = row["clients"]
    return int(np.clip(SIGNING / seconds_to_sign(row), max(2 * n, 40), max(4 * n, 400)))


def seconds(row: Row) -> float:
    """Of a row, about."""
    n, pool = row["clients"], pool_size(row)
    rank = min(row["rank"], row["features"])
    of_pair = 2e-11 * rank**2 * row["features"] + (5e-9 * rank**3 if row["measure"] in ("smallest", "sum") else 0.0)
    simulated = 0.1 + 1e-3 * min(n, 300) + 2e-5 * min(n, 300) ** 2
    each = 2e-3 + 2e-7 * n**2
    if by_classes(row):
        several = 0.3 + row["classes"] / 10
        simulated += several * (0.1 + 2e-3 * min(n, 300) + 4e-4 * min(n, 300) ** 2)
        each += several * (5e-3 + 3e-4 * n + 1e-6 * n**2 * (1 + row["features"] / 500))
    signing = pool * seconds_to_sign(row) + of_pair * pool**2
    return float(signing + (FULL + CHECKED) * simulated + federations_of(n) * each)


def seconds_expected(row: Row) -> float:
    """Of a row, about, with the federations whose limits differ too much to leave any of them out."""
    small = row["sizes"] == "unequal" and row["clients"] <= 10
    return seconds(row) + (0.07 * federations_of(row["clients"]) if small else 0.0)


@cache
def design() -> tuple[Row, ...]:
    """The rows of the study, in no order, so that the first of them are as mixed as all."""
    return tuple(sorted(covering_rows(OPTIONS, RULES, seconds), key=seed_of))


def seed_of(row: Row) -> int:
    """Addressed by the options alone, so that rows are the same whatever others there are."""
    return crc32(json.dumps(row, sort_keys=True).encode())


def sign(row: Row, folder: Path | None, client: int) -> ClientSignature:
    """What one client of a row's pool sends."""
    rng = np.random.default_rng([seed_of(row), 0, client])
    n = row["samples"]
    if row["sizes"] == "unequal":
        n = round(float(np.exp(rng.uniform(np.log(max(5, n / 10)), np.log(n)))))
    x, labels = Population(row["data"], row["features"], row["classes"], folder).draw(rng, n, row["shares"])
    x = preprocessed(x, row["preprocess"])
    rank, measure = row["rank"], row["measure"]
    if row["private"]:
        with patch.object(private_noise, "MEASURES", (measure,)):  # no time for the others
            if by_classes(row):
                made = private_class_signatures(x, labels, range(row["classes"]), rank, EPSILON, noise=seeded(rng))
            else:
                made = private_signature(x, rank, EPSILON, noise=seeded(rng))
        classes = None if made.classes is None else as_stored(made.classes)
        return ClientSignature(made.basis.astype(np.float32), made.split_half_angles[measure], classes)
    own = split_half_angles(x, rank, measures=[measure])[measure]
    classes = as_stored(class_signatures(x, labels)) if by_classes(row) else None
    return ClientSignature(signature(x, rank).astype(np.float32), own, classes)


class Found(NamedTuple):
    """What was found in one federation, which is homogeneous."""

    split: bool
    guaranteed: bool
    because: str | None  # nothing is guaranteed
    compare: str
    not_judged: int
    apart: bool = False  # there are several clusters, but nobody in one was compared with anybody in another
    refused: bool = False


def clustered(row: Row, clients: Sequence[ClientSignature], angles: Array) -> Clustering:
    """The clusters of clients between whose signatures the angles are known."""
    with patch.object(together, "proximity", lambda *_: angles):
        return cluster_clients(
            clients,
            row["compare"],
            row["measure"],
            row["linkage"],
            caveats=[NORMALISED] if row["preprocess"] == "normalise" else [],
        )


def found_in(row: Row, clients: Sequence[ClientSignature], angles: Array) -> Found:
    """Split: two clients that chains of compared pairs connect are in different clusters."""
    try:
        made = clustered(row, clients, angles)
    except ValueError as error:
        return Found(False, False, str(error), "none", 0, refused=True)
    evidence, labels = made.evidence, made.labels
    groups = np.zeros(len(labels), dtype=np.intp)
    if made.classes is not None:
        groups = connected_components(made.classes.pairs.weights > 0, directed=False)[1]
    split = any(len(np.unique(labels[(groups == g) & (labels >= 0)])) > 1 for g in np.unique(groups))
    return Found(
        split,
        evidence["guaranteed"],
        evidence["not_guaranteed_because"],
        evidence["compare"],
        int((labels < 0).sum()),
        apart=not split and int(labels.max()) > 0,
    )


def members(row: Row, federation: int) -> NDArray[np.intp]:
    """Places in the pool of the clients of one federation."""
    rng = np.random.default_rng([seed_of(row), 1, federation])
    return np.asarray(rng.choice(pool_size(row), row["clients"], replace=False))


def outcome(row: Row, folder: Path | None, federations: int | None = None) -> dict[str, Any]:
    """The counts of one row, ready for JSON."""
    start = time.process_time()
    total = federations_of(row["clients"]) if federations is None else federations
    content = {"row": row, "federations": total, "pool": pool_size(row)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)  # ranks above the number of features are part of the study
            pool = [sign(row, folder, client) for client in range(pool_size(row))]
        angles = proximity([client.basis for client in pool], row["measure"])
    except ValueError as error:
        return {**content, "refused": total, "because": {str(error): total}, "seconds": _since(start)}
    screening, found = Screening[Found](), []
    with ExitStack() as patches:
        known = cache(guarantee.random_angle)  # which takes longer than all the rest
        for module in (guarantee, threshold, clustering):
            if hasattr(module, "random_angle"):
                patches.enter_context(patch.object(module, "random_angle", known))
        for number in range(total):
            own = members(row, number)
            some = [pool[i] for i in own]
            between = angles[np.ix_(own, own)]
            found.append(screening.found(partial(found_in, row, some, between), number))
    judged = [one for one in found if not one.refused]
    because = Counter(re.sub(r"\d[\d.e+]*", "…", one.because.split(";")[0]) for one in found if one.because)
    return {
        **content,
        "guaranteed": _counts([one for one in judged if one.guaranteed]),
        "not_guaranteed": _counts([one for one in judged if not one.guaranteed]),
        "refused": len(found) - len(judged),
        "apart": sum(one.apart for one in judged),
        "not_judged": sum(one.not_judged for one in judged) / max(1, len(judged) * row["clients"]),
        "compared": dict(Counter(one.compare for one in judged)),
        "because": dict(because.most_common(3)),
        "split": [k for k, one in enumerate(found) if one.split][:5],
        "full": len(screening.simulated),
        "below": screening.below,
        "seconds": _since(start),
    }


def _since(start: float) -> float:
    """Seconds of this process, whatever else the machine does."""
    return round(time.process_time() - start, 1)


def _counts(found: Sequence[Found]) -> dict[str, int]:
    return {"federations": len(found), "split": sum(one.split for one in found)}


def stored(path: Path | None) -> dict[str, dict[str, Any]]:
    """Outcomes by row; the last of several of one row counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    return {_key(content["row"]): content for content in map(json.loads, lines)}


def _key(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def bounds(split: int, federations: int) -> tuple[float, float]:
    """Exact bounds of a share at 95 % confidence (Clopper and Pearson)."""
    if federations == 0:
        return 0.0, 1.0
    found = binomtest(split, federations).proportion_ci(0.95, "exact")
    return float(found.low), float(found.high)


COUNTS: Final = "guaranteed | split | bounds | not guaranteed | split | bounds"


def table(found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: every row, in the order of the design, and all of them together."""
    shown = ("data", "clients", "rank", "samples", "features", "measure", "linkage", "preprocess", "compare")
    yield f"| row | {' | '.join(shown)} | classes | sizes | private | {COUNTS} |"
    yield f"|{'---|' * (len(shown) + 10)}"
    for number, row in enumerate(design()):
        if _key(row) in found:
            content = found[_key(row)]
            classes = "-" if row["classes"] == 1 else f"{row['classes']} {row['shares']}"
            private = "yes" if row["private"] else "no"
            values = [*(row[name] for name in shown), classes, row["sizes"], private]
            yield f"| {number} | {' | '.join(map(str, values))} | {_cells([content])} |"


def summary(found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: the federations of all rows together, and of all rows with each value of each option."""
    contents = [found[_key(row)] for row in design() if _key(row) in found]
    yield f"| option | value | rows | {COUNTS} |"
    yield f"|{'---|' * 9}"
    yield f"| all | | {len(contents)} | {_cells(contents)} |"
    for name, values in OPTIONS.items():
        for value in values:
            some = [content for content in contents if content["row"][name] == value]
            if some:
                yield f"| {name} | {value} | {len(some)} | {_cells(some)} |"


def _cells(contents: Sequence[dict[str, Any]]) -> str:
    cells = []
    for claim in ("guaranteed", "not_guaranteed"):
        counts = [content[claim] for content in contents if claim in content]
        federations, split = (sum(one[key] for one in counts) for key in ("federations", "split"))
        low, high = bounds(split, federations)
        cells += [str(federations), str(split), f"{low:.2%} to {high:.2%}" if federations else "-"]
    refused = sum(content["refused"] for content in contents)
    if refused:
        cells[3] += f" ({refused} refused)"
    return " | ".join(cells)


def failing(content: Mapping[str, Any], claim: str = "guaranteed") -> bool:
    """Whether a row was split more often than an error rate of 0.1 % explains."""
    counts = content.get(claim, {"federations": 0, "split": 0})
    return bounds(counts["split"], counts["federations"])[0] > threshold.ERROR_RATE


def show(row: Row, federation: int, folder: Path | None) -> dict[str, Any]:
    """The labels and the evidence of one federation."""
    clients = [sign(row, folder, int(client)) for client in members(row, federation)]
    made = clustered(row, clients, proximity([client.basis for client in clients], row["measure"]))
    return {"row": row, "labels": made.labels.tolist(), "evidence": made.evidence}


def main() -> None:
    """Compute the rows that are not in the store while the budget lasts, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--store", type=Path, help="a file of outcomes, one JSON line for each row")
    parser.add_argument("--rows", type=int, nargs="*", help="numbers of rows; all unless given")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="seconds; rows that take longer are left out"
    )
    parser.add_argument("--longest", type=float, default=float("inf"), help="seconds of a single row, about")
    parser.add_argument("--federations", type=int, help="of each row, fewer than usual, to try something")
    parser.add_argument("--again", action="store_true", help="compute rows that are in the store once more")
    parser.add_argument("--list", action="store_true", help="print the rows and the seconds they take, about")
    parser.add_argument("--show", type=int, nargs=2, metavar=("ROW", "FEDERATION"), help="print the evidence of one")
    args = parser.parse_args()
    rows = range(len(design())) if args.rows is None else args.rows
    if args.list:
        for number in rows:
            print(
                number,
                round(seconds_expected(design()[number])),
                pool_size(design()[number]),
                json.dumps(design()[number]),
            )
        return
    if args.show:
        print(json.dumps(show(design()[args.show[0]], args.show[1], args.data), indent=1))
        return
    start, found = time.perf_counter(), stored(args.store)
    for number in rows:
        row = design()[number]
        left = min(args.longest, args.budget - (time.perf_counter() - start))
        if (_key(row) in found and not args.again) or seconds_expected(row) > left:
            continue
        found[_key(row)] = outcome(row, args.data, args.federations)
        if args.store:
            with args.store.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found[_key(row)]) + "\n")
    print("\n".join([*summary(found), "", *table(found)]))


if __name__ == "__main__":
    main()
