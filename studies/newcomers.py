"""Are newcomers placed rightly, and is who is too small warned? `python -m studies.newcomers`.

Federations of two distributions, ten clients of each. Newcomers of both, with few and with many samples, join one by
one. Every outcome is appended to a file at once; outcomes in the file are not computed again.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.signatures.federation import federate, join
from pacfl.subspace import adjusted_rand_index
from studies.drift import Setting, Source, agreed, rate, signed

CLIENTS: Final = 20
NEWCOMERS: Final = 10  # of each size
SIZES: Final = (10, 20, 50, 200)  # samples of newcomers
APART: Final = 1.5  # standard deviations, in one direction or one column
SETTINGS: Final = {
    "inputs": Setting("table", (200, 200)),
    "classes": Setting("table", (200, 200), labelled=True),
    "columns": Setting("patients", (200, 200), rank=1),
    "columns and classes": Setting("patients", (200, 200), rank=1, labelled=True),
    "private inputs, epsilon 4": Setting("table", (1000, 1000), epsilon=4.0),
}


def outcome(source: Source, setting: Setting, rng: np.random.Generator) -> dict[str, Any] | None:
    """How newcomers of one federation were placed, by their sizes; None if its clusters are not the true ones."""
    truth = np.arange(CLIENTS) % 2
    data = [source.draw(setting, rng, APART * k) for k in truth]
    schema = agreed(data) if setting.columns else None
    federation = federate({f"c{i}": signed(*own, setting, rng, schema) for i, own in enumerate(data)})
    labels = federation.clustering.labels
    if adjusted_rand_index(truth, labels) < 1 or labels.min() < 0:
        return None
    found: dict[str, Counter[str]] = {}
    for size in SIZES:
        n = size * setting.sizes[0] // SIZES[-1]
        smaller = Setting(setting.source, (n, n), setting.rank, setting.labelled, epsilon=setting.epsilon)
        found[str(n)] = Counter()
        for k in np.arange(NEWCOMERS) % 2:
            new = signed(*source.draw(smaller, rng, APART * k), setting, rng, schema)
            placed = join(federation, {"new": new}).federation.newcomers["new"]
            where = "opened" if placed.opened else "not judged" if placed.cluster < 0 else "other"
            where = "right" if placed.cluster == labels[k] else where
            found[str(n)][where] += 1
            found[str(n)][f"{where}, warned"] += placed.too_small
    return {size: dict(counts) for size, counts in found.items()}


def outcomes(runs: int, store: Path) -> Iterator[dict[str, Any]]:
    """All federations that are not in the store."""
    done = {json.dumps(o["key"]) for o in map(json.loads, store.read_text().splitlines())} if store.exists() else set()
    for run in range(runs):
        for name, setting in SETTINGS.items():
            if json.dumps([name, run]) not in done:
                rng = np.random.default_rng([run, *name.encode()])
                source = Source(setting.source, None, np.random.default_rng([0, *setting.source.encode()]))
                yield {"key": [name, run], "placed": outcome(source, setting, rng)}


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="federations for each setting")
    parser.add_argument("--outcomes", type=Path, default=Path("newcomers.jsonl"))
    args = parser.parse_args()
    for one in outcomes(args.runs, args.outcomes):
        with args.outcomes.open("a") as file:
            file.write(json.dumps(one) + "\n")
    stored = [json.loads(line) for line in args.outcomes.read_text().splitlines()]
    print("| compared | samples | in another cluster | opened one | not judged | right | of these warned | of others |")
    print("|---|---|---|---|---|---|---|---|")
    for name in SETTINGS:
        own = [o["placed"] for o in stored if o["key"][0] == name and o["placed"] is not None]
        for size in own[0] if own else ():
            total: Counter[str] = sum((Counter(placed[size]) for placed in own), Counter())
            wrong = {where: total[where] for where in ("other", "opened", "not judged")}
            n = total["right"] + sum(wrong.values())
            cells = [rate(wrong["other"], n), rate(wrong["opened"], n), str(wrong["not judged"]), str(total["right"])]
            warned = sum(total[f"{where}, warned"] for where in wrong)
            print(f"| {name} | {size} | {' | '.join(cells)} | {total['right, warned']} | {warned} |")


if __name__ == "__main__":
    main()
