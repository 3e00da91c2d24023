"""What kind of difference there is between clients, how large it is, and what to do about it.

Clusters that differ in p(x | y) must learn apart. If giving B's classes other names takes the difference from A away,
both have the same inputs and label them differently: `concept`. Otherwise the `inputs` differ. Within a cluster, class
shares may differ (`labels`), which a corrected prior makes up for, or sizes (`quantity`), which averages weigh already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.classes import ClassSignatures, no_classes
from pacfl.subspace.clustering import Clustering
from pacfl.subspace.columns import ColumnAngles, ColumnDifference, largest_column_differences, pooled
from pacfl.subspace.noise_scale import reference_scale, rescale_by_noise
from pacfl.subspace.pairs import ClassNoise, class_noise, compare_classes
from pacfl.subspace.pooled import Matching, PooledClasses, Relabelling, match_classes, pool
from pacfl.subspace.shares import Spread, count_table, share_spread, size_spread
from pacfl.subspace.together import ClientSignature

Array = NDArray[np.float64]
Kind = Literal["none", "inputs", "labels", "concept", "quantity"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Recommendation = Literal["together", "label-prior", "apart"]

FIRST: Final[tuple[Kind, ...]] = ("concept", "inputs", "labels", "quantity", "none")  # the one that is named
RECOMMENDED: Final[dict[Kind, Recommendation]] = {
    "none": "together",
    "quantity": "together",
    "labels": "label-prior",
    "inputs": "apart",
    "concept": "apart",
}
# Share of a difference that other names of classes have to explain. On federations made for it, label maps had 0.98 or
# more of their difference explained, rotations and other changes of inputs 0.65 or less.
EXPLAINED: Final = 0.8
MOST_PAIRS: Final = 2_000  # of clusters that are all diagnosed; of more, each cluster with its nearest other
REMAINS: Final = 0.1  # share of it that may be left beside a concept before inputs are said to differ as well


@dataclass(frozen=True)
class Difference:
    """One kind of difference that was found."""

    kind: Kind
    size: float  # in units of noise: 1 is what chance shows
    words: str


@dataclass(frozen=True)
class PairDiagnosis:
    """How two clusters differ."""

    clusters: tuple[int, int]
    kind: Kind
    size: float
    recommendation: Recommendation
    differences: tuple[Difference, ...]  # the kind that is named first
    relabelled: tuple[Relabelling, ...]


@dataclass(frozen=True)
class Diagnosis:
    """How the clients of a federation differ, and what to do about it."""

    kind: Kind
    size: float
    recommendation: Recommendation  # between clusters
    within_clusters: Recommendation  # for the clients of one cluster
    differences: tuple[Difference, ...]  # the kind that is named first
    pairs: tuple[PairDiagnosis, ...]  # all; of more than 63 clusters each with its nearest other
    n_effective: float  # clients of equal size that would count as much
    words: str

    def as_json(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class ClassEvidence:
    """Signatures of classes and their noise, from which all parts of a diagnosis start."""

    classes: Sequence[ClassSignatures]
    noise: ClassNoise
    calibration: float
    clustering: Clustering
    sizes: Array | None  # (n,) samples of each client, also of classes without a signature
    columns: Sequence[ColumnAngles] | None = None  # of tables, if they were compared
    pools: dict[bytes, PooledClasses] = field(default_factory=dict)  # of groups of clients that were asked for

    @property
    def counted(self) -> bool:
        """Whether counts are those of samples: in private signatures they have noise."""
        return not any(own.private for own in self.classes)

    @property
    def n_clusters(self) -> int:
        """How many clusters there are."""
        return len(self.clustering.numbers)

    def rows(self, cluster: int) -> NDArray[np.intp]:
        """The clients of a cluster."""
        return np.flatnonzero(self.clustering.labels == cluster)

    def pooled(self, rows: NDArray[np.intp]) -> PooledClasses:
        """The classes of some clients together."""
        key = rows.tobytes()
        if key not in self.pools:
            self.pools[key] = pool(self.classes, self.noise, rows, self.calibration)
        return self.pools[key]

    def column_differences(self, a: NDArray[np.intp], b: NDArray[np.intp]) -> list[ColumnDifference]:
        """Of every column of two groups of clients, largest first; none where columns were not compared."""
        sides = self.pooled_columns(a), self.pooled_columns(b)
        return [] if sides[0] is None or sides[1] is None else largest_column_differences(sides[0], sides[1])

    def pooled_columns(self, rows: NDArray[np.intp]) -> ColumnAngles | None:
        """The columns of some clients together, where columns were compared."""
        return None if self.columns is None else pooled([self.columns[i] for i in rows.tolist()])


def diagnose(
    clients: Sequence[ClientSignature], clustering: Clustering, sizes: Sequence[int] | None = None
) -> Diagnosis:
    """The kind of difference between clients and between each two of their clusters.

    sizes (n,): samples of each client. Without them, sizes are sums over the classes that were compared.
    """
    evidence = evidence_on(clients, clustering, sizes)
    table = count_table(evidence.classes)
    n_clusters = evidence.n_clusters
    pairs = tuple(diagnose_pair(evidence, a, b) for a, b in cluster_pairs(evidence))
    differences = _between(pairs)
    # clients in no cluster have few samples, which is a difference of its own: they have a part in the sizes only
    rows = [evidence.rows(k) for k in clustering.numbers]
    known = evidence.sizes
    found, unequal, n_effective = Spread(1.0, False), None, float(len(clients))
    if evidence.counted:
        found = share_spread([table[own] for own in rows], None if known is None else [known[own] for own in rows])
        unequal, n_effective = _sizes(table, sizes)
    if found.beyond_chance:
        where = "in clusters " if n_clusters > 1 else ""
        words = f"Class shares of clients {where}differ by {found.size:.1f} times the noise."
        differences.append(Difference("labels", found.size, words))
    if unequal is not None:
        few = f"they count as {n_effective:.1f} clients of equal size"
        differences.append(
            Difference("quantity", unequal, f"The {len(clients)} clients have very unequal sizes: {few}.")
        )
    nothing = "Clients differ by no more than noise." if n_clusters else "No client can be judged."
    if n_clusters and len(clients) == 1:
        nothing = "There is one client."
    differences = _ordered(differences) or [Difference("none", 1.0, nothing)]
    kind = differences[0].kind
    return Diagnosis(
        kind=kind,
        size=differences[0].size,
        recommendation=RECOMMENDED[kind],
        within_clusters="label-prior" if found.beyond_chance else "together",
        differences=tuple(differences),
        pairs=pairs,
        n_effective=n_effective,
        words=_in_words(differences, found.beyond_chance, n_clusters, bool(table.any()), evidence.counted),
    )


def evidence_on(
    clients: Sequence[ClientSignature], clustering: Clustering, sizes: Sequence[int] | None = None
) -> ClassEvidence:
    """What is known of the classes of clients; checks that the clustering is of these clients."""
    if sizes is not None and len(sizes) != len(clients):
        raise ValueError(f"sizes must be one number for each of {len(clients)} clients, got {len(sizes)}")
    if len(clients) != len(clustering.labels):
        raise ValueError(
            f"the clustering has {len(clustering.labels)} clients, {len(clients)} were given; "
            "give the clients of which it was made, in the same order"
        )
    features = len(clients[0].basis) if len(clients) else 0
    classes = [no_classes(features) if client.classes is None else client.classes for client in clients]
    known = clustering.classes
    # Of all directions: clusters may have been found by some of them
    noise = class_noise(classes, labels=None if known is None else known.labels)
    calibration = 1.0 if known is None else known.calibration
    samples = None if sizes is None else np.asarray(sizes, dtype=np.float64)
    if samples is not None:
        counted = count_table(classes).sum(axis=1)
        for i in np.flatnonzero(counted > samples)[:1].tolist():
            raise ValueError(f"client {i} has {counted[i]:.0f} samples in its classes, and a size of {samples[i]:.0f}")
    columns = [client.columns for client in clients if client.columns is not None]
    compared = bool(clustering.evidence.get("columns")) and len(columns) == len(clients)
    return ClassEvidence(classes, noise, calibration, clustering, samples, columns if compared else None)


def matching_of(evidence: ClassEvidence, a: NDArray[np.intp], b: NDArray[np.intp]) -> Matching | None:
    """The classes of two groups of clients, matched; None if they share none."""
    return match_classes(evidence.pooled(a), evidence.pooled(b), evidence.noise.dimensions)


def cluster_pairs(evidence: ClassEvidence, most: int = MOST_PAIRS) -> Iterator[tuple[int, int]]:
    """All pairs of clusters; if there are more than `most`, each cluster with its nearest other."""
    k = evidence.n_clusters
    if k * (k - 1) // 2 <= most:
        return combinations(evidence.clustering.numbers, 2)
    distances, number = _cluster_distances(evidence), evidence.clustering.numbers
    np.fill_diagonal(distances, np.inf)
    near = {(min(a, b), max(a, b)) for a, b in enumerate(distances.argmin(axis=1).tolist())}
    return iter(sorted((number[a], number[b]) for a, b in near))


def _cluster_distances(evidence: ClassEvidence) -> Array:
    """`distance_between` of all clusters at once: (k, k)."""
    clustering = evidence.clustering
    member = np.equal.outer(clustering.labels, clustering.numbers).astype(np.float64)
    by_inputs = member.T @ _input_ratios(clustering) ** 2 @ member
    distances = np.sqrt(by_inputs / np.outer(member.sum(axis=0), member.sum(axis=0)))
    known = clustering.classes
    pairs = compare_classes(evidence.classes, evidence.noise) if known is None else known.pairs
    squares, weights = (member.T @ part @ member for part in (pairs.squares, pairs.weights))
    return np.where(weights > 0, np.sqrt(squares / np.where(weights > 0, weights, 1.0)), distances)


def diagnose_pair(evidence: ClassEvidence, a: int, b: int) -> PairDiagnosis:
    """How two clusters differ."""
    rows_a, rows_b = evidence.rows(a), evidence.rows(b)
    kinds, relabelled, size = difference_of(evidence, rows_a, rows_b)
    differences = [Difference(kind, size, _pair_words(kind, size, a, b, relabelled)) for kind in kinds]
    if len(evidence.noise.names) and not _share_a_class(evidence, rows_a, rows_b):
        shared = " They share no class: which part of it is due to their classes cannot be seen."
        differences = [replace(differences[0], words=differences[0].words + shared)]
    if not differences:
        differences = [_without_other_classes(evidence, a, b, size)]
    first = differences[0]
    return PairDiagnosis((a, b), first.kind, first.size, RECOMMENDED[first.kind], tuple(differences), relabelled)


def _without_other_classes(evidence: ClassEvidence, a: int, b: int, size: float) -> Difference:
    """Why two clusters whose pooled classes agree were separated."""
    clustering = evidence.clustering
    kind: Kind = "inputs"
    if clustering.classes is None or clustering.evidence["finding"] == "given":
        both = np.flatnonzero(np.isin(clustering.labels, (a, b)))
        by_shares = _share_spread(evidence, both)
        if by_shares.beyond_chance:
            return Difference("labels", by_shares.size, _pair_words("labels", by_shares.size, a, b, ()))
        kind = "none" if clustering.evidence["finding"] == "given" else "inputs"
    return Difference(kind, size, _pair_words(kind, size, a, b, ()))


def between_groups(
    evidence: ClassEvidence, a: NDArray[np.intp], b: NDArray[np.intp]
) -> tuple[Kind, float, tuple[Relabelling, ...]]:
    """The main kind of difference between two groups of clients, its size, and relabelled classes."""
    kinds, relabelled, size = difference_of(evidence, a, b)
    if kinds:
        return kinds[0], size, relabelled
    by_shares = _share_spread(evidence, np.concatenate([a, b]))
    return ("labels", by_shares.size, ()) if by_shares.beyond_chance else ("none", size, ())


def _share_spread(evidence: ClassEvidence, rows: NDArray[np.intp]) -> Spread:
    """How far the class shares of some clients differ; not at all as far as private counts show."""
    if not evidence.counted:
        return Spread(1.0, False)
    table = count_table([evidence.classes[i] for i in rows.tolist()])
    return share_spread([table], None if evidence.sizes is None else [evidence.sizes[rows]])


def difference_of(
    evidence: ClassEvidence, a: NDArray[np.intp], b: NDArray[np.intp]
) -> tuple[list[Kind], tuple[Relabelling, ...], float]:
    """Kinds in which p(x | y) of two groups of clients differs, the main one first; relabelled classes; the size.

    Without common classes, only their inputs can be compared.
    """
    matching, size = matching_of(evidence, a, b), distance_between(evidence, a, b)
    columns = evidence.column_differences(a, b)
    if columns and columns[0].size > evidence.clustering.evidence["columns"]["limit"]:
        size = max(size, columns[0].size)
        if matching is None or matching.difference <= matching.limit:
            return ["inputs"], (), size
    if matching is None:
        return ["inputs"], (), size
    if matching.difference <= matching.limit:
        # classes agree, but inputs were separated: by class shares, unless these agree too
        return [], (), size
    if matching.explained < EXPLAINED:
        return ["inputs"], (), size
    also = matching.residual > matching.limit and 1 - matching.explained > REMAINS
    return ["concept", "inputs"] if also else ["concept"], matching.relabelled, size


def distance_between(evidence: ClassEvidence, a: NDArray[np.intp], b: NDArray[np.intp]) -> float:
    """Of two groups of clients, in units of noise: by classes that they share, by inputs if there are none."""
    if _share_a_class(evidence, a, b):
        return _size_by_classes(evidence, a, b)
    return _size_by_inputs(evidence.clustering, a, b)


def _share_a_class(evidence: ClassEvidence, a: NDArray[np.intp], b: NDArray[np.intp]) -> bool:
    known = np.isfinite(evidence.noise.variances)
    return bool((known[a].any(axis=0) & known[b].any(axis=0)).any())


def _size_by_classes(evidence: ClassEvidence, a: NDArray[np.intp], b: NDArray[np.intp]) -> float:
    """Root mean squared difference of pairs of clients, weighted by their evidence, in units of noise."""
    known = evidence.clustering.classes
    if known is None:
        rows = [*a, *b]
        pairs = compare_classes([evidence.classes[i] for i in rows], evidence.noise.subset(np.array(rows)))
        block = np.ix_(np.arange(len(a)), np.arange(len(a), len(rows)))
    else:
        pairs, block = known.pairs, np.ix_(a, b)
    weight = pairs.weights[block].sum()
    return float(np.sqrt(pairs.squares[block].sum() / weight)) if weight > 0 else 1.0


def _size_by_inputs(clustering: Clustering, a: NDArray[np.intp], b: NDArray[np.intp]) -> float:
    """Root mean squared angle between the inputs of pairs of clients, in units of noise."""
    noise = clustering.noise_scale
    expected = (noise[a, None] ** 2 + noise[b] ** 2) / 2
    return float(np.sqrt((clustering.proximity[np.ix_(a, b)] ** 2 / expected).mean()))


def _input_ratios(clustering: Clustering) -> Array:
    """Angles between the inputs of all clients, in units of noise."""
    reference = reference_scale(clustering.noise_scale)
    return rescale_by_noise(clustering.proximity, clustering.noise_scale, reference) / reference


def _between(pairs: Sequence[PairDiagnosis]) -> list[Difference]:
    """Of all pairs of clusters: each kind with the size of its largest difference, the most common kind first."""
    found = []
    for kind in FIRST[:-1]:
        sizes = [(one.size, pair.clusters) for pair in pairs for one in pair.differences if one.kind == kind]
        if sizes:
            size, (a, b) = max(sizes)
            many = f"{len(sizes)} of {len(pairs)} pairs of clusters differ"
            words = f"{many} in {_NAMES[kind]}, clusters {a} and {b} most: by {size:.1f} times the noise."
            if len(pairs) == 1:
                words = next(one.words for one in pairs[0].differences if one.kind == kind)
            found.append((sum(pair.kind == kind for pair in pairs), Difference(kind, size, words)))
    return [one for _, one in sorted(found, key=lambda entry: -entry[0])]


def _ordered(differences: list[Difference]) -> list[Difference]:
    """What separates clusters first, in its order; then shares, then sizes, each kind once."""
    order: list[Kind] = [f.kind for f in differences if f.kind in ("concept", "inputs")]
    order += ["labels", "quantity"]
    of_kind = [[f for f in differences if f.kind == kind] for kind in dict.fromkeys(order)]
    return [max(found, key=lambda f: f.size) for found in of_kind if found]


def _sizes(table: Array, sizes: Sequence[int] | None) -> tuple[float | None, float]:
    """The size of the difference if sizes are very unequal, and the effective number of clients."""
    if sizes is not None:
        spread, n_effective = size_spread(np.asarray(sizes, dtype=np.float64))
    elif not table.any():
        return None, float(len(table))
    else:
        spread, n_effective = size_spread(table.sum(axis=1), table)
    return spread.size if spread.beyond_chance else None, n_effective


_NAMES: Final[dict[Kind, str]] = {
    "concept": "how they label the same inputs",
    "inputs": "their inputs",
    "labels": "their class shares only",
}


def _pair_words(kind: Kind, size: float, a: int, b: int, relabelled: Sequence[Relabelling]) -> str:
    if kind == "none":
        return f"Clusters {a} and {b} differ by no more than noise."
    words = f"Clusters {a} and {b} differ in {_NAMES[kind]}, by {size:.1f} times the noise."
    if kind == "concept" and relabelled:
        words += " " + relabelled_words(relabelled, f"cluster {a}", f"cluster {b}")
    return words


def relabelled_words(relabelled: Sequence[Relabelling], a: str, b: str, most: int = 5) -> str:
    """'What A labels 3, B labels 8' for the largest differences."""
    largest = sorted(relabelled, key=lambda one: -one.size)
    words = "; ".join(f"what {a} labels {one.a}, {b} labels {one.b}" for one in largest[:most])
    more = f"; and {len(largest) - most} more" if len(largest) > most else ""
    return f"{words[0].upper()}{words[1:]}{more}."


def _in_words(differences: Sequence[Difference], prior: bool, n_clusters: int, labelled: bool, counted: bool) -> str:
    needed = "" if labelled else " Only inputs were compared: labels are needed to see whether labels differ."
    needed += "" if counted else " Counts are private: class shares and sizes were not compared."
    said = " ".join(one.words for one in differences)
    if not n_clusters:
        return said + needed
    advice = {
        "apart": "Let each cluster learn a model of its own",
        "label-prior": "Let all learn one model, and correct its prior for each client's class shares",
        "together": "Let all learn one model",
    }[RECOMMENDED[differences[0].kind]]
    if prior and RECOMMENDED[differences[0].kind] == "apart":
        advice += ", and correct its prior for each client's class shares"
    return f"{said} {advice}.{needed}"
