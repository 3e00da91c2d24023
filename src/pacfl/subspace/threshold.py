"""The threshold chosen from the clients' own sampling noise, with the evidence for it.

Angles are put in units of noise: 1 is what two samples of the same client show (`noise_scale`, `rescale_by_noise`).
Homogeneous federations are then simulated, with the same number of clients, the same noise and the same linkage. Their
merges are at heights that sampling alone explains (`null_limits`); merges above these are differences. Chance explains
less for larger groups: their merges have lower limits. Where differences are gradual, without a gap, as with clients
that mix classes, the finest cut is not reproducible. Then the finest reproducible one is taken (`reproducibility`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.guarantee import doubts_about_clients, doubts_about_noise, doubts_about_signatures
from pacfl.subspace.hierarchy import Labels, Linkage, check_proximity, cut, dendrogram
from pacfl.subspace.noise_scale import (
    RESOLUTION,
    check_split_half_angles,
    noise_scale,
    reference_scale,
    rescale_by_noise,
)
from pacfl.subspace.null import noise_energies, null_limits, size_classes
from pacfl.subspace.proximity import Measure, Signatures
from pacfl.subspace.stability import FEWEST, reproducibility

Array = NDArray[np.float64]
Finding = Literal["homogeneous", "distinct", "gradual"]

ERROR_RATE: Final = 0.001  # share of homogeneous federations that may be split
REPRODUCIBLE: Final = 0.85  # from which Hennig calls a cluster highly stable (fpc, clusterboot)


@dataclass(frozen=True)
class Cut:
    """One way to cut the dendrogram."""

    n_clusters: int
    height: float | None  # of the lowest merge that is undone, in units of noise; None if none is
    reproducibility: float  # of its least stable cluster in random halves of the clients, 0 to 1


@dataclass(frozen=True)
class Evidence:
    """Why this threshold, and whether its error rate was verified for federations like this one."""

    finding: Finding
    reasons: str
    error_rate: float
    floor: float  # degrees that two samples of a typical client show
    floors_from: Literal["clients", "neighbours"]
    guaranteed: bool  # whether the error rate was verified for federations like this one
    not_guaranteed_because: str | None
    null_height: float  # last merge of a homogeneous federation: its median, in units of noise
    null_limits: tuple[float, ...]  # what chance passes at the error rate: merges of at least 1, 2, 4, 8, ... clients
    heights: tuple[float, ...]  # the last merges, highest first, in units of noise
    separation: float | None  # lowest merge undone over highest merge done; None if there is only one of the two
    reproducibility: float | None  # None: there are too few clients to see
    cuts: tuple[Cut, ...]  # every cut that was considered, coarsest first
    compare: Literal["inputs", "classes", "both"] = "inputs"
    pairs: Mapping[str, int] | None = None  # how many pairs were compared by classes, by inputs, by none
    not_judged: Mapping[str, str] | None = None  # clients, by position, that joined nobody, and why


@dataclass(frozen=True, eq=False)
class Choice:
    """What `choose_threshold` found: degrees on the rescaled proximity, the clusters they give, and the evidence."""

    threshold: float
    labels: Labels
    evidence: Evidence


def choose_threshold(
    proximity: ArrayLike,
    split_half_angles: Sequence[ArrayLike] | None = None,
    linkage: Linkage = "average",
    error_rate: float = ERROR_RATE,
    seed: int = 0,
    *,
    measure: Measure = "smallest",
    signatures: Signatures | None = None,
    caveats: Sequence[str] = (),
) -> Choice:
    """Threshold, clusters and evidence from the proximity and the split-half angles.

    proximity (n, n) degrees, split_half_angles n × (splits,) degrees, empty for a client that has none: the angle to
    its nearest neighbour is used instead, which assumes that every client has another of its own distribution.

    signatures n × (features, p): only their shapes are used, with the measure, to find out whether the error rate is
    guaranteed; without them it is not. caveats: what the caller knows that speaks against a guarantee.

    labels == agglomerate(rescale_by_noise(proximity, noise_scale(proximity, split_half_angles)), threshold, linkage).
    """
    square = check_proximity(proximity)
    noise = noise_scale(square, split_half_angles)
    return choose(
        square,
        split_half_angles,
        noise,
        linkage,
        error_rate,
        seed,
        measure=measure,
        signatures=signatures,
        caveats=caveats,
    )


def choose(
    square: Array,
    split_half_angles: Sequence[ArrayLike] | None,
    noise: Array,
    linkage: Linkage,
    error_rate: float = ERROR_RATE,
    seed: int = 0,
    *,
    measure: Measure,
    signatures: Signatures | None,
    caveats: Sequence[str],
) -> Choice:
    """`choose_threshold` of a checked proximity whose noise scale (n,) is known."""
    if not 0 < error_rate < 1:
        raise ValueError(f"error_rate must lie between 0 and 1, got {error_rate}")
    own = check_split_half_angles(split_half_angles, len(square))
    rng = np.random.default_rng(seed)
    reference = reference_scale(noise)
    rescaled = rescale_by_noise(square, noise, reference)
    tree = dendrogram(rescaled, linkage)
    known = np.array([len(angles) > 0 for angles in own])
    limits, null_height = null_limits(noise, known, noise_energies(square, own), linkage, error_rate, rng)
    cuts = _cuts(rescaled, tree, limits, reference, linkage, rng)
    chosen = _finest_reproducible(cuts)
    threshold = _level(tree, chosen.n_clusters, limits * reference)
    done, undone = _around(tree, chosen.n_clusters)
    finding = _finding(cuts, chosen)
    labels = cut(tree, threshold)
    doubts = [
        *caveats,
        *doubts_about_clients(known),
        *doubts_about_signatures(noise, measure, signatures),
        *doubts_about_noise(rescaled / reference, labels, limits[0] / max(null_height, RESOLUTION)),
    ]
    doubt = "; ".join(doubts) or None
    evidence = Evidence(
        finding=finding,
        reasons=_reasons(finding, cuts, chosen, limits, error_rate, doubt, len(square)),
        error_rate=error_rate,
        floor=reference,
        floors_from="clients" if known.any() else "neighbours",
        guaranteed=doubt is None,
        not_guaranteed_because=doubt,
        null_height=null_height,
        null_limits=tuple(float(limit) for limit in limits),
        heights=tuple(float(h) for h in tree[::-1, 2][:10] / reference),
        separation=None if done is None or undone is None or done == 0 else undone / done,
        reproducibility=chosen.reproducibility if len(square) >= FEWEST else None,
        cuts=tuple(cuts),
    )
    return Choice(threshold, labels, evidence)


def _cuts(
    rescaled: Array, tree: Array, limits: Array, reference: float, linkage: Linkage, rng: np.random.Generator
) -> list[Cut]:
    """The cuts that undo no merge below the lowest one beyond its limit, coarsest first."""
    heights = tree[::-1, 2]
    beyond = np.flatnonzero(heights / reference > limits[size_classes(tree)[::-1]])
    last = int(beyond[-1]) + 2 if len(beyond) else 1
    # Merges at equal heights are done or undone together
    numbers = [k for k in range(2, last + 1) if k - 1 == len(heights) or heights[k - 2] > heights[k - 1] * (1 + 1e-12)]
    scores = reproducibility(rescaled, tree, [_level(tree, k, limits * reference) for k in numbers], linkage, rng)
    cuts = [Cut(k, float(heights[k - 2] / reference), score) for k, score in zip(numbers, scores, strict=True)]
    return cuts or [Cut(1, None, 1.0)]


def _finest_reproducible(cuts: list[Cut]) -> Cut:
    stable = [c for c in cuts if c.reproducibility >= REPRODUCIBLE]
    return stable[-1] if stable else max(cuts, key=lambda c: c.reproducibility)


def _level(tree: Array, n_clusters: int, limits: Array) -> float:
    """A level that leaves n_clusters: the limit for single clients, or the middle of the gap where that is lower."""
    done, undone = _around(tree, n_clusters)
    low, high = (0.0 if done is None else done), (np.inf if undone is None else undone)
    middle = np.sqrt(low * high) if low > 0 and high < np.inf else (low + high) / 2
    return float(min(limits[0], middle) if limits[0] >= low else middle)


def _around(tree: Array, n_clusters: int) -> tuple[float | None, float | None]:
    """Heights of the highest merge that is done and the lowest that is undone when n_clusters are left."""
    heights = tree[::-1, 2]
    done = float(heights[n_clusters - 1]) if n_clusters - 1 < len(heights) else None
    return done, float(heights[n_clusters - 2]) if n_clusters >= 2 else None


def _finding(cuts: list[Cut], chosen: Cut) -> Finding:
    if chosen.n_clusters == 1:
        return "homogeneous"
    return "distinct" if chosen is cuts[-1] and chosen.reproducibility >= REPRODUCIBLE else "gradual"


def _reasons(
    finding: Finding, cuts: list[Cut], chosen: Cut, limits: Array, error_rate: float, doubt: str | None, n: int
) -> str:
    """The evidence in a few sentences."""
    by_chance = (
        f"clients of one distribution would merge below {limits[0]:.2f} times the noise, large groups of them below "
        f"{limits[-1]:.2f}, in all but {error_rate:.1%} of cases"
    )
    claim = "" if doubt is None else f" This error rate is not guaranteed: {doubt}."
    if finding == "homogeneous":
        return f"One cluster: {by_chance}, and all do.{claim}"
    apart = f"{chosen.n_clusters} clusters: {by_chance}; these stay apart up to {chosen.height:.2f}"
    share = chosen.reproducibility
    overlap = "completely" if share == 1 else f"with a mean overlap of {share:.1%} or more"
    reproduced = f"random halves of the clients reproduce each of them {overlap}"
    if n < FEWEST:
        reproduced = f"{n} clients are too few to see whether halves of them give the same"
    if finding == "distinct":
        return f"{apart}, and {reproduced}.{claim}"
    return (
        f"{apart}, and {reproduced}. Differences are gradual down to {cuts[-1].n_clusters} clusters, "
        "but finer cuts are not reproducible. Angles do not say how many clusters learn best here: "
        f"compare with fewer.{claim}"
    )
