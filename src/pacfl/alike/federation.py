"""A federation of named clients in clusters: made, extended, kept in a folder."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.alike.files import replaced, write_atomically
from pacfl.alike.reading import DataError
from pacfl.alike.sigfile import SignatureFile
from pacfl.subspace import (
    Bridge,
    Linkage,
    Measure,
    adjust,
    agglomerate,
    agglomerate_into,
    choose_threshold,
    extend,
    place,
)
from pacfl.subspace.hierarchy import dendrogram
from pacfl.subspace.threshold import floors, typical

Array = NDArray[np.float64]
FORMAT: Final = 1
STATE: Final = "proximity.npz"
SUMMARY: Final = "clusters.json"


@dataclass(frozen=True, eq=False)
class Federation:
    """Who is in, how far apart they are, and which cluster is whose."""

    names: tuple[str, ...]
    bases: tuple[NDArray[np.float32], ...]
    how: dict[str, Any]  # preprocess, per_class, rank: newcomers must be made the same way
    measure: Measure
    linkage: Linkage
    proximity: Array  # (n, n) degrees, as measured
    floors: Array  # (n,) degrees of sampling noise
    unit: float | None  # the typical floor, if the adjusted proximity is what is cut; None if the proximity itself
    threshold: float  # degrees
    labels: NDArray[np.intp]
    evidence: dict[str, Any]

    def distances(self) -> Array:
        """The matrix that the threshold cuts."""
        return self.proximity if self.unit is None else adjust(self.proximity, self.floors, self.unit)

    def clusters(self) -> list[list[str]]:
        """Names by cluster."""
        return [[self.names[i] for i in np.flatnonzero(self.labels == k)] for k in range(int(self.labels.max()) + 1)]

    def summary(self) -> dict[str, Any]:
        """What clusters.json says."""
        return {
            "format": FORMAT,
            "threshold": self.threshold,
            "unit": "degrees" if self.unit is None else "degrees, adjusted to the noise of a typical client",
            "measure": self.measure,
            "linkage": self.linkage,
            "evidence": self.evidence,
            "clusters": self.clusters(),
        }


def found(
    clients: dict[str, SignatureFile],
    proximity: Array,
    measure: Measure,
    linkage: Linkage,
    threshold: float | None = None,
    n_clusters: int | None = None,
) -> Federation:
    """Cluster clients at a threshold in degrees, into a number of clusters, or as their own noise tells."""
    own = [client.self_angles.get(measure, np.empty(0)) for client in clients.values()]
    floor = floors(proximity, own)
    unit: float | None = typical(floor)
    if threshold is not None:
        labels, unit = agglomerate(proximity, threshold, linkage), None
        evidence: dict[str, Any] = {"finding": "given", "reasons": "The threshold was given."}
    elif n_clusters is not None:
        distances = adjust(proximity, floor, unit)
        labels = agglomerate_into(distances, n_clusters, linkage)
        threshold = _level_of(dendrogram(distances, linkage), n_clusters)
        evidence = {"finding": "given", "reasons": "The number of clusters was given."}
    else:
        choice = choose_threshold(proximity, own, linkage)
        labels, threshold, evidence = choice.labels, choice.threshold, json.loads(json.dumps(asdict(choice.evidence)))
    first = next(iter(clients.values()))
    return Federation(
        names=tuple(clients),
        bases=tuple(client.basis for client in clients.values()),
        how={"preprocess": first.preprocess, "per_class": first.per_class, "rank": first.rank},
        measure=measure,
        linkage=linkage,
        proximity=proximity,
        floors=floor,
        unit=unit,
        threshold=float(threshold),
        labels=labels,
        evidence=evidence,
    )


def joined(federation: Federation, newcomers: dict[str, SignatureFile]) -> tuple[Federation, tuple[Bridge, ...]]:
    """The federation with newcomers placed, and bridges between old clusters that they make. Nobody else moves."""
    known = [name for name in newcomers if name in federation.names]
    if known:
        raise DataError(f"{', '.join(known)}: already in the federation; nothing was changed")
    bases = [client.basis for client in newcomers.values()]
    if federation.bases[0].shape[0] != bases[0].shape[0]:
        raise DataError(
            f"the federation has {federation.bases[0].shape[0]} features, the newcomers {bases[0].shape[0]}; "
            "sign data of the same shape"
        )
    proximity = extend(federation.proximity, federation.bases, bases, federation.measure)
    own = [client.self_angles.get(federation.measure, np.empty(0)) for client in newcomers.values()]
    floor = floors(proximity, [np.empty(0)] * len(federation.names) + own)
    floor[: len(federation.names)] = federation.floors
    larger = replace(
        federation,
        names=(*federation.names, *newcomers),
        bases=(*federation.bases, *bases),
        proximity=proximity,
        floors=floor,
    )
    placement = place(larger.distances(), federation.labels, federation.threshold, federation.linkage)
    return replace(larger, labels=placement.labels), placement.bridges


def save(federation: Federation, folder: Path) -> None:
    """Write the folder. proximity.npz holds everything and is replaced in one step; clusters.json is told from it."""
    rank = max(basis.shape[1] for basis in federation.bases)
    bases = np.zeros((len(federation.bases), federation.bases[0].shape[0], rank), dtype=np.float32)
    for padded, basis in zip(bases, federation.bases, strict=True):
        padded[:, : basis.shape[1]] = basis
    settings = {
        "format": FORMAT,
        "how": federation.how,
        "measure": federation.measure,
        "linkage": federation.linkage,
        "unit": federation.unit,
        "threshold": federation.threshold,
        "evidence": federation.evidence,
    }
    with replaced(folder / STATE) as file:
        np.savez(
            file,
            names=np.array(federation.names),
            proximity=federation.proximity,
            labels=federation.labels,
            floors=federation.floors,
            bases=bases,
            directions=np.array([basis.shape[1] for basis in federation.bases]),
            settings=np.array(json.dumps(settings)),
        )
    write_atomically(folder / SUMMARY, (json.dumps(federation.summary(), indent=2, allow_nan=False) + "\n").encode())


def load(folder: Path) -> Federation:
    """The federation kept in a folder."""
    try:
        with (folder / STATE).open("rb") as file, np.load(file, allow_pickle=False) as state:
            settings = json.loads(str(state["settings"]))
            if settings["format"] != FORMAT:
                raise DataError(f"{folder}: has format {settings['format']}, this pacfl reads {FORMAT}")
            counts, bases = state["directions"], state["bases"]
            return Federation(
                names=tuple(str(name) for name in state["names"]),
                bases=tuple(basis[:, :count] for basis, count in zip(bases, counts, strict=True)),
                how=settings["how"],
                measure=settings["measure"],
                linkage=settings["linkage"],
                proximity=state["proximity"],
                floors=state["floors"],
                unit=settings["unit"],
                threshold=settings["threshold"],
                labels=state["labels"],
                evidence=settings["evidence"],
            )
    except FileNotFoundError:
        raise DataError(
            f"{folder}: is not a federation folder; make one with 'pacfl cluster ... -o {folder}'"
        ) from None
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{folder / STATE}: cannot be read ({error}); was it damaged?") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder for one process at a time; others wait."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _level_of(tree: Array, n_clusters: int) -> float:
    """A threshold between the last merge that is done and the first that is undone."""
    heights = tree[::-1, 2]
    undone = float(heights[n_clusters - 2]) if n_clusters >= 2 else float(heights[0] * 2) if len(heights) else 90.0
    done = float(heights[n_clusters - 1]) if n_clusters - 1 < len(heights) else 0.0
    return (done + undone) / 2


def widths(federation: Federation) -> list[tuple[float, float | None]]:
    """For every cluster: its mean angle inside, and the mean angle to the nearest other cluster, in degrees."""
    k = int(federation.labels.max()) + 1
    members = [np.flatnonzero(federation.labels == c) for c in range(k)]
    rows = []
    for c, own in enumerate(members):
        pairs = len(own) * (len(own) - 1)
        inside = float(federation.proximity[np.ix_(own, own)].sum() / pairs) if pairs else 0.0
        others = [float(federation.proximity[np.ix_(own, m)].mean()) for d, m in enumerate(members) if d != c]
        rows.append((inside, min(others) if others else None))
    return rows
