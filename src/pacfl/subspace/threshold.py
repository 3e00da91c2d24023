"""The threshold chosen from the clients' own sampling noise, with the evidence for it.

Angles are put in units of noise: 1 is what two samples of the same client show (`noise_scale`, `rescale_by_noise`).
Homogeneous federations are then simulated, with the same number of clients, the same noise and the same linkage. Their
merges are at heights that sampling alone explains (`null_limits`); merges above these are differences. Chance explains
less for larger groups: their merges have lower limits. Where differences are gradual, without a gap, as with clients
that mix classes, the finest cut is not reproducible. Then the finest reproducible one is taken (`reproducibility`).
Clients whose noise is as large as a difference could be are not compared: they join nobody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.guarantee import (
    TOO_FEW,
    doubts_about_clients,
    doubts_about_noise,
    doubts_about_signatures,
    noise_obstacle,
    random_angle,
    shape_of,
    too_noisy,
)
from pacfl.subspace.hierarchy import Labels, Linkage, check_proximity, condensed_merges, cut
from pacfl.subspace.noise_scale import (
    RESOLUTION,
    check_split_half_angles,
    condensed_by_noise,
    noise_scale,
    reference_scale,
    rescale_by_noise,
)
from pacfl.subspace.null import noise_energies, null_limits, size_classes
from pacfl.subspace.proximity import Measure, Signatures
from pacfl.subspace.stability import FEWEST, reproducibility

Array = NDArray[np.float64]
Finding = Literal["homogeneous", "distinct", "gradual", "undetermined"]

ERROR_RATE: Final = 0.001  # share of homogeneous federations that may be split
REPRODUCIBLE: Final = 0.85  # from which Hennig calls a cluster highly stable (fpc, clusterboot)
MOST_CUTS: Final = 100  # whose reproducibility is measured


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
    random_angle: float | None = None  # degrees between signatures with nothing in common; None if not known
    smallest_difference: float | None = None  # degrees: what a single client must differ by to be separated
    columns: Mapping[str, Any] | None = None  # of tables: what separates clients beside the rest; None: not compared


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

    proximity (n, n) degrees, split_half_angles n × (splits,) degrees, empty for a client that has none: it joins nobody
    (label -1). If no client has any, angles to nearest neighbours are used instead, which assumes that every client has
    another of its own distribution.

    signatures n × (features, p): only their shapes are used, with the measure, to find out who is too noisy to be
    compared, and whether the error rate is guaranteed; without them it is not. caveats: what the caller knows that
    speaks against a guarantee.

    labels == agglomerate(rescale_by_noise(proximity, noise, floor, random_angle), threshold, linkage) of the clients
    that are compared, with floor and random_angle of the evidence.
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
    known = np.array([len(angles) > 0 for angles in own])
    shape = shape_of(signatures) if known.any() else None
    farthest = None if shape is None else random_angle(*shape, measure)
    rng = np.random.default_rng(seed)

    def null_of(clients: NDArray[np.intp]) -> tuple[Array, float]:
        energies = noise_energies(square, [own[i] for i in clients])
        return null_limits(noise[clients], bool(known.any()), energies, linkage, error_rate, rng)

    compared = np.flatnonzero(known) if known.any() else np.arange(len(square))
    if farthest is not None and (noise[compared] < farthest).any():
        compared = compared[noise[compared] < farthest]  # others know nothing, and are no measure for what is typical
    limits, null_height = null_of(compared)
    noisy = too_noisy(noise[compared], reference_scale(noise[compared]), limits[0], farthest)
    if noisy.any() and len(square) > 1:
        compared = compared[~noisy]
        limits, null_height = null_of(compared) if len(compared) else (limits, null_height)
    not_judged = {
        str(i): noise_obstacle(float(noise[i]), farthest) if known[i] else TOO_FEW
        for i in np.setdiff1d(np.arange(len(square)), compared).tolist()
    }
    reference = reference_scale(noise[compared] if len(compared) else noise)
    if not len(compared):
        reasons = f"No client can be compared with others: {not_judged['0']}."
        nothing = Evidence(
            "undetermined", reasons, error_rate, reference, "clients", False, "no client can be compared", null_height,
            tuple(limits.tolist()), (), None, None, (), not_judged=not_judged, random_angle=farthest,
        )  # fmt: skip
        return Choice(float(limits[0]) * reference, np.full(len(square), -1, dtype=np.intp), nothing)
    if len(compared) < len(square):
        square, noise = square[np.ix_(compared, compared)], noise[compared]
    rescaled = condensed_by_noise(square, noise, reference, farthest)
    tree = condensed_merges(rescaled, linkage)

    def distances(clients: NDArray[np.intp]) -> Array:
        return rescale_by_noise(square[np.ix_(clients, clients)], noise[clients], reference, farthest)

    cuts = _cuts(distances, tree, limits, reference, linkage, rng)
    chosen = _finest_reproducible(cuts)
    threshold = _level(tree, chosen.n_clusters, limits * reference)
    done, undone = _around(tree, chosen.n_clusters)
    finding = _finding(cuts, chosen)
    labels = np.full(len(own), -1, dtype=np.intp)
    labels[compared] = cut(tree, threshold)
    rescaled /= reference
    share = 0.0 if farthest is None else float(noise.max()) / farthest
    doubts = [
        *caveats,
        *doubts_about_clients(known[compared]),
        *doubts_about_signatures(signatures),
        *doubts_about_noise(rescaled, labels[compared], limits[0] / max(null_height, RESOLUTION), share),
    ]
    doubt = "; ".join(doubts) or None
    evidence = Evidence(
        finding=finding,
        reasons=_reasons(finding, cuts, chosen, limits, error_rate, doubt, len(square), reference)
        + _left(len(not_judged)),
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
        not_judged=not_judged,
        random_angle=farthest,
        smallest_difference=float(limits[0]) * reference,
    )
    return Choice(threshold, labels, evidence)


def _cuts(
    distances: Callable[[NDArray[np.intp]], Array],
    tree: Array,
    limits: Array,
    reference: float,
    linkage: Linkage,
    rng: np.random.Generator,
) -> list[Cut]:
    """The cuts that undo no merge below the lowest one beyond its limit, coarsest first."""
    heights = tree[::-1, 2]
    beyond = np.flatnonzero(heights / reference > limits[size_classes(tree)[::-1]])
    last = int(beyond[-1]) + 2 if len(beyond) else 1
    # Merges at equal heights are done or undone together
    numbers = [k for k in range(2, last + 1) if k - 1 == len(heights) or heights[k - 2] > heights[k - 1] * (1 + 1e-12)]
    if len(numbers) > MOST_CUTS:
        spaced = np.geomspace(1, len(numbers), MOST_CUTS).round().astype(int) - 1
        numbers = [numbers[i] for i in np.unique(spaced)]
    scores = reproducibility(distances, tree, [_level(tree, k, limits * reference) for k in numbers], linkage, rng)
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


def _left(not_judged: int) -> str:
    return "" if not not_judged else f" {not_judged} cannot be judged and joined nobody."


def _reasons(
    finding: Finding,
    cuts: list[Cut],
    chosen: Cut,
    limits: Array,
    error_rate: float,
    doubt: str | None,
    n: int,
    reference: float,
) -> str:
    """The evidence in a few sentences."""
    if n == 1:
        return (
            "One cluster: there is one client. Newcomers are compared with it by their inputs; to compare classes too, "
            "cluster two clients or more."
        )
    who = "two clients" if n == 2 else "clients"
    groups = f", large groups of them below {limits[-1]:.2f}" if len(limits) > 1 else ""
    by_chance = (
        f"{who} of one distribution would merge below {limits[0]:.2f} times the noise ({limits[0] * reference:.3g}°)"
        f"{groups}, in all but {100 * error_rate:g}% of cases"
    )
    claim = "" if doubt is None else f" This error rate is not guaranteed: {doubt}."
    if finding == "homogeneous":
        return f"One cluster: {by_chance}, and all do. Smaller differences than that are not seen.{claim}"
    apart = f"{chosen.n_clusters} clusters: {by_chance}; these stay apart up to {chosen.height:.2f}"
    share = chosen.reproducibility
    overlap = "completely" if share == 1 else f"with a mean overlap of {share:.1%} or more"
    reproduced = f", and random halves of the clients reproduce each of them {overlap}"
    if n < FEWEST:
        reproduced = "" if n < 4 else f"; {n} clients are too few to see whether halves of them give the same"
    if finding == "distinct":
        return f"{apart}{reproduced}.{claim}"
    return (
        f"{apart}{reproduced}. Differences are gradual down to {cuts[-1].n_clusters} clusters, "
        "but finer cuts are not reproducible. Angles do not say how many clusters learn best here: "
        f"compare with fewer.{claim}"
    )
