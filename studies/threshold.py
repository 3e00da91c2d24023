"""Does the automatic threshold find the true clusters? `python -m studies.threshold [--seeds 10]`."""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from pacfl.subspace import adjusted_rand_index, choose_threshold, proximity, signature, split_half_angles
from pacfl.subspace.proximity import MEASURES, Measure
from studies.scenarios import ANIMALS, SCENARIOS


class Outcome(NamedTuple):
    """Clusters found in one federation."""

    scenario: str
    n_clusters: int
    ari: float
    limit: float  # of the null, for a single client, in units of noise
    heights: tuple[float, ...]
    reproducibility: float
    animals: tuple[float, ...]  # share of animal classes in every cluster; only for label skew


def outcome(scenario: str, seed: int, rank: int, measure: Measure, split_halves: bool) -> Outcome:
    """Make the federation, its signatures and proximity, and choose the threshold."""
    make, wanted = SCENARIOS[scenario]
    clients, groups = make(np.random.default_rng([seed, *scenario.encode()]))
    angles = proximity([signature(x, rank) for x in clients], measure)
    own = [split_half_angles(x, rank, measures=[measure])[measure] for x in clients] if split_halves else None
    choice = choose_threshold(angles, own)
    n_clusters = int(choice.labels.max()) + 1
    skewed = wanted == "2 to 4"
    owned = max(groups.max(), 1)
    shares = tuple(float(groups[choice.labels == k].mean() / owned) for k in range(n_clusters)) if skewed else ()
    true_cluster = groups == owned if skewed else groups
    ari = adjusted_rand_index(true_cluster, choice.labels)
    evidence = choice.evidence
    return Outcome(
        scenario,
        n_clusters,
        ari,
        evidence.null_limits[0],
        evidence.heights[:5],
        1.0 if evidence.reproducibility is None else evidence.reproducibility,
        shares,
    )


def outcomes(
    scenarios: Sequence[str], seeds: int, rank: int, measure: Measure, split_halves: bool
) -> Iterator[Outcome]:
    """All outcomes, by two processes."""
    jobs = [(scenario, seed, rank, measure, split_halves) for scenario in scenarios for seed in range(seeds)]
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(outcome, *zip(*jobs, strict=True))


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rank", type=int, default=3)
    parser.add_argument("--measure", choices=MEASURES, default="smallest")
    parser.add_argument("--without-split-half-angles", action="store_true", help="as if no client had sent any")
    parser.add_argument("--only", nargs="*", default=list(SCENARIOS), help="names of scenarios")
    args = parser.parse_args()
    found: dict[str, list[Outcome]] = {}
    for one in outcomes(args.only, args.seeds, args.rank, args.measure, not args.without_split_half_angles):
        found.setdefault(one.scenario, []).append(one)
    print(f"p = {args.rank}, `{args.measure}`, {args.seeds} seeds; classes of animals: {ANIMALS}\n")
    print("| federation | wanted | found (seeds) | ARI, least | limit | last merges, seed 0 | reproducible, least |")
    print("|---|---|---|---|---|---|---|")
    for scenario, rows in found.items():
        counts = sorted({row.n_clusters for row in rows})
        times = ", ".join(f"{k} ({sum(row.n_clusters == k for row in rows)})" for k in counts)
        heights = " ".join(f"{h:.2f}" for h in rows[0].heights)
        print(
            f"| {scenario} | {SCENARIOS[scenario][1]} | {times} | {min(r.ari for r in rows):.2f} "
            f"| {np.mean([r.limit for r in rows]):.2f} | {heights} | {min(r.reproducibility for r in rows):.2f} |"
        )
    for scenario, rows in found.items():
        for seed, row in enumerate(rows):
            if row.animals:
                shares = ", ".join(f"{share:.0%}" for share in row.animals)
                print(
                    f"{scenario}, seed {seed}: animals among the classes of each cluster: {shares}; "
                    f"ARI with animals only {row.ari:.2f}"
                )


if __name__ == "__main__":
    main()
