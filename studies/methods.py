"""Do the clustering method and the measure matter? `python -m studies.methods [--seeds 3]`.

The paper: the clustering algorithm "does not play a crucial role" as long as it needs no number of clusters.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import (
    adjusted_rand_index,
    choose_threshold,
    noise_scale,
    proximity,
    rescale_by_noise,
    signature,
    split_half_angles,
)
from pacfl.subspace.alternatives import communities, density
from pacfl.subspace.hierarchy import Labels, Linkage
from pacfl.subspace.noise_scale import reference_scale
from pacfl.subspace.proximity import MEASURES, Measure
from studies.scenarios import SCENARIOS

Array = NDArray[np.float64]
Clustering = Callable[[Array, list[Array]], Labels]  # of a proximity and every client's split-half angles


class Score(NamedTuple):
    """Clusters found in one federation, and their adjusted Rand index with the true ones."""

    n_clusters: int
    ari: float


class Outcome(NamedTuple):
    """Scores of all methods and all measures in one federation."""

    scenario: str
    methods: dict[str, Score]
    measures: dict[str, Score]


def _hierarchy(angles: Array, own: list[Array], linkage: Linkage) -> Labels:
    return choose_threshold(angles, own, linkage).labels


def _density(angles: Array, own: list[Array]) -> Labels:
    return density(rescale_by_noise(angles, noise_scale(angles, own)))


def _communities(angles: Array, own: list[Array]) -> Labels:
    scale = noise_scale(angles, own)
    return communities(rescale_by_noise(angles, scale), reference_scale(scale))


METHODS: Mapping[str, Clustering] = {
    "average": partial(_hierarchy, linkage="average"),
    "weighted": partial(_hierarchy, linkage="weighted"),
    "complete": partial(_hierarchy, linkage="complete"),
    "single": partial(_hierarchy, linkage="single"),
    "HDBSCAN": _density,
    "communities": _communities,
}


def outcome(scenario: str, seed: int, rank: int, measure: Measure) -> Outcome:
    """Make the federation, its signatures and proximities once; then cluster with every method."""
    make, wanted = SCENARIOS[scenario]
    clients, groups = make(np.random.default_rng([seed, *scenario.encode()]))
    true_cluster = groups == groups.max() if wanted == "2 to 4" else groups  # whether all classes are animals
    signatures = [signature(x, rank) for x in clients]
    split_halves = [split_half_angles(x, rank) for x in clients]
    angles = {m: proximity(signatures, m) for m in MEASURES}
    own = {m: [by_measure[m] for by_measure in split_halves] for m in MEASURES}

    def score(labels: Labels) -> Score:
        return Score(int(labels.max()) + 1, adjusted_rand_index(true_cluster, labels))

    methods = {name: score(cluster(angles[measure], own[measure])) for name, cluster in METHODS.items()}
    measures: dict[str, Score] = {m: score(_hierarchy(angles[m], own[m], "average")) for m in MEASURES}
    return Outcome(scenario, methods, measures)


def outcomes(scenarios: Sequence[str], seeds: int, rank: int, measure: Measure) -> Iterator[Outcome]:
    """All outcomes, by two processes of one thread each: threads do not pay on small matrices."""
    os.environ["OMP_NUM_THREADS"] = "1"
    jobs = [(scenario, seed, rank, measure) for scenario in scenarios for seed in range(seeds)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield from pool.map(outcome, *zip(*jobs, strict=True))


def table(found: Mapping[str, Sequence[Mapping[str, Score]]]) -> str:
    """Clusters found and mean adjusted Rand index, in Markdown: federations down, methods across."""
    names = list(next(iter(found.values()))[0])
    lines = [f"| federation | wanted | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    means = {scenario: [np.mean([row[name].ari for row in rows]) for name in names] for scenario, rows in found.items()}
    for scenario, rows in found.items():
        cells = [
            f"{_range([row[name].n_clusters for row in rows])} ({mean:.2f})"
            for name, mean in zip(names, means[scenario], strict=True)
        ]
        lines.append(f"| {scenario} | {SCENARIOS[scenario][1]} | {' | '.join(cells)} |")
    columns = np.array(list(means.values())).T
    lines.append(f"| mean ARI | | {' | '.join(f'{column.mean():.2f}' for column in columns)} |")
    lines.append(
        f"| without an error | of {len(found)} | {' | '.join(str(sum(column > 1 - 1e-9)) for column in columns)} |"
    )
    return "\n".join(lines)


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def main() -> None:
    """Print two tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rank", type=int, default=3)
    parser.add_argument("--measure", choices=MEASURES, default="smallest", help="for the table of methods")
    parser.add_argument("--only", nargs="*", default=list(SCENARIOS), help="names of scenarios")
    args = parser.parse_args()
    methods: dict[str, list[dict[str, Score]]] = {}
    measures: dict[str, list[dict[str, Score]]] = {}
    for one in outcomes(args.only, args.seeds, args.rank, args.measure):
        methods.setdefault(one.scenario, []).append(one.methods)
        measures.setdefault(one.scenario, []).append(one.measures)
    print(f"p = {args.rank}, seeds 0 to {args.seeds - 1}. Clusters found (mean adjusted Rand index).\n")
    print(f"Methods, `{args.measure}`: linkages at the automatic threshold, and two others.\n\n{table(methods)}\n")
    print(f"Measures, average linkage at the automatic threshold.\n\n{table(measures)}")


if __name__ == "__main__":
    main()
