"""Clusters of the inputs of a store's clients: found by landmarks, resumed after a kill, joined by newcomers.

    clusters.json   the clusters, the evidence, and how many clients have a label; replaced in one step
    labels.i32      (n,) the cluster of each client; -1 for those that cannot be judged
    landmarks.npz   the members of clusters with whom newcomers are compared
    placing.npz     how far a clustering that was interrupted has come

A newcomer is compared with these members alone, so that it joins a million clients as fast as a thousand.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.files import locked, replaced, write_atomically
from pacfl.signatures.federation import NORMALISED, Progress
from pacfl.signatures.store import SignatureStore
from pacfl.signatures.store_files import add_files
from pacfl.signatures.store_placing import store_placing, stored_placing
from pacfl.subspace import Clustering, Measure, Method, place
from pacfl.subspace.guarantee import too_noisy
from pacfl.subspace.hierarchy import Labels
from pacfl.subspace.landmarks import MEMBERS, SAMPLE, advance, begin, completed
from pacfl.subspace.many import Group, ManyClients
from pacfl.subspace.method import EXACT_AT_MOST
from pacfl.subspace.proximity import angles_between

SUMMARY: Final = "clusters.json"
LABELS: Final = "labels.i32"
LANDMARKS: Final = "landmarks.npz"
PLACING: Final = "placing.npz"
FORMAT: Final = 1
SAVED_EVERY: Final = 15.0  # seconds
JOINED_AT_ONCE: Final = 256
COMPARED: Final = 50  # clusters, up to which angles between them are shown


@dataclass(frozen=True, eq=False)
class StoreClusters:
    """The clusters of the clients of a store."""

    store: SignatureStore
    summary: dict[str, Any]  # of clusters.json

    @classmethod
    def load(cls, folder: Path) -> "StoreClusters":
        """The clusters in the folder of a store."""
        store = SignatureStore(folder)
        try:
            summary = json.loads((folder / SUMMARY).read_bytes())
        except FileNotFoundError:
            raise DataError(f"{folder}: has no clusters yet; find them with 'pacfl cluster {folder}'") from None
        except ValueError as error:
            raise DataError(f"{folder / SUMMARY}: cannot be read ({error}); was it damaged?") from None
        if summary.get("format") != FORMAT:
            raise DataError(f"{folder}: was clustered by another release of pacfl; cluster again")
        return cls(store, summary)

    def __len__(self) -> int:
        return int(self.summary["clients"])

    @property
    def labels(self) -> NDArray[np.int32]:
        """(n,) the cluster of each client, -1 for those that cannot be judged, a memory map."""
        if not len(self):
            return np.empty(0, np.int32)
        return np.memmap(self.store.folder / LABELS, dtype="<i4", mode="r", shape=(len(self),))

    @property
    def sizes(self) -> list[int]:
        """Clients of each cluster."""
        return list(self.summary["sizes"])

    def table(self) -> list[tuple[str, ...]]:
        """A heading, and for every cluster its number, its size, and the angles inside it and to the nearest other."""
        angles = self.summary["angles"] or [(None, None)] * len(self.sizes)
        rows: list[tuple[str, ...]] = [("cluster", "clients", "angle inside", "to the nearest other")]
        for k, (size, own) in enumerate(zip(self.sizes, angles, strict=True)):
            rows.append((str(k), f"{size:,}", *("-" if angle is None else f"{angle:.2f}°" for angle in own)))
        if self.summary["not_judged"]:
            rows.append(("none", f"{self.summary['not_judged']:,}", "-", "-"))
        return rows

    def placed(self, bases: NDArray[Any], split_half_angles: NDArray[Any]) -> Labels:
        """The clusters that clients would join: (m,); -1 for those that cannot be judged.

        bases (m, dimensions, rank) and split_half_angles (m, splits) as the store has them. Clients that fit nowhere
        open clusters, from `len(sizes)` on. Nothing changes.
        """
        labels = np.full(len(bases), -1, dtype=np.intp)
        if not np.isfinite(split_half_angles).all(axis=1).any() or not len(self.sizes):
            return labels
        clients, limit = ManyClients(bases, split_half_angles, self._measure), self.summary["limit"]
        noisy = too_noisy(clients.noise, self.summary["reference_scale"], limit, clients.farthest)
        there = np.flatnonzero(clients.known & ~noisy & (clients.noise < clients.farthest))
        if len(there):
            new = Group.of(clients, there)
            to_members = new.ratios(self._members, clients.measure, clients.farthest)
            own = np.triu(new.ratios(new, clients.measure, clients.farthest), 1)
            rows = np.hstack([to_members, own + own.T])
            labels[there] = place(rows, self._clusters, limit).labels[len(self._clusters) :]
        return labels

    def place_rest(self, on_progress: Progress = lambda *_: None) -> "StoreClusters":
        """Place the clients of the store that came since, and write it back. No other client moves."""
        found = self
        while len(found) < len(found.store):
            part = slice(len(found), min(len(found) + JOINED_AT_ONCE, len(found.store)))
            own = found.store.own_angles(found._measure, part)
            bases, angles = found.store.bases[part], found.store.widened(own, found._measure, self.summary["widening"])
            found = found._with(found.placed(bases, angles), bases, angles)
            on_progress("placing", part.stop - part.start, len(found.store) - len(self))
        return found

    def _with(self, labels: Labels, bases: NDArray[Any], angles: NDArray[Any]) -> "StoreClusters":
        """The same with more clients, written to the folder."""
        folder, sizes = self.store.folder, np.array(self.sizes, dtype=np.int64)
        sizes = np.bincount(labels[labels >= 0], minlength=len(sizes)) + np.pad(
            sizes, (0, max(0, int(labels.max(initial=-1)) + 1 - len(sizes)))
        )
        few = [i for i, k in enumerate(labels.tolist()) if k >= 0 and (self._clusters == k).sum() < MEMBERS]
        if few:
            own, stored = ManyClients(bases[few], angles[few], self._measure), self._landmarks
            _write_landmarks(
                folder,
                np.concatenate([stored["bases"], bases[few]]),
                np.concatenate([stored["noise"], own.noise]),
                np.concatenate([stored["clusters"], labels[few]]),
            )
        _append_labels(folder, len(self), labels)
        summary = {
            **self.summary,
            "clients": len(self) + len(labels),
            "sizes": sizes.tolist(),
            "angles": self.summary["angles"] if len(sizes) == len(self.sizes) else None,
            "not_judged": self.summary["not_judged"] + int((labels < 0).sum()),
        }
        _write_summary(folder, summary)
        return StoreClusters(self.store, summary)

    @property
    def _measure(self) -> Measure:
        measure: Measure = self.summary["measure"]
        return measure

    @cached_property
    def _landmarks(self) -> dict[str, NDArray[Any]]:
        with np.load(self.store.folder / LANDMARKS, allow_pickle=False) as stored:
            return {name: stored[name] for name in ("bases", "noise", "clusters")}

    @property
    def _clusters(self) -> Labels:
        return self._landmarks["clusters"].astype(np.intp)

    @cached_property
    def _members(self) -> Group:
        stored = self._landmarks
        clients = ManyClients(stored["bases"], stored["noise"][:, None], self._measure)
        return Group.of(clients, np.arange(len(clients)))


def cluster_store(
    folder: Path,
    *,
    measure: Measure | None = None,
    method: Method = "auto",
    seed: int = 0,
    on_progress: Progress = lambda *_: None,
) -> StoreClusters:
    """Cluster the clients of a store by their inputs, and write what was found into its folder.

    The same call resumes where another one was killed. measure, method: as for `pacfl.subspace.cluster`.
    """
    store = SignatureStore(folder)
    n, settings = len(store), store.manifest.settings
    if not n:
        raise DataError(f"{folder}: has no signature; add some with 'pacfl store add {folder} FILES...'")
    if measure is None:
        measure = "sum" if 2 * settings.rank > settings.features else "smallest"
    exact = method == "exact" or (method == "auto" and n <= EXACT_AT_MOST)
    sample = n if exact else SAMPLE
    own = store.own_angles(measure)
    widening = store.widening(own)
    clients = ManyClients(store.bases, store.widened(own, measure, widening), measure, seed)
    key = json.dumps({"format": FORMAT, "n": n, "measure": measure, "sample": sample, "seed": seed})
    placing = stored_placing(folder / PLACING, key, measure)
    if placing is None:
        caveats = [NORMALISED] if settings.preprocess.endswith("normalise") else []
        placing = begin(clients, caveats=caveats, sample=sample)
        store_placing(folder / PLACING, key, placing)
    saved = time.monotonic()
    on_progress("comparing", placing.row, n)
    while not placing.finished:
        before, placing = placing, advance(clients, placing, sample)
        on_progress("comparing", ((placing.row or n) - before.row) if before.new else 0, n)
        if time.monotonic() - saved > SAVED_EVERY:
            store_placing(folder / PLACING, key, placing)
            saved = time.monotonic()
    with locked(folder):
        found = _write(store, clients, completed(clients, placing), widening)
    (folder / PLACING).unlink(missing_ok=True)
    return found


def join_store(folder: Path, paths: Sequence[Path], on_progress: Progress = lambda *_: None) -> dict[str, int]:
    """Add signature files to a store that was clustered, and place them; each newcomer's cluster, by name.

    Clients that were added since the clustering are placed with them. No other client moves.
    """
    known = StoreClusters.load(folder)
    add_files(known.store, paths, on_progress)
    with locked(folder):
        found = replace(known, store=SignatureStore(folder)).place_rest(on_progress)
    part = slice(len(known), len(found))
    return dict(zip(found.store.names[part], found.labels[part].tolist(), strict=True))


def _write(
    store: SignatureStore, clients: ManyClients, clustering: Clustering, widening: NDArray[np.float64]
) -> StoreClusters:
    """Members and labels, then the summary, without which they do not count."""
    landmarks = clustering.landmarks
    assert landmarks is not None
    folder, labels = store.folder, clustering.labels
    (folder / SUMMARY).unlink(missing_ok=True)  # a kill must not leave that of former labels
    _write_landmarks(folder, store.bases[landmarks.members], clients.noise[landmarks.members], landmarks.clusters)
    _append_labels(folder, 0, labels)
    sizes = np.bincount(labels[labels >= 0])
    evidence = {key: value for key, value in clustering.evidence.items() if key != "not_judged"}
    summary = {
        "format": FORMAT,
        "clients": len(labels),
        "clustered": len(labels),
        "measure": clustering.measure,
        "threshold": clustering.threshold,
        "limit": landmarks.limit,
        "reference_scale": clustering.reference_scale,
        "widening": widening.tolist(),
        "landmarks": len(landmarks.clients),
        "sizes": sizes.tolist(),
        "angles": _angles(clients, landmarks.members, landmarks.clusters) if len(sizes) <= COMPARED else None,
        "not_judged": int((labels < 0).sum()),
        "evidence": evidence,
    }
    _write_summary(folder, summary)
    return StoreClusters(store, summary)


def _angles(clients: ManyClients, members: NDArray[np.intp], of: Labels) -> list[tuple[float | None, float | None]]:
    """For every cluster: the mean angle between its members, and to those of the nearest other cluster, in degrees."""
    group = Group.of(clients, members)
    square = angles_between(group.u, group.u, group.ranks, group.ranks, clients.measure)
    n_clusters = int(of.max(initial=-1)) + 1
    belongs = np.equal.outer(np.arange(n_clusters), of).astype(np.float64)
    own = belongs.sum(axis=1)
    np.fill_diagonal(square, 0.0)
    sums = belongs @ square @ belongs.T
    inside = sums.diagonal() / np.maximum(own * (own - 1), 1)
    outside = sums / np.outer(own, own)
    np.fill_diagonal(outside, np.inf)
    others = outside.min(axis=1) if n_clusters > 1 else [None] * n_clusters
    return [(float(a), None if b is None else float(b)) for a, b in zip(inside, others, strict=True)]


def _write_landmarks(folder: Path, bases: NDArray[Any], noise: NDArray[Any], clusters: NDArray[Any]) -> None:
    with replaced(folder / LANDMARKS) as file:
        np.savez(file, bases=np.asarray(bases, dtype=np.float32), noise=noise, clusters=clusters.astype(np.int32))


def _append_labels(folder: Path, n: int, labels: Labels) -> None:
    """Write labels behind the first n."""
    path = folder / LABELS
    if n == 0:
        write_atomically(path, labels.astype("<i4").tobytes())
        return
    with path.open("r+b") as file:
        file.seek(4 * n)
        file.truncate()
        file.write(labels.astype("<i4").tobytes())
        file.flush()
        os.fsync(file.fileno())


def _write_summary(folder: Path, summary: dict[str, Any]) -> None:
    write_atomically(folder / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
