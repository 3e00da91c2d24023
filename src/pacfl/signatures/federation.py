"""A federation of named clients in clusters: made, extended, kept in a folder."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.files import replaced, write_atomically
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import LINKAGES, MEASURES, Clustering, Measure, MergeSuggestion, assign_newcomers
from pacfl.subspace.hierarchy import check_proximity
from pacfl.subspace.proximity import stack

Array = NDArray[np.float64]
FORMAT: Final = 1
STATE: Final = "proximity.npz"
SUMMARY: Final = "clusters.json"


@dataclass(frozen=True, eq=False)
class Federation:
    """Who is in, and how they are grouped."""

    names: tuple[str, ...]
    bases: tuple[NDArray[np.float32], ...]
    how: dict[str, Any]  # preprocess, per_class, rank, protection: newcomers must be made the same way
    clustering: Clustering

    def clusters(self) -> list[list[str]]:
        """Names by cluster."""
        labels = self.clustering.labels
        return [[self.names[i] for i in np.flatnonzero(labels == k)] for k in range(int(labels.max()) + 1)]

    def summary(self) -> dict[str, Any]:
        """What clusters.json says."""
        return {
            "format": FORMAT,
            "threshold": self.clustering.threshold,
            "unit": threshold_unit(self.clustering),
            "measure": self.clustering.measure,
            "linkage": self.clustering.linkage,
            "evidence": self.clustering.evidence,
            "clusters": self.clusters(),
        }


def threshold_unit(clustering: Clustering) -> str:
    """What the threshold's degrees are degrees of."""
    return "degrees" if clustering.reference_scale is None else "degrees, adjusted to the noise of a typical client"


def found(clients: dict[str, SignatureFile], clustering: Clustering) -> Federation:
    """A federation of named clients, grouped in the same order."""
    first = next(iter(clients.values()))
    return Federation(
        names=tuple(clients),
        bases=tuple(client.basis for client in clients.values()),
        how={
            "preprocess": first.preprocess,
            "per_class": first.per_class,
            "rank": first.rank,
            "protection": first.protection,
        },
        clustering=clustering,
    )


def own_angles(clients: dict[str, SignatureFile], measure: Measure) -> list[Array]:
    """What each client measured against itself."""
    return [client.split_half_angles.get(measure, np.empty(0)) for client in clients.values()]


def joined(
    federation: Federation, newcomers: dict[str, SignatureFile]
) -> tuple[Federation, tuple[MergeSuggestion, ...]]:
    """The federation with newcomers placed, and bridges between old clusters that they make. Nobody else moves."""
    known = [name for name in newcomers if name in federation.names]
    if known:
        raise DataError(f"{', '.join(known)}: already in the federation; nothing was changed")
    bases = tuple(client.basis for client in newcomers.values())
    if federation.bases[0].shape[0] != bases[0].shape[0]:
        raise DataError(
            f"the federation has {federation.bases[0].shape[0]} features, the newcomers {bases[0].shape[0]}; "
            "sign data of the same shape"
        )
    own = own_angles(newcomers, federation.clustering.measure)
    clustering, bridges = assign_newcomers(federation.clustering, federation.bases, bases, own)
    names, all_bases = (*federation.names, *newcomers), (*federation.bases, *bases)
    return replace(federation, names=names, bases=all_bases, clustering=clustering), bridges


def save(federation: Federation, folder: Path) -> None:
    """Write the folder. proximity.npz holds everything and is replaced in one step; clusters.json is told from it."""
    rank = max(basis.shape[1] for basis in federation.bases)
    bases = np.zeros((len(federation.bases), federation.bases[0].shape[0], rank), dtype=np.float32)
    for padded, basis in zip(bases, federation.bases, strict=True):
        padded[:, : basis.shape[1]] = basis
    clustering = federation.clustering
    words = {
        key: getattr(clustering, key) for key in ("measure", "linkage", "reference_scale", "threshold", "evidence")
    }
    settings = {"format": FORMAT, "how": federation.how, **words}
    with replaced(folder / STATE) as file:
        np.savez(
            file,
            names=np.array(federation.names),
            proximity=clustering.proximity,
            labels=clustering.labels,
            noise_scale=clustering.noise_scale,
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
            if settings.pop("format") != FORMAT:
                raise DataError(f"{folder}: was written by another release of pacfl; cluster again")
            counts, bases = state["directions"], state["bases"]
            federation = Federation(
                names=tuple(str(name) for name in state["names"]),
                bases=tuple(basis[:, :count] for basis, count in zip(bases, counts, strict=True)),
                how=settings.pop("how"),
                clustering=Clustering(
                    proximity=state["proximity"], noise_scale=state["noise_scale"], labels=state["labels"], **settings
                ),
            )
            _check(federation)
            return federation
    except FileNotFoundError:
        raise DataError(
            f"{folder}: is not a federation folder; make one with 'pacfl cluster ... -o {folder}'"
        ) from None
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{folder / STATE}: cannot be read ({error}); was it damaged?") from None


def _check(federation: Federation) -> None:
    """Refuse a federation whose parts do not belong together, before anybody counts on it."""
    clustering, n = federation.clustering, len(federation.names)
    check_proximity(clustering.proximity)
    _, ranks = stack(federation.bases)
    numbers = [clustering.threshold, *([] if clustering.reference_scale is None else [clustering.reference_scale])]
    holds = {
        "as many of everything as clients": len(clustering.proximity) == len(ranks) == n,
        "names of their own": len(set(federation.names)) == n,
        "labels": clustering.labels.shape == (n,)
        and clustering.labels.dtype.kind in "ui"
        and set(clustering.labels.tolist()) == set(range(int(clustering.labels.max()) + 1)),
        "noise_scale": clustering.noise_scale.shape == (n,)
        and bool((np.isfinite(clustering.noise_scale) & (clustering.noise_scale > 0)).all()),
        "numbers to cut by": all(isinstance(x, float) and 0 <= x < np.inf for x in numbers)
        and clustering.reference_scale != 0,
        "known words": clustering.measure in MEASURES and clustering.linkage in LINKAGES,
        "reasons": isinstance(clustering.evidence.get("reasons"), str),
        "how they were signed": set(federation.how) == {"preprocess", "per_class", "rank", "protection"},
    }
    lacking = [what for what, there in holds.items() if not there]
    if lacking:
        raise ValueError(f"it has no {', '.join(lacking)}")


def widths(federation: Federation) -> list[tuple[float, float | None]]:
    """For every cluster: its mean angle inside, and the mean angle to the nearest other cluster, in degrees."""
    labels, proximity = federation.clustering.labels, federation.clustering.proximity
    members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    rows = []
    for c, own in enumerate(members):
        pairs = len(own) * (len(own) - 1)
        inside = float(proximity[np.ix_(own, own)].sum() / pairs) if pairs else 0.0
        others = [float(proximity[np.ix_(own, m)].mean()) for d, m in enumerate(members) if d != c]
        rows.append((inside, min(others) if others else None))
    return rows
