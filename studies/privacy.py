"""What do private signatures cost? `python -m studies.privacy [--seeds 10] [--figure docs/privacy.svg]`.

Every outcome is appended to a file at once; outcomes in the file are not computed again.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl import PACFL, BySet, LocalTraining, digits, federate, partition
from pacfl.learning.nets import mlp
from pacfl.privacy import gaussian_sigma, private_signature, seeded
from pacfl.subspace import adjusted_rand_index, choose_threshold, proximity, signature, split_half_angles
from pacfl.subspace.split_half import SplitHalfAngles
from studies.scenarios import SCENARIOS, Images

EPSILONS: tuple[float | None, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, None)
DELTA = 1e-5
RANK = 3
FEDERATIONS = ("MIX-4m, raw", "IID Fashion-MNIST", "Fashion-MNIST turned four ways", "CIFAR-10, label skew 20 %")
SKEWED = "CIFAR-10, label skew 20 %"
DIGITS = "digits in four domains, 140 samples"

Labels = NDArray[np.intp]


class Outcome(NamedTuple):
    """Clusters found in one federation."""

    federation: str
    epsilon: float | None
    n_clusters: int
    ari: float  # with the true clusters; for label skew, with the clusters of plain signatures
    accuracy: float | None = None


def released(
    client: Images, epsilon: float | None, rng: np.random.Generator
) -> tuple[NDArray[np.float64], SplitHalfAngles]:
    """The signature and split-half angles that a client sends."""
    if epsilon is None:
        return signature(client, RANK), split_half_angles(client, RANK)
    private = private_signature(client, RANK, epsilon, DELTA, seeded(rng))
    return private.basis, private.split_half_angles


def clusters(clients: Sequence[Images], epsilon: float | None, rng: np.random.Generator) -> Labels:
    """Labels at the automatic threshold."""
    bases, own = zip(*(released(client, epsilon, rng) for client in clients), strict=True)
    return choose_threshold(proximity(bases), [angles["smallest"] for angles in own]).labels


def clustered(name: str, seed: int, epsilons: Sequence[float | None]) -> Iterator[Outcome]:
    """One federation, for every epsilon."""
    make, _ = SCENARIOS[name]
    clients, true_cluster = make(np.random.default_rng([seed, *name.encode()]))
    if name == SKEWED:
        true_cluster = clusters(clients, None, np.random.default_rng(seed))
    for epsilon in epsilons:
        rng = np.random.default_rng([seed, round(1000 * (epsilon or 0))])
        labels = clusters(clients, epsilon, rng)
        yield Outcome(name, epsilon, int(labels.max()) + 1, adjusted_rand_index(true_cluster, labels))


def trained(name: str, seed: int, epsilons: Sequence[float | None]) -> Iterator[Outcome]:
    """Digits in four domains, forty clients: clusters, and accuracy of the received models."""
    dataset = digits()
    split = partition(dataset, BySet((10, 10, 10, 10), 140), 40, np.random.default_rng(seed))
    learning = LocalTraining(epochs=2, lr=0.1)
    for epsilon in epsilons:
        hidden = {} if epsilon is None else {"signature_epsilon": epsilon, "signature_noise": "seeded"}
        pacfl = PACFL(**hidden, compare="inputs", levels="none", label_prior=False)  # type: ignore[arg-type]
        result = federate(
            (dataset, split), lambda: mlp((1, 8, 8), 10, 32), pacfl, learning, rounds=15, participation=0.25, seed=seed
        )
        assert result.ari is not None  # the domains are known
        yield Outcome(name, epsilon, result.n_clusters, result.ari, result.accuracy["received"].mean)


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Rows in Markdown."""
    yield "| federation | epsilon | noise (standard deviation) | clusters (seeds) | ARI, mean | ARI, least | accuracy |"
    yield "|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(o.federation for o in outcomes):
        for epsilon in EPSILONS:
            own = [o for o in outcomes if (o.federation, o.epsilon) == (name, epsilon)]
            if not own:
                continue
            counts = [o.n_clusters for o in own]
            times = ", ".join(f"{k} ({counts.count(k)})" for k in sorted(set(counts)))
            ari = [o.ari for o in own]
            right = [o.accuracy for o in own if o.accuracy is not None]
            spread = f"{100 * np.mean(right):.1f} ± {100 * np.std(right):.1f} %" if right else ""
            noise = "0" if epsilon is None else f"{gaussian_sigma(epsilon, DELTA, 2**0.5):.2f}"
            word = "none" if epsilon is None else f"{epsilon:g}"
            yield f"| {name} | {word} | {noise} | {times} | {np.mean(ari):.2f} | {min(ari):.2f} | {spread} |"


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Agreement against epsilon, one line per federation: mean and range over seeds."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.fonttype"], rcParams["svg.hashsalt"] = "none", "pacfl"
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    words = ["none" if e is None else f"{e:g}" for e in EPSILONS]
    for name in dict.fromkeys(o.federation for o in outcomes):
        aris = [[o.ari for o in outcomes if (o.federation, o.epsilon) == (name, e)] for e in EPSILONS]
        (line,) = axes.plot(words, [np.mean(a) for a in aris], marker="o", markersize=3, label=name)
        axes.fill_between(words, [min(a) for a in aris], [max(a) for a in aris], alpha=0.12, color=line.get_color())
    axes.set(xlabel="epsilon", ylabel="adjusted Rand index", ylim=(-0.05, 1.05))
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Date": None})


def stored(path: Path) -> list[Outcome]:
    """Outcomes in the file."""
    return [Outcome(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Print a table in Markdown, and draw the figure if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--federations", nargs="+", default=[*FEDERATIONS, DIGITS])
    parser.add_argument("--outcomes", type=Path, default=Path("privacy-outcomes.jsonl"))
    parser.add_argument("--most-epsilon", type=float, default=max(e for e in EPSILONS if e is not None))
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    for name, seed in product(args.federations, range(args.seeds)):
        done = Counter(o.epsilon for o in stored(args.outcomes) if o.federation == name)
        epsilons = [e for e in EPSILONS if done[e] <= seed and (e is None or e <= args.most_epsilon)]
        for outcome in (trained if name == DIGITS else clustered)(name, seed, epsilons):
            with args.outcomes.open("a") as file:
                file.write(json.dumps(outcome) + "\n")
    for row in table(stored(args.outcomes)):
        print(row)
    if args.figure is not None:
        draw(stored(args.outcomes), args.figure)


if __name__ == "__main__":
    main()
