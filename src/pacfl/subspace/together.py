"""Who should learn together: clients compared class by class where they share classes, by their inputs where not.

Classes decide among clients that chains of shared classes connect. A pair of them without a common class carries no
evidence. Between groups of clients that no chain connects, and for clients without labels, only inputs can say.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pacfl.subspace.across import across, placed_across, without_small_groups
from pacfl.subspace.class_clustering import ClassClusters, assign_by_classes, cluster_classes
from pacfl.subspace.class_evidence import class_evidence, compared
from pacfl.subspace.classes import FEWEST, ClassSignatures, no_classes
from pacfl.subspace.clustering import Clustering, InputsCut, assign_newcomers, cluster
from pacfl.subspace.columns import FEWEST as FEWEST_ROWS
from pacfl.subspace.columns import (
    ColumnAngles,
    ColumnClusters,
    assign_by_columns,
    cluster_columns,
    differs_from,
    n_comparisons,
)
from pacfl.subspace.hierarchy import Labels, Linkage, in_order_of_appearance
from pacfl.subspace.newcomers import MergeSuggestion
from pacfl.subspace.proximity import Measure, proximity
from pacfl.subspace.threshold import ERROR_RATE
from pacfl.subspace.units import FEWEST_UNITS

Compare = Literal["auto", "inputs", "classes"]
COMPARES: Final[tuple[Compare, ...]] = get_args(Compare)
NO_COLUMNS: Final = f"no class of its table has {FEWEST_ROWS} samples; sign more samples"


@dataclass(frozen=True, eq=False)
class ClientSignature:
    """What one client sends to be compared."""

    basis: NDArray[Any]  # (features, directions) of all its data, orthonormal
    split_half_angles: NDArray[Any]  # (splits,) degrees by the measure; empty if there are none
    classes: ClassSignatures | None = None  # of its labelled classes; None without labels
    columns: ColumnAngles | None = None  # of a table whose columns have an agreed centre and scale


def cluster_clients(
    clients: Sequence[ClientSignature],
    compare: Compare = "auto",
    measure: Measure = "smallest",
    linkage: Linkage = "average",
    threshold: float | None = None,
    n_clusters: int | None = None,
    *,
    caveats: Sequence[str] = (),
    on_rows: Callable[[int], object] | None = None,
) -> Clustering:
    """The clusters of clients.

    compare: `classes` compares the same classes of clients, `inputs` all their data, as the paper does. `auto` compares
    classes where clients share some. A threshold in degrees, and linkages other than average, compare inputs, and so
    does a number of clusters where no chain of shared classes connects all that have some. Columns of tables are
    compared too, unless inputs alone are, and divide clusters further; then both have half of the error rate.
    """
    columns = [client.columns for client in clients if client.columns is not None]
    given = threshold is not None or n_clusters is not None
    if compare == "inputs" or linkage != "average" or given or len(columns) < len(clients):
        return _clustered(clients, compare, measure, linkage, threshold, n_clusters, ERROR_RATE, caveats, on_rows)
    found = _clustered(clients, compare, measure, linkage, None, None, ERROR_RATE / 2, caveats, on_rows)
    start = found.labels if found.labels.max() > 0 else np.zeros_like(found.labels)
    return _divided(found, columns, cluster_columns(columns, ERROR_RATE / 2, start))


def _clustered(
    clients: Sequence[ClientSignature],
    compare: Compare,
    measure: Measure,
    linkage: Linkage,
    threshold: float | None,
    n_clusters: int | None,
    error_rate: float,
    caveats: Sequence[str],
    on_rows: Callable[[int], object] | None,
) -> Clustering:
    """The clusters of clients by their classes and inputs."""
    bases = [client.basis for client in clients]
    between = proximity(bases, measure, on_rows)
    own = [client.split_half_angles for client in clients]
    by_inputs = _by_inputs(clients, compare, linkage, threshold, n_clusters)
    inputs = cluster(
        between,
        own,
        measure,
        linkage,
        threshold,
        n_clusters if by_inputs else None,
        signatures=bases,
        caveats=caveats,
        error_rate=error_rate,
    )
    if by_inputs:
        return inputs
    classes = cluster_classes([_classes(client) for client in clients], error_rate, n_clusters=n_clusters)
    groups = _compared_groups(classes, clients)
    also_inputs = compare == "auto" and n_clusters is None
    if also_inputs:
        labels = across(classes.labels, groups, inputs.labels)
    else:
        labels = classes.labels if n_clusters else without_small_groups(classes.labels, _connected(clients), groups)
    reference = classes.reference
    not_judged = {str(i): obstacle(clients[i]) for i in np.flatnonzero(labels < 0).tolist()}
    return replace(
        inputs,
        reference_scale=reference,
        threshold=float(classes.limits[0]) * reference if np.isfinite(classes.limits[0]) else reference,
        labels=labels,
        evidence=class_evidence(
            classes, labels, groups, not_judged, n_clusters, caveats, inputs if also_inputs else None, error_rate
        ),
        classes=replace(classes, labels=labels),
        inputs=InputsCut(inputs.threshold, inputs.reference_scale, inputs.labels) if also_inputs else None,
    )


def _divided(found: Clustering, columns: Sequence[ColumnAngles], by_columns: ColumnClusters) -> Clustering:
    """The clusters that columns divide further. Clients that nothing else places are in clusters by their columns."""
    former = found.labels if found.labels.max() > 0 else np.zeros_like(found.labels)
    labels = assign_by_columns(columns, _with_former(by_columns.labels, former), ERROR_RATE / 2)
    evidence = dict(found.evidence)
    n_clusters = int(labels.max(initial=-1)) + 1
    if by_columns.separating:
        evidence["finding"] = "distinct"
    elif evidence["finding"] == "undetermined" and n_clusters == 1:
        evidence["finding"] = "homogeneous"
    why = evidence["not_judged"] or {}
    evidence["not_judged"] = {str(i): why.get(str(i), NO_COLUMNS) for i in np.flatnonzero(labels < 0).tolist()}
    evidence["error_rate"] = ERROR_RATE
    evidence["columns"] = {
        "limit": by_columns.limit,
        "comparisons": n_comparisons(columns),
        "separating": [asdict(one) for one in by_columns.separating],
    }
    sizes = ", ".join(f"{one.size:.1f}" for one in by_columns.separating)
    by_size = f"separate clusters: they differ by {sizes} times the noise" if sizes else "divide no cluster further"
    evidence["reasons"] = (
        f"{n_clusters} cluster{'' if n_clusters == 1 else 's'}. Columns {by_size}; of two clients of one distribution "
        f"some column would differ by {by_columns.limit:.1f} times in {ERROR_RATE / 2:.2%} of cases. By all columns "
        f"together: {evidence['reasons']}"
    )
    classes = None if found.classes is None else replace(found.classes, labels=labels)
    return replace(found, labels=labels, evidence=evidence, classes=classes)


def _with_former(labels: Labels, former: Labels) -> Labels:
    """Clients whose columns carry no evidence stay in their former clusters, unless columns divided these."""
    placed = labels.copy()
    for k in np.unique(former[(labels < 0) & (former >= 0)]):
        mates = np.unique(labels[(former == k) & (labels >= 0)])
        if len(mates) < 2:
            placed[(former == k) & (labels < 0)] = mates[0] if len(mates) else placed.max() + 1
    known = placed >= 0
    placed[known] = in_order_of_appearance(placed[known])
    return placed


def assign(
    clustering: Clustering, old: Sequence[ClientSignature], new: Sequence[ClientSignature]
) -> tuple[Clustering, tuple[MergeSuggestion, ...]]:
    """The clustering with newcomers in it, and the merges of old clusters that they suggest. No other client moves."""
    placed, suggestions = _assigned(clustering, old, new)
    if not clustering.evidence.get("columns"):
        return placed, suggestions
    columns = [client.columns for client in (*old, *new) if client.columns is not None]
    if len(columns) < len(placed.labels):
        raise ValueError("columns were compared, and some newcomers have none; sign them as the others")
    labels, n, opened = placed.labels.copy(), len(old), int(clustering.labels.max()) + 1
    for i in range(n, len(labels)):  # by other evidence in a cluster from which a column differs, or of several
        home = np.flatnonzero(clustering.labels == labels[i])
        if labels[i] < opened and (clustering.by_columns or differs_from(columns, i, home, ERROR_RATE / 2)):
            labels[i] = -1
    labels = assign_by_columns(columns, labels, ERROR_RATE / 2)
    known = {**(clustering.evidence["not_judged"] or {}), **(placed.evidence["not_judged"] or {})}
    left = {str(i): known.get(str(i), NO_COLUMNS) for i in np.flatnonzero(labels < 0).tolist()}
    classes = None if placed.classes is None else replace(placed.classes, labels=labels)
    evidence = {**placed.evidence, "not_judged": left}
    return replace(
        placed, labels=labels, evidence=evidence, classes=classes
    ), () if clustering.by_columns else suggestions


def _assigned(
    clustering: Clustering, old: Sequence[ClientSignature], new: Sequence[ClientSignature]
) -> tuple[Clustering, tuple[MergeSuggestion, ...]]:
    """Newcomers by their classes and inputs."""
    cut = clustering.inputs
    by_inputs = clustering if cut is None else replace(clustering, labels=cut.labels, threshold=cut.threshold)
    if cut is not None:
        by_inputs = replace(by_inputs, reference_scale=cut.reference_scale, classes=None)
    elif clustering.classes is not None:  # inputs decide nothing: only their angles and noise are wanted
        by_inputs = replace(by_inputs, labels=np.zeros_like(clustering.labels))
    bases = [client.basis for client in new]
    angles = [client.split_half_angles for client in new]
    placed, suggestions = assign_newcomers(by_inputs, [client.basis for client in old], bases, angles)
    if clustering.classes is None:
        return placed, suggestions
    everybody = [*old, *new]
    known = replace(clustering.classes, labels=clustering.labels)
    joined, suggestions = assign_by_classes(known, [_classes(c) for c in everybody], len(new), ERROR_RATE)
    labels = joined.labels
    if cut is not None:
        labels = placed_across(labels, _connected(everybody), placed.labels, len(old))
    return (
        replace(
            clustering,
            proximity=placed.proximity,
            noise_scale=placed.noise_scale,
            labels=labels,
            classes=replace(joined, labels=labels),
            inputs=None if cut is None else replace(cut, labels=placed.labels),
        ),
        suggestions,
    )


def compared_pairs(clustering: Clustering, clients: Sequence[ClientSignature]) -> dict[str, int]:
    """How many pairs of clients were compared by classes, by inputs, and by neither."""
    n = len(clustering.labels)
    if clustering.classes is None:
        return {"classes": 0, "inputs": n * (n - 1) // 2, "none": 0}
    groups = _compared_groups(clustering.classes, clients)
    return compared(clustering.classes, groups, clustering.inputs is not None)


def obstacle(client: ClientSignature) -> str:
    """Why a client could not be compared with others, and what would help."""
    if client.classes is None:
        return "it has no labels, and clusters that differ in their labels have the same inputs; sign with labels"
    if not len(client.classes) and client.classes.private:
        return "no class stands out of the noise that hides its samples; sign more samples, or with a larger epsilon"
    if not len(client.classes):
        return (
            f"no class has {FEWEST} samples, or {FEWEST_UNITS} groups of samples that depend on each other, or the "
            "minimum count it was signed with; sign more samples"
        )
    return "its classes are too noisy, or nobody else has them; sign more samples"


def _by_inputs(
    clients: Sequence[ClientSignature],
    compare: Compare,
    linkage: Linkage,
    threshold: float | None,
    n_clusters: int | None,
) -> bool:
    """Whether inputs alone are compared; refuses classes where they cannot be."""
    if compare not in COMPARES:
        raise ValueError(f"compare must be one of {', '.join(COMPARES)}, got {compare!r}")
    unlabelled = sum(client.classes is None for client in clients)
    if compare == "classes":
        if threshold is not None or linkage != "average":
            raise ValueError(
                "classes are compared with average linkage at an automatic threshold; "
                f"got linkage {linkage!r} and threshold {threshold}: use compare = 'inputs' for others"
            )
        if unlabelled:
            raise ValueError(
                f"compare = 'classes' needs the labels of all clients, {unlabelled} of {len(clients)} have none; "
                "sign with labels, or use compare = 'auto'"
            )
        return False
    if compare == "inputs" or threshold is not None or linkage != "average":
        return True
    counts: dict[str, int] = {}
    for client in clients:
        for name in _classes(client).names:
            counts[name] = counts.get(name, 0) + 1
    if max(counts.values(), default=0) < 2:
        return True
    with_classes = [client for client in clients if len(_classes(client))]
    return n_clusters is not None and len(np.unique(_connected(with_classes))) > 1


def _classes(client: ClientSignature) -> ClassSignatures:
    """A client's classes, none without labels."""
    return no_classes(len(client.basis)) if client.classes is None else client.classes


def _connected(clients: Sequence[ClientSignature]) -> Labels:
    """Groups of clients that chains of shared classes connect: (n,); -1 for clients without labels."""
    names = {name: k for k, name in enumerate(sorted({n for c in clients for n in _classes(c).names}))}
    edges = [(i, len(clients) + names[name]) for i, c in enumerate(clients) for name in _classes(c).names]
    n = len(clients) + len(names)
    rows, columns = np.array(edges, dtype=np.intp).reshape(-1, 2).T
    _, found = connected_components(coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(n, n)), directed=False)
    return np.where([client.classes is None for client in clients], -1, found[: len(clients)]).astype(np.intp)


def _compared_groups(classes: ClassClusters, clients: Sequence[ClientSignature]) -> Labels:
    """Groups of clients that chains of compared pairs connect: (n,); -1 for clients without labels."""
    _, found = connected_components(coo_matrix(classes.pairs.weights > 0), directed=False)
    return np.where([client.classes is None for client in clients], -1, found).astype(np.intp)
