"""Clients that leave a federation, or send a new signature."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pacfl.errors import DataError
from pacfl.signatures.explaining import some_of
from pacfl.signatures.federation import Federation, join, relabelled
from pacfl.signatures.placement import Drift
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import ClassSignatures, ClientSignature, assign
from pacfl.subspace.columns import ColumnAngles, largest_column_differences, score_limit
from pacfl.subspace.drift import FALSE_ALARMS, pair_noise


@dataclass(frozen=True, eq=False)
class Replaced:
    """A federation after a client sent a new signature."""

    federation: Federation
    name: str
    drift: Drift
    before: int  # the client's cluster before; -1: it was in none
    cluster: int  # its cluster now
    same: bool = False  # whether it sent what it had sent before

    def summary(self) -> dict[str, Any]:
        """What `pacfl replace --json` prints."""
        moved = {"before": self.before, "cluster": self.cluster, "moved": self.before != self.cluster}
        return {
            "replaced": self.name,
            "same": self.same,
            **moved,
            "drift": self.drift.as_json(),
            **self.federation.summary(),
        }


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
    if federation.names == (name,):
        return _only(federation, name, new)
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
    same = _is_same(federation, at, after)
    if same and not moves:
        return Replaced(federation, name, drift, own, own, same)
    label = fits if moves else own
    placed = after.subset([*range(at), n - 1, *range(at, n - 1)])
    newcomers = dict(federation.newcomers)
    if name in newcomers and label == joined.placed[name]:
        newcomers[name] = after.newcomers[name]
    misplaced = {name: drift} if drifted and label != fits else {}
    clustering = relabelled(placed.clustering, [at], [label])
    placed = replace(placed, clustering=clustering, newcomers=newcomers, drifted={**rest.drifted, **misplaced})
    return Replaced(placed, name, drift, own, label, same)


def _only(federation: Federation, name: str, new: SignatureFile) -> Replaced:
    """The federation of one client with its new signature: it has its cluster, whatever it sends."""
    joined = join(federation, {f"{name}, new": new}).federation
    own = int(federation.clustering.labels[0])
    drift = _drift(federation, 0, joined, new, own)
    if _is_same(federation, 0, joined):
        return Replaced(federation, name, drift, own, own, same=True)
    after = joined.subset([1])
    labelled = relabelled(after.clustering, [0], [own])
    after = replace(after, names=(name,), clustering=labelled, newcomers=federation.newcomers)
    return Replaced(after, name, drift, own, own)


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
    if not by_columns or before is None or now is None:
        return found
    return _of_columns(before, now, found, federation.descriptions[at].columns)


def _of_columns(old: ColumnAngles, new: ColumnAngles, found: Drift, names: Sequence[str] | None) -> Drift:
    """Drift of the column that differs most, if that shows more than the angle does; both at half the error rate."""
    differences, limit = largest_column_differences(old, new), score_limit([old, new], FALSE_ALARMS / 2)
    if not differences or (not found.obstacle and differences[0].size / limit < found.size / found.limit):
        return found
    most = differences[0]
    name = None if names is None else names[most.column]
    return Drift("columns", most.size, limit, most.size > limit, found.fits, column=name)


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
