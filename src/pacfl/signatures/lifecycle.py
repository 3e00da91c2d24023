"""Clients that leave a federation, or send a new signature."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pacfl.errors import DataError
from pacfl.signatures.explaining import some_of
from pacfl.signatures.federation import Federation, join
from pacfl.signatures.placement import Drift
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import ClassSignatures, ClientSignature, Clustering, assign
from pacfl.subspace.columns import ColumnAngles, column_scores, score_limit
from pacfl.subspace.drift import FALSE_ALARMS, pair_noise


@dataclass(frozen=True, eq=False)
class Replaced:
    """A federation after a client sent a new signature."""

    federation: Federation
    name: str
    drift: Drift
    before: int  # the client's cluster before; -1: it was in none
    cluster: int  # its cluster now

    def summary(self) -> dict[str, Any]:
        """What `pacfl replace --json` prints."""
        moved = {"before": self.before, "cluster": self.cluster, "moved": self.before != self.cluster}
        return {"replaced": self.name, **moved, "drift": self.drift.as_json(), **self.federation.summary()}


def leave(federation: Federation, names: Collection[str]) -> Federation:
    """The federation without some clients. Nobody else moves, and no cluster gets another number.

    A cluster that all have left stays empty; the numbers after the last that has clients are free again, so that
    leaving undoes joining.
    """
    unknown = [name for name in names if name not in federation.names]
    if unknown:
        raise DataError(
            f"{', '.join(unknown)}: not in the federation, nothing was changed; its clients are "
            f"{some_of(federation.names)}"
        )
    rest = [i for i, name in enumerate(federation.names) if name not in names]
    if not rest:
        raise DataError("nobody would be left in the federation, nothing was changed; delete its folder instead")
    return federation.subset(rest)


def replace_client(federation: Federation, name: str, new: SignatureFile, *, move: bool = False) -> Replaced:
    """The federation with a new signature of one client, and whether its data drifted. Nobody else moves.

    It stays in its cluster. With `move`, a client that drifted moves to the cluster in which it would be placed now.
    A client that was in no cluster is placed as a newcomer is.
    """
    if len(federation.names) == 1 and name in federation.names:
        raise DataError(f"{name}: is the only client of the federation, nothing was changed; cluster again")
    rest = leave(federation, [name])
    at, n = federation.names.index(name), len(federation.names)
    joined = join(rest, {name: new})
    after, own = joined.federation, int(federation.clustering.labels[at])
    fits = joined.placed[name]
    if fits in joined.opened and own >= 0 and own not in rest.clustering.numbers:
        fits = own  # alone in its cluster, as before
    drift = _drift(federation, at, after, new, fits)
    drifted = drift.drifted or name in federation.drifted
    moves = own < 0 or (move and drifted and fits >= 0)
    if _is_same(federation, at, after) and not moves:
        return Replaced(federation, name, drift, own, own)
    label = fits if moves else own
    placed = after.subset([*range(at), n - 1, *range(at, n - 1)])
    newcomers = dict(federation.newcomers)
    if name in newcomers and label == joined.placed[name]:
        newcomers[name] = after.newcomers[name]
    misplaced = {name: drift} if drifted and label != fits else {}
    clustering = _labelled(placed.clustering, at, label)
    placed = replace(placed, clustering=clustering, newcomers=newcomers, drifted={**rest.drifted, **misplaced})
    return Replaced(placed, name, drift, own, label)


def _drift(federation: Federation, at: int, after: Federation, new: SignatureFile, fits: int) -> Drift:
    """The last client of `after` against the one at a position of the federation before."""
    old, angles = federation.clustering, new.split_half_angles.get(federation.clustering.measure, np.empty(0))
    before, now = federation.descriptions[at].table, after.descriptions[-1].table
    sent = ClientSignature(after.bases[-1], angles, after.classes[-1], now)
    both, _ = assign(old, federation.clients(), [sent])
    shape = federation.settings.features, min(basis.shape[1] for basis in (federation.bases[at], after.bases[-1]))
    pair = pair_noise(both, at, len(federation.names), angles, shape)
    by_columns = bool(old.evidence.get("columns")) and before is not None
    limit = pair.limit(FALSE_ALARMS / 2 if by_columns else FALSE_ALARMS)
    found = Drift(pair.compared, pair.size, limit, not pair.obstacle and pair.size > limit, fits, pair.obstacle)
    return _of_columns(before, now, found) if by_columns and before is not None and now is not None else found


def _of_columns(old: ColumnAngles, new: ColumnAngles, found: Drift) -> Drift:
    """Drift of the column that differs most, if that shows more than the angle does; both at half the error rate."""
    scores, limit = column_scores(old, new), score_limit([old, new], FALSE_ALARMS / 2)
    if not scores.size or (not found.obstacle and scores.max() / limit < found.size / found.limit):
        return found
    return Drift("columns", float(scores.max()), limit, bool(scores.max() > limit), found.fits)


def _is_same(federation: Federation, at: int, after: Federation) -> bool:
    """Whether the last client of `after` sent what it had sent before."""
    before, now = federation.descriptions[at], after.descriptions[-1]
    return (
        np.array_equal(federation.bases[at], after.bases[-1])
        and replace(before, table=None) == replace(now, table=None)
        and _same_arrays(before.table, now.table, ("counts", "means", "variances"))
        and _same_arrays(federation.classes[at], after.classes[-1], ("counts", "directions", "split_half_angles"))
        and bool(np.isclose(federation.clustering.noise_scale[at], after.clustering.noise_scale[-1]))  # files round
    )


def _same_arrays(
    a: ClassSignatures | ColumnAngles | None, b: ClassSignatures | ColumnAngles | None, parts: tuple[str, ...]
) -> bool:
    """Whether the same classes have equal arrays."""
    if a is None or b is None:
        return a is b
    return a.names == b.names and all(np.array_equal(getattr(a, part), getattr(b, part)) for part in parts)


def _labelled(clustering: Clustering, at: int, label: int) -> Clustering:
    """The clustering with one client in another cluster."""
    labels = clustering.labels.copy()
    labels[at] = label
    evidence, known = clustering.evidence, clustering.evidence.get("not_judged") or {}
    if label >= 0 and str(at) in known:
        evidence = {**evidence, "not_judged": {i: why for i, why in known.items() if i != str(at)}}
    classes = None if clustering.classes is None else replace(clustering.classes, labels=labels)
    return replace(clustering, labels=labels, evidence=evidence, classes=classes)
