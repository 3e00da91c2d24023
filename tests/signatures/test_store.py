"""Stores of signatures: what is added is there, whatever happens on the way."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.million import simulated
from pacfl.errors import DataError
from pacfl.folders import recognise
from pacfl.signatures import SignatureSettings, sigfile, sign_file, store_files
from pacfl.signatures import store as stores
from pacfl.signatures.store import SignatureStore
from pacfl.signatures.store_files import add_files, add_to_store
from pacfl.subspace import proximity
from pacfl.subspace.sketch import projection, sketched
from tests.conftest import Run


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Signatures of seven clients, the last of which has fewer directions."""
    folder, rng = tmp_path_factory.mktemp("signatures"), np.random.default_rng(0)
    found = []
    for i in range(7):
        x = rng.normal(size=(60, 40)) + 4 * rng.normal(size=(60, 3)) @ np.eye(40)[3 * (i % 2) : 3 * (i % 2) + 3]
        np.save(folder / f"client-{i}.npy", x if i < 6 else x[:, :2] @ np.eye(40)[:2])
        sign_file(folder / f"client-{i}.npy", folder / f"client-{i}.sig")
        found.append(folder / f"client-{i}.sig")
    return found


def test_a_store_has_what_was_added(files: list[Path], tmp_path: Path) -> None:
    store, added = add_to_store(tmp_path / "store", files, dimensions=20, seed=3)
    assert (added, len(store)) == (7, 7)
    assert store.names == [file.stem for file in files]
    signatures = [sigfile.read(file) for file in files]
    assert store.samples.tolist() == [60] * 7
    onto = projection(40, 20, 3)
    for i, one in enumerate(signatures):
        own = sketched(one.basis[None], onto)[0]
        assert np.allclose(store.bases[i, :, : own.shape[1]], own, atol=1e-3)
    assert not store.bases[6, :, 2].any()
    stored = store.split_half_angles("sum")
    wider = stored.mean(axis=1) / [one.split_half_angles["sum"].mean() for one in signatures]
    assert (wider > 1).all()
    assert np.ptp(wider) < 0.05
    found = recognise(tmp_path / "store")
    assert found is not None
    assert found.kind == "store"


def test_signatures_of_few_features_are_stored_as_they_are(files: list[Path], tmp_path: Path) -> None:
    store, _ = add_to_store(tmp_path / "store", files[:6])
    signatures = [sigfile.read(file) for file in files[:6]]
    assert store.sketch is None
    assert np.allclose(store.bases, [one.basis for one in signatures], atol=1e-3)
    own = [one.split_half_angles["smallest"] for one in signatures]
    assert np.allclose(store.split_half_angles("smallest"), own, rtol=1e-3)
    angles = proximity(store.bases.astype(np.float64)), proximity([one.basis for one in signatures])
    assert np.allclose(*angles, atol=0.05)


def test_adding_in_parts_is_adding_at_once_and_files_are_not_added_twice(files: list[Path], tmp_path: Path) -> None:
    at_once, _ = add_to_store(tmp_path / "a", files, dimensions=20)
    add_to_store(tmp_path / "b", files[:3], dimensions=20)
    in_parts, added = add_to_store(tmp_path / "b", files)
    assert added == 4
    for name in ("bases.f16", "angles.f16", "clients.bin", "names.txt", "store.json"):
        assert (at_once.folder / name).read_bytes() == (in_parts.folder / name).read_bytes()


def test_a_kill_in_mid_block_loses_nothing(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two; the process dies before it counts the third block. The same call then adds the rest."""
    monkeypatch.setattr(store_files, "BLOCK", 2)
    whole, _ = add_to_store(tmp_path / "whole", files, dimensions=20)
    write, calls = stores._write, []

    def killed(folder: Path, manifest: stores.Manifest) -> None:
        calls.append(manifest.n)
        if manifest.n == 6:
            raise KeyboardInterrupt
        write(folder, manifest)

    monkeypatch.setattr(stores, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        add_to_store(tmp_path / "store", files, dimensions=20)
    assert calls == [0, 2, 4, 6]
    monkeypatch.setattr(stores, "_write", write)
    assert len(SignatureStore(tmp_path / "store")) == 4
    store, added = add_to_store(tmp_path / "store", files)
    assert added == 3
    for name in ("bases.f16", "angles.f16", "clients.bin", "names.txt"):
        assert (store.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_duplicates_are_named(files: list[Path], tmp_path: Path) -> None:
    store, _ = add_to_store(tmp_path / "store", files[:4])
    other = tmp_path / "client-1.sig"
    shutil.copy(files[4], other)
    with pytest.raises(DataError, match="client-1: in the store with another signature, nothing was added"):
        add_files(store, [files[5], other])
    with pytest.raises(DataError, match="client-4: more than one client has this name"):
        add_files(store, [files[4], files[5], files[4]])
    assert len(SignatureStore(tmp_path / "store")) == 4


def test_a_disk_that_is_too_small_is_refused(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disk(NamedTuple):
        total: int = 10**9
        used: int = 10**9
        free: int = 1000

    store, _ = add_to_store(tmp_path / "store", files[:2])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk())
    with pytest.raises(DataError, match=r"5 signatures need 0\.07 GB, and the disk has 0\.00 GB left; make room"):
        add_files(store, files)
    assert len(SignatureStore(tmp_path / "store")) == 2


def test_arrays_are_added_as_files_are(tmp_path: Path) -> None:
    clients = simulated([30, 10], 50, dtype="float32")
    settings = SignatureSettings(50, 3, False, "raw", sigfile.NOT_PRIVATE)
    store = SignatureStore.create(tmp_path / "store", settings)
    names = [str(i) for i in range(40)]
    assert store.add(names, clients.bases, {"smallest": clients.split_half_angles}) == 40
    again = SignatureStore(tmp_path / "store")
    assert again.names == names
    assert np.allclose(again.bases, clients.bases, atol=1e-3)
    assert np.isnan(again.split_half_angles("sum")).all()
    with pytest.raises(DataError, match=r"bases must be \(1, 50, 3\) for 1 names"):
        store.add(["x"], clients.bases, {})
    with pytest.raises(DataError, match="x: no orthonormal basis"):
        store.add(["x"], 2 * clients.bases[:1], {})
    with pytest.raises(DataError, match="names that can be printed"):
        store.add(["a\nb"], clients.bases[:1], {})


def test_what_does_not_belong_together_is_refused(files: list[Path], tmp_path: Path) -> None:
    store, _ = add_to_store(tmp_path / "store", files[:2])
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(0).normal(size=(60, 40)))
    sign_file(x, tmp_path / "x.sig", rank=2)
    with pytest.raises(DataError, match="these differ in rank"):
        add_files(store, [tmp_path / "x.sig"])
    with pytest.raises(DataError, match="leave out --dimensions"):
        add_to_store(tmp_path / "store", files, dimensions=20)
    with pytest.raises(DataError, match=r"x\.npy: no signature file"):
        add_to_store(tmp_path / "store", [x])
    with pytest.raises(DataError, match="needs 12 dimensions or more, got 5"):
        add_to_store(tmp_path / "new", files, dimensions=5)
    with pytest.raises(DataError, match="is there and no store"):
        add_to_store(files[0].parent, files)
    with pytest.raises(DataError, match="is no store of signatures"):
        SignatureStore(tmp_path / "nothing")
    (tmp_path / "store" / "bases.f16").write_bytes(b"")
    with pytest.raises(DataError, match="is shorter than"):
        SignatureStore(tmp_path / "store")


def test_the_commands_add_and_show(files: list[Path], tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "store"
    code, out, err = run("store", "add", folder, files[0].parent, "--dimensions", 20)
    assert (code, err) == (0, "")
    assert "7 signatures added" in " ".join(out.split())
    found = json.loads(run("store", "show", folder, "--json")[1])
    assert (found["kind"], found["signatures"], found["sketch"]) == ("store", 7, "20 of 40 dimensions, seed 0")
    assert "20 of 40 dimensions" in run("store", "show", folder)[1]
    assert json.loads(run("store", "add", folder, *files, "--json")[1])["added"] == 0
    assert run("store", "add", folder, tmp_path)[0] == 1
