"""A federation of named clients in clusters: created, and extended by newcomers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.features.encoders import in_words
from pacfl.signatures import answer as answers
from pacfl.signatures import explaining
from pacfl.signatures.alignment import aligned
from pacfl.signatures.explaining import Description
from pacfl.signatures.placement import Drift, Newcomer, describe
from pacfl.signatures.sigfile import NOT_LABELLED, SignatureFile, SignatureSettings
from pacfl.subspace import (
    ClassSignatures,
    ClientSignature,
    Clustering,
    Compare,
    Diagnosis,
    Explanation,
    Linkage,
    Measure,
    MergeSuggestion,
    assign,
    cluster_clients,
    diagnose,
)
from pacfl.subspace.explanation import Between
from pacfl.subspace.hierarchy import Labels
from pacfl.subspace.together import compared_pairs, obstacle

FORMAT: Final = 5  # of folders
NAMES_SHOWN: Final = 8
NORMALISED: Final = (
    "with --preprocess normalise the halves that measure a client's noise are not normalised again, "
    "which makes the noise scale too small"
)

Clients = Mapping[str, SignatureFile]
Progress = Callable[[str, int, int], object]  # what is going on, steps done since the last call, steps in all


@dataclass(frozen=True, eq=False)
class Federation:
    """Named clients, their signatures, and their clusters."""

    names: tuple[str, ...]
    bases: tuple[NDArray[np.float32], ...]
    settings: SignatureSettings  # of all signatures, newcomers' too
    clustering: Clustering
    classes: tuple[ClassSignatures | None, ...]  # of each client; None without labels
    descriptions: tuple[Description, ...]
    newcomers: Mapping[str, Newcomer] = field(default_factory=dict)  # those who joined after it was clustered
    drifted: Mapping[str, Drift] = field(default_factory=dict)  # whose data are not those it was placed by
    clustered: int | None = None  # how many clients were clustered; None where it is not known

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """How its clients differ, and what to do about it."""
        return diagnose(self.clients(), self.clustering, self.sizes())

    @cached_property
    def answer(self) -> str:
        """Its groups, how far apart they are and what differs, in one sentence."""
        return answers.answer(self)

    def sizes(self) -> list[int] | None:
        """Samples of each client; None if they are not known of all."""
        known = [one.samples for one in self.descriptions if one.samples is not None]
        return known if len(known) == len(self.names) else None

    def explain(self, a: str | int, b: str | int, between: Between = "clients") -> Explanation:
        """Why two clients, by name or position, or two clusters, by number, differ."""
        return explaining.explanation(self, a, b, between)

    def clients(self) -> list[ClientSignature]:
        """What newcomers are compared with."""
        nothing = np.empty(0)
        parts = zip(self.bases, self.classes, self.descriptions, strict=True)
        return [ClientSignature(basis, nothing, own, described.table) for basis, own, described in parts]

    def not_judged(self) -> dict[str, str]:
        """Clients that are in no cluster, and why."""
        left = np.flatnonzero(self.clustering.labels < 0).tolist()
        why, clients = self.clustering.evidence.get("not_judged") or {}, self.clients()
        by_classes = self.clustering.classes is not None and not self.clustering.evidence.get("columns")
        return {self.names[i]: obstacle(clients[i]) if by_classes else why[str(i)] for i in left}

    def clusters(self) -> list[list[str]]:
        """Names by cluster; clients that cannot be judged are in none, and nobody in a cluster that all have left."""
        labels = self.clustering.labels
        return [[self.names[i] for i in np.flatnonzero(labels == k)] for k in range(int(labels.max()) + 1)]

    def subset(self, clients: Sequence[int]) -> "Federation":
        """The same federation of some clients, by their positions, in the same clusters with the same numbers."""
        classes = tuple(self.classes[i] for i in clients)
        clustering, names = self.clustering.subset(clients), {name for own in classes if own for name in own.names}
        if clustering.classes is not None:
            known = replace(clustering.classes, noise=clustering.classes.noise.named(names))
            clustering = replace(clustering, classes=known)
        labelled, left = any(own is not None for own in classes), tuple(self.names[i] for i in clients)
        return replace(
            self,
            names=left,
            bases=tuple(self.bases[i] for i in clients),
            settings=self.settings if labelled else replace(self.settings, labels=NOT_LABELLED),
            clustering=clustering,
            classes=classes,
            descriptions=tuple(self.descriptions[i] for i in clients),
            newcomers={name: one.among(clustering.numbers) for name, one in self.newcomers.items() if name in left},
            drifted={name: one.among(clustering.numbers) for name, one in self.drifted.items() if name in left},
        )

    def representative(self) -> list[int]:
        """Positions of clients that newcomers are compared with: not of those that drifted, where others are left."""
        labels, drifted = self.clustering.labels, np.isin(self.names, list(self.drifted))
        left = set(labels[~drifted].tolist())
        return [i for i, k in enumerate(labels.tolist()) if not drifted[i] or k not in left]

    def unit(self) -> str:
        """The unit of the threshold."""
        if self.clustering.classes is not None:
            return "degrees, adjusted to the noise of a typical class of a typical client"
        adjusted = self.clustering.reference_scale is not None
        return "degrees, adjusted to the noise of a typical client" if adjusted else "degrees"

    def summary(self) -> dict[str, Any]:
        """The contents of clusters.json."""
        return {
            "format": FORMAT,
            "answer": self.answer,
            "threshold": self.clustering.threshold,
            "unit": self.unit(),
            "measure": self.clustering.measure,
            "linkage": self.clustering.linkage,
            "compare": self.clustering.evidence.get("compare", "inputs"),
            "pairs": compared_pairs(self.clustering, self.clients()),
            "clustered": self.clustered,
            "newcomers": {name: one.as_json() for name, one in self.newcomers.items()},
            "drifted": {name: one.as_json() for name, one in self.drifted.items()},
            "not_judged": self.not_judged(),
            "evidence": self.clustering.evidence,
            "diagnosis": self.diagnosis.as_json(),
            "clusters": self.clusters(),
        }

    def mean_angles(self) -> list[tuple[float | None, float | None]]:
        """For every cluster: the mean angle inside it, and to the nearest other cluster, in degrees.

        Where classes were compared, angles between the same classes, by their evidence; None where there is none, and
        for a cluster that all have left.
        """
        labels = self.clustering.labels
        members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
        rows = []
        for c, own in enumerate(members):
            inside = 0.0 if len(own) == 1 else self._mean_angle(own, own)
            others = [self._mean_angle(own, other) for d, other in enumerate(members) if d != c]
            rows.append((inside, min((angle for angle in others if angle is not None), default=None)))
        return rows

    def _mean_angle(self, a: NDArray[np.intp], b: NDArray[np.intp]) -> float | None:
        """Between two sets of clients, or within one; a client's angle to itself does not count."""
        block, classes, scale = np.ix_(a, b), self.clustering.classes, self.clustering.reference_scale
        if not len(a) or not len(b):
            return None
        if classes is None or scale is None:
            pairs = len(a) * len(b) - int(np.isin(a, b).sum())
            return float(self.clustering.proximity[block].sum() / pairs)
        evidence = float(classes.pairs.weights[block].sum())
        return float(np.sqrt(classes.pairs.squares[block].sum() / evidence)) * scale if evidence else None

    def table(self) -> list[tuple[str, ...]]:
        """A heading, and for every cluster its number, its size, its angles and the names of some of its members.

        Last, clients that are in none.
        """
        rows: list[tuple[str, ...]] = [("cluster", "clients", "angle inside", "to the nearest other", "names")]
        for k, (names, (inside, outside)) in enumerate(zip(self.clusters(), self.mean_angles(), strict=True)):
            if not names:
                continue
            more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
            angles = ("-" if angle is None else f"{angle:.2f}°" for angle in (inside, outside))
            rows.append((str(k), str(len(names)), *angles, ", ".join(names[:NAMES_SHOWN]) + more))
        left = list(self.not_judged())
        if left:
            more = f" and {len(left) - NAMES_SHOWN} more" if len(left) > NAMES_SHOWN else ""
            rows.append(("none", str(len(left)), "-", "-", ", ".join(left[:NAMES_SHOWN]) + more))
        return rows

    def cut(self) -> str:
        """Where the dendrogram was cut, in words."""
        clustering, scale = self.clustering, self.clustering.reference_scale
        if clustering.classes is not None:
            return (
                f"Threshold {clustering.threshold:.4g}° on angles between the same classes, weighted by evidence; "
                f"noise of a typical class {scale:.3g}°"
            )
        return f"Threshold {clustering.threshold:.4g}° on {clustering.measure} angles, {clustering.linkage} linkage" + (
            "" if scale is None else f"; noise of a typical client {scale:.3g}°"
        )

    def merge_suggestions(self) -> dict[str, tuple[int, int]]:
        """Newcomers that are near two clusters, which suggests merging these; not those whose noise hides which."""
        there = self.clustering.numbers
        return {
            name: (one.cluster, one.runner_up)
            for name, one in self.newcomers.items()
            if one.merge and not one.too_small and one.runner_up in there and one.cluster in there
        }

    def reasons(self) -> str:
        """The evidence in words: that of the clients who were clustered."""
        said, history = str(self.clustering.evidence["reasons"]), self.history()
        return f"{history} The evidence is that of the clustering: {said}" if history else said

    def history(self) -> str:
        """How many came and left since it was clustered, in words; empty where nobody did."""
        came = len(self.newcomers)
        left = 0 if self.clustered is None else self.clustered + came - len(self.names)
        since = " and ".join(f"{n} {what}" for n, what in ((came, "joined"), (left, "left")) if n)
        were = "" if self.clustered is None else f"{count(self.clustered, 'client')} clustered; "
        return f"{were}{since} since." if since else ""

    def size(self) -> str:
        """How many clients and clusters there are, in words."""
        left = int((self.clustering.labels < 0).sum())
        size = f"{count(len(self.names), 'client')} in {count(len(self.clustering.numbers), 'cluster')}"
        return size if not left else f"{size}, {left} not judged"


@dataclass(frozen=True, eq=False)
class Joined:
    """A federation after newcomers joined it."""

    federation: Federation
    placed: dict[str, int]  # the newcomers' clusters; -1 for those that cannot be judged
    opened: list[int]  # clusters that did not exist before
    suggestions: tuple[MergeSuggestion, ...]

    def summary(self) -> dict[str, Any]:
        """What `pacfl join --json` prints."""
        names = list(self.placed)
        bridges = [
            {"client": names[s.newcomer], "clusters": s.clusters, "distances": s.distances} for s in self.suggestions
        ]
        return {"placed": self.placed, "opened": self.opened, "bridges": bridges, **self.federation.summary()}


def count(n: int, noun: str) -> str:
    """A number of things: 1 cluster, 2 clusters."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def federate(
    clients: Clients,
    measure: Measure | None = None,
    linkage: Linkage = "average",
    threshold: float | None = None,
    clusters: int | None = None,
    on_progress: Progress = lambda *_: None,
    *,
    compare: Compare = "auto",
) -> Federation:
    """The federation of named clients, clustered at a threshold, into some clusters, or automatically.

    Without a measure: `smallest`, except in spaces so small that any two signatures share a direction, there `sum`.
    """
    clients = _aligned(clients)
    settings = check_comparable({name: client.settings for name, client in clients.items()})
    bases = tuple(client.basis for client in clients.values())
    if measure is None:
        measure = "sum" if 2 * max(basis.shape[1] for basis in bases) > settings.features else "smallest"
    caveats = [NORMALISED] if settings.preprocess.endswith("normalise") else []
    without = [name for name, client in clients.items() if client.classes is None]
    if compare == "classes" and without:
        raise DataError(
            f"{_listed(without)}: have no labels, which comparing classes needs; sign with --labels, "
            "or let 'auto' use the inputs of these clients"
        )
    clustering = cluster_clients(
        _compared(clients, measure),
        *(compare, measure, linkage, threshold, clusters),
        caveats=caveats,
        on_rows=lambda rows: on_progress("comparing", rows, len(bases)),
    )
    classes = tuple(client.classes for client in clients.values())
    described = _descriptions(clients)
    return Federation(tuple(clients), bases, settings, clustering, classes, described, clustered=len(clients))


def _aligned(clients: Clients, federation: Federation | None = None) -> Clients:
    """The clients with their columns in one order, that of the federation; those of other schemas are not touched."""
    known = [] if federation is None else federation.descriptions
    schemas = {client.schema for client in clients.values()} | ({federation.settings.schema} if federation else set())
    return aligned(clients, next((one.columns for one in known if one.columns), None)) if len(schemas) == 1 else clients


def _descriptions(clients: Clients) -> tuple[Description, ...]:
    return tuple(map(Description.of, clients.values()))


def _compared(clients: Clients, measure: Measure) -> list[ClientSignature]:
    """The parts of signatures that are compared."""
    return [
        ClientSignature(client.basis, client.split_half_angles.get(measure, np.empty(0)), client.classes, client.table)
        for client in clients.values()
    ]


def join(federation: Federation, newcomers: Clients) -> Joined:
    """The federation with newcomers in their clusters, and the merges they suggest. No other client moves."""
    members = [name for name in newcomers if name in federation.names]
    if members:
        raise DataError(
            f"{', '.join(members)}: already in the federation, nothing was changed; a new signature of a client is "
            "for 'pacfl replace'"
        )
    newcomers = _aligned(newcomers, federation)
    settings = check_comparable(
        {"the federation": federation.settings, **{n: c.settings for n, c in newcomers.items()}}
    )
    old = federation.clustering
    new, names = _compared(newcomers, old.measure), (*federation.names, *newcomers)
    try:
        clustering, suggestions = assign(old, federation.clients(), new)
    except ValueError as error:
        raise DataError(f"newcomers cannot be placed: {error}; cluster all clients again instead") from None
    compared = federation.representative()
    if len(compared) < len(old.labels):
        rest = federation.subset(compared)
        placed_by, suggestions = assign(rest.clustering, rest.clients(), new)
        clustering = relabelled(clustering, range(len(old.labels), len(names)), placed_by.labels[len(compared) :])
        others = sorted(set(range(len(old.labels))) - set(compared))
        old = relabelled(old, others, -1)
    labels = clustering.labels[len(old.labels) :].tolist()
    placed = describe(old, clustering, names, [*federation.clients(), *new], suggestions)
    after = replace(
        federation,
        names=names,
        bases=(*federation.bases, *(client.basis for client in newcomers.values())),
        settings=settings,
        clustering=clustering,
        classes=(*federation.classes, *(client.classes for client in newcomers.values())),
        descriptions=(*federation.descriptions, *_descriptions(newcomers)),
        newcomers={**federation.newcomers, **placed},
    )
    opened = sorted({k for k in labels if k > int(old.labels.max())})
    return Joined(after, dict(zip(newcomers, labels, strict=True)), opened, suggestions)


def relabelled(clustering: Clustering, clients: Iterable[int], labels: Sequence[int] | Labels | int) -> Clustering:
    """The clustering with some clients, by their positions, in other clusters."""
    all_labels = clustering.labels.copy()
    rows = list(clients)
    all_labels[rows] = labels
    evidence, known = clustering.evidence, clustering.evidence.get("not_judged") or {}
    placed = {str(i) for i in rows if all_labels[i] >= 0} & set(known)
    if placed:
        evidence = {**evidence, "not_judged": {i: why for i, why in known.items() if i not in placed}}
    classes = None if clustering.classes is None else replace(clustering.classes, labels=all_labels)
    return replace(clustering, labels=all_labels, evidence=evidence, classes=classes)


def check_comparable(made: Mapping[str, SignatureSettings]) -> SignatureSettings:
    """The settings that all signatures share; where they differ, an error that names who and how.

    Clients without labels go with all others; those with labels must name their classes in the same way.
    """
    for key in ("directions", *_HOW, "labels"):
        names: dict[object, list[str]] = {}
        for name, settings in made.items():
            value = getattr(settings, key)
            if (key, value) != ("labels", NOT_LABELLED):
                names.setdefault(value, []).append(name)
        if len(names) > 1:
            kinds = "; ".join(f"{_shown(key, value)}: {_listed(who)}" for value, who in names.items())
            raise DataError(
                f"signatures must be made with the same settings, these differ in {_WORDS.get(key, key)}: {kinds}. "
                f"{_MEANINGLESS.get(key, 'Angles between them mean nothing')}; "
                f"{_REMEDIES.get(key, 'sign again with the same options')}"
            )
    labelled = (settings for settings in made.values() if settings.labels != NOT_LABELLED)
    return next(labelled, next(iter(made.values())))


_HOW: Final = ("protection", "schema", "encoder", "features", "sketch", "preprocess", "per_class", "rank")
_WORDS: Final = {
    "protection": "privacy",
    "preprocess": "preprocessing",
    "schema": "the schema of their columns",
    "per_class": "per-class decomposition",
    "labels": "how classes are named",
    "directions": "the key of their directions",
}
_REMEDIES: Final = {"directions": "sign all of them again with --key and one file, or all without"}
_MEANINGLESS: Final = {"labels": "Which classes are the same cannot be seen"}


def _shown(key: str, value: object) -> str:
    if key == "encoder":
        return in_words(None if value is None else str(value))
    if key == "directions":
        return "no key" if value is None else f"key {value}"
    if key != "schema":
        return str(value)
    return "none" if value is None else f"SHA-256 {str(value)[:12]}..."


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
