"""Clusters of stores: those of the library, whatever interrupts them, and newcomers in the right ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.million import Simulated, simulated
from pacfl.errors import DataError
from pacfl.signatures import SignatureSettings, StoreClusters, cluster_store, join_store, sigfile, store_clusters
from pacfl.signatures.sigfile import SignatureFile
from pacfl.signatures.store import SignatureStore
from pacfl.subspace import adjusted_rand_index, cluster, landmarks, null
from tests.conftest import Run

SETTINGS = SignatureSettings(48, 3, False, "raw", sigfile.NOT_PRIVATE)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few simulations, and a sample of 150 clients."""
    monkeypatch.setattr(null, "SIMULATIONS", 50)
    monkeypatch.setattr(store_clusters, "SAMPLE", 150)


def stored(folder: Path, clients: Simulated, part: slice = slice(None), dimensions: int = 48) -> SignatureStore:
    known = SignatureStore(folder) if folder.exists() else SignatureStore.create(folder, SETTINGS, dimensions)
    names = [f"client-{i}" for i in range(len(clients.bases))]
    known.add(names[part], clients.bases[part], {"smallest": clients.split_half_angles[part]})
    return known


def signed(folder: Path, clients: Simulated, which: range) -> list[Path]:
    """Files of some clients."""
    paths = []
    for i in which:
        u = np.linalg.qr(clients.bases[i].astype(np.float64))[0].astype(np.float32)
        angles = clients.split_half_angles[i].astype(np.float64)
        own: dict[Any, Any] = {"smallest": angles[np.isfinite(angles)]}
        paths.append(folder / f"client-{i}.sig")
        sigfile.write(paths[-1], SignatureFile(u, 3, False, "raw", 100, own))
    return paths


@pytest.mark.parametrize("dimensions", [48, 24])
def test_a_store_has_the_clusters_of_its_groups(dimensions: int, tmp_path: Path) -> None:
    clients = simulated([700, 300, 20], 48, apart=10.0, dtype="float32")
    store = stored(tmp_path / "store", clients, dimensions=dimensions)
    for method in ("landmarks", "exact"):
        found = cluster_store(store.folder, method=method)  # type: ignore[arg-type]
        assert adjusted_rand_index(found.labels, clients.groups) == 1
        assert sorted(found.sizes) == [20, 300, 700]
        assert np.array_equal(StoreClusters.load(store.folder).labels, found.labels)
        inside, outside = np.array(found.summary["angles"]).T
        assert (inside < outside).all()
    library = cluster(store.bases, store.split_half_angles("smallest"), method="landmarks")
    assert adjusted_rand_index(found.labels, library.labels) == 1


def test_a_clustering_that_was_killed_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the third step; the sample is not clustered again."""
    monkeypatch.setattr(landmarks, "AT_ONCE", 200)
    monkeypatch.setattr(store_clusters, "SAVED_EVERY", 0.0)
    clients = simulated([700, 300, 20], 48, apart=10.0, dtype="float32")
    whole = cluster_store(stored(tmp_path / "whole", clients).folder, method="landmarks")
    folder, steps, advance = stored(tmp_path / "store", clients).folder, [], landmarks.advance

    def killed(*of: Any) -> Any:
        steps.append(of)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return advance(*of)

    monkeypatch.setattr(store_clusters, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        cluster_store(folder, method="landmarks")
    monkeypatch.setattr(store_clusters, "advance", advance)
    monkeypatch.setattr(store_clusters, "begin", None)
    done: list[int] = []
    found = cluster_store(folder, method="landmarks", on_progress=lambda _, step, __: done.append(step))
    assert done[0] == 400
    assert np.array_equal(found.labels, whole.labels)
    assert found.summary == whole.summary
    assert not (folder / store_clusters.PLACING).exists()


def test_a_kill_while_clusters_are_written_leaves_none_that_are_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = simulated([60, 40], 48, apart=10.0, dtype="float32")
    folder = stored(tmp_path / "store", clients, slice(0, 60)).folder
    cluster_store(folder)
    stored(folder, clients, slice(60, 100))
    append = store_clusters._append_labels

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store_clusters, "_append_labels", killed)
    with pytest.raises(KeyboardInterrupt):
        cluster_store(folder)
    with pytest.raises(DataError, match="has no clusters yet"):
        StoreClusters.load(folder)
    monkeypatch.setattr(store_clusters, "_append_labels", append)
    assert len(cluster_store(folder).labels) == 100


def test_newcomers_join_the_clusters_of_their_groups(tmp_path: Path) -> None:
    clients = simulated([700, 300, 3], 48, apart=10.0, dtype="float32")
    order = np.argsort(clients.groups == 2, kind="stable")  # the three of the last group come last
    clients = Simulated(*(part[order] for part in clients))
    folder = stored(tmp_path / "store", clients, slice(0, 990), dimensions=24).folder
    before = cluster_store(folder, method="landmarks")
    first = before.labels.copy()
    assert before.sizes == [int((first == k).sum()) for k in range(2)]
    placed = join_store(folder, signed(tmp_path, clients, range(990, 1003)))
    after = StoreClusters.load(folder)
    assert list(placed) == [f"client-{i}" for i in range(990, 1003)]
    assert np.array_equal(after.labels[:990], first)
    assert after.labels[990:].tolist() == list(placed.values())
    assert adjusted_rand_index(after.labels, clients.groups) == 1
    assert after.sizes == np.bincount(after.labels).tolist()
    assert len(after.sizes) == 3
    again = join_store(folder, signed(tmp_path, clients, range(990, 1003)))
    assert again == {}


def test_clients_that_were_added_after_the_clustering_are_placed_with_newcomers(tmp_path: Path) -> None:
    clients = simulated([300, 200], 48, apart=10.0, dtype="float32")
    folder = stored(tmp_path / "store", clients, slice(0, 400)).folder
    cluster_store(folder)
    stored(folder, clients, slice(400, 499))
    clients.split_half_angles[499] = np.nan
    placed = join_store(folder, signed(tmp_path, clients, range(499, 500)))
    assert len(placed) == 100
    assert placed["client-499"] == -1
    after = StoreClusters.load(folder)
    assert adjusted_rand_index(after.labels[:499], clients.groups[:499]) == 1
    assert after.summary["not_judged"] == 1


def test_the_commands_cluster_join_and_show_a_store(tmp_path: Path, run: Run) -> None:
    clients = simulated([60, 40], 48, apart=10.0, dtype="float32")
    folder = stored(tmp_path / "store", clients, slice(0, 98)).folder
    assert "has no clusters yet" in run("store", "show", folder, "--csv")[2]
    assert "has no clusters yet" in run("join", folder, *signed(tmp_path, clients, range(98, 99)))[2]
    code, out, err = run("cluster", folder)
    assert (code, err) == (0, "")
    assert "2 clusters of 98 clients" in out
    found = json.loads(run("cluster", folder, "--json")[1])
    assert (found["kind"], sum(found["sizes"])) == ("store", 98)
    assert "client-99 in cluster" in run("join", folder, *signed(tmp_path, clients, range(98, 100)))[1]
    assert "2 clients joined since" in run("store", "show", folder)[1]
    lines = run("store", "show", folder, "--csv")[1].splitlines()
    assert lines[0] == "client,cluster"
    assert len(lines) == 101
    code, _, err = run("cluster", folder, "--clusters", 2)
    assert code == 1
    assert "--clusters: does not apply to a store" in err
    assert "--method: is for a store" in run("cluster", tmp_path / "client-98.sig", "--method", "exact")[2]


def test_a_store_without_a_signature_is_not_clustered(tmp_path: Path) -> None:
    SignatureStore.create(tmp_path / "store", SETTINGS)
    with pytest.raises(DataError, match="has no signature"):
        cluster_store(tmp_path / "store")
