import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.errors import DataError
from pacfl.signatures import federation as federations
from pacfl.signatures import figures
from pacfl.signatures import folder as folders
from pacfl.signatures.federation import Federation
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import agglomerate, proximity, signature, split_half_angles


@cache
def client(group: int, seed: int, n: int = 80) -> SignatureFile:
    """Samples around one of three directions of a 30-dimensional space."""
    rng = np.random.default_rng([group, seed])
    x = rng.normal(size=(n, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10 * group : 10 * group + 3] += 4
    return SignatureFile(signature(x, 2).astype(np.float32), 2, False, "raw", n, split_half_angles(x, 2))


def federated(n_per_group: int = 5, **how: Any) -> Federation:
    return federations.federate({f"g{g}-{i}": client(g, i) for i in range(n_per_group) for g in range(2)}, **how)


def test_groups_are_found_and_the_threshold_reproduces_the_labels() -> None:
    federation = federated()
    assert sorted(map(sorted, federation.clusters())) == [[f"g{g}-{i}" for i in range(5)] for g in range(2)]
    clustering = federation.clustering
    assert np.array_equal(
        agglomerate(clustering.distances(), clustering.threshold, clustering.linkage), clustering.labels
    )


@pytest.mark.parametrize("n_clusters", range(1, 11))
def test_any_number_of_clusters_has_a_threshold_that_gives_it(n_clusters: int) -> None:
    federation = federated(clusters=n_clusters)
    clustering = federation.clustering
    assert len(federation.clusters()) == n_clusters
    assert np.array_equal(agglomerate(clustering.distances(), clustering.threshold), clustering.labels)


def test_a_given_threshold_cuts_the_angles_as_measured() -> None:
    clustering = federated(threshold=12.5).clustering
    assert clustering.threshold == 12.5
    assert np.array_equal(clustering.labels, agglomerate(clustering.proximity, 12.5))


def noise_alone(seed: int) -> SignatureFile:
    x = np.random.default_rng(seed).normal(size=(80, 30))
    return SignatureFile(signature(x, 2).astype(np.float32), 2, False, "raw", 80, split_half_angles(x, 2))


def test_clients_of_pure_noise_are_in_no_cluster_stored_and_when_they_join(tmp_path: Path) -> None:
    clients = {f"g{g}-{i}": client(g, i) for i in range(5) for g in range(2)}
    federation = federations.federate({"noise": noise_alone(0), **clients})
    assert sorted(map(sorted, federation.clusters())) == [[f"g{g}-{i}" for i in range(5)] for g in range(2)]
    assert list(federation.not_judged()) == ["noise"]
    folders.save(federation, tmp_path)
    again = folders.load(tmp_path)
    assert again.summary() == federation.summary()
    joined = federations.join(again, {"more noise": noise_alone(1), "late": client(1, 99)})
    assert joined.placed == {"more noise": -1, "late": again.clustering.labels[again.names.index("g1-0")]}
    assert list(joined.federation.not_judged()) == ["noise", "more noise"]
    assert joined.suggestions == ()
    assert joined.federation.size() == "13 clients in 2 clusters, 2 not judged"


def test_where_nobody_can_be_compared_there_is_no_cluster() -> None:
    federation = federations.federate({f"c{i}": noise_alone(i) for i in range(6)})
    assert federation.clusters() == []
    assert len(federation.not_judged()) == 6
    assert federation.summary()["evidence"]["finding"] == "undetermined"
    assert [row[0] for row in federation.table()[1:]] == ["none"]


def test_newcomers_join_their_group_or_open_one_and_no_member_moves() -> None:
    before = federated()
    joined = federations.join(before, {"late": client(1, 99), "other": client(2, 0), "other too": client(2, 1)})
    after = joined.federation
    assert np.array_equal(after.clustering.labels[: len(before.names)], before.clustering.labels)
    assert after.clustering.labels[-3] == before.clustering.labels[before.names.index("g1-0")]
    assert after.clustering.labels[-2] == after.clustering.labels[-1] == before.clustering.labels.max() + 1
    assert joined.opened == [2]
    assert joined.placed == dict(zip(joined.placed, after.clustering.labels[-3:].tolist(), strict=True))
    assert joined.suggestions == ()


def test_extension_equals_recomputation() -> None:
    before = federated()
    after = federations.join(before, {"late": client(1, 99)}).federation
    recomputed = proximity(list(after.bases))
    assert np.allclose(after.clustering.proximity, recomputed, atol=1e-5)


def test_a_stored_federation_is_loaded_unchanged(tmp_path: Path) -> None:
    before = federated()
    folders.save(before, tmp_path)
    after = folders.load(tmp_path)
    assert after.summary() == before.summary()
    assert after.settings == before.settings
    assert np.array_equal(after.clustering.proximity, before.clustering.proximity)
    assert all(np.array_equal(a, b) for a, b in zip(after.bases, before.bases, strict=True))


def test_a_member_cannot_join_twice() -> None:
    with pytest.raises(DataError, match="g0-0: already in the federation"):
        federations.join(federated(), {"g0-0": client(0, 0)})


def test_a_damaged_or_foreign_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a federation folder"):
        folders.load(tmp_path)
    folders.save(federated(), tmp_path)
    content = (tmp_path / folders.STATE).read_bytes()
    (tmp_path / folders.STATE).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"proximity\.npz: cannot be read"):
        folders.load(tmp_path)


def test_a_failure_while_saving_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = federated()
    folders.save(before, tmp_path)
    after = federations.join(before, {"late": client(1, 99)}).federation

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        folders.save(after, tmp_path)
    assert folders.load(tmp_path).names == before.names
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([folders.STATE, folders.SUMMARY])


def test_the_proximity_is_stored_once_for_each_pair(tmp_path: Path) -> None:
    """10 clients have 45 pairs: 360 bytes instead of 800 for the square matrix."""
    folders.save(federated(), tmp_path)
    with np.load(tmp_path / folders.STATE) as state:
        assert state["proximity"].shape == (45,)
        assert state["proximity"].dtype == np.float64


@pytest.mark.parametrize("n_per_group", [1, 2])
def test_federations_of_any_size_are_stored(tmp_path: Path, n_per_group: int) -> None:
    for names in (["g0-0"], None):
        whole = {f"g{g}-{i}": client(g, i) for i in range(n_per_group) for g in range(2)}
        before = federations.federate({n: c for n, c in whole.items() if names is None or n in names})
        folders.save(before, tmp_path)
        assert np.array_equal(folders.load(tmp_path).clustering.proximity, before.clustering.proximity)


def test_a_folder_of_another_format_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """Format 1 stored the square matrix and other settings."""
    federation = federated(3)
    folders.save(federation, tmp_path)
    with np.load(tmp_path / folders.STATE) as state:
        arrays = dict(state)
    settings = json.loads(str(arrays["settings"])) | {"format": 1, "how": {"rank": 2}}
    del settings["signatures"]
    arrays |= {"proximity": federation.clustering.proximity, "settings": np.array(json.dumps(settings))}
    with (tmp_path / folders.STATE).open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(DataError, match="another release of pacfl; cluster again"):
        folders.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rank": 3}, "rank: 2: the federation; 3: late"),
        ({"preprocess": "unit"}, "preprocessing: raw: the federation; unit: late"),
        ({"per_class": True}, "per-class decomposition"),
        ({"basis": np.eye(31, 2, dtype=np.float32)}, "features: 30: the federation; 31: late"),
    ],
    ids=str,
)
def test_newcomers_signed_with_other_settings_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        federations.join(federated(), {"late": replace(client(1, 99), **change)})


def test_one_signature_of_another_rank_is_refused() -> None:
    """Rank 20 of 30 features shares a direction with every other signature: all angles to it are 0."""
    x = np.random.default_rng(0).normal(size=(80, 30))
    large = SignatureFile(signature(x, 20).astype(np.float32), 20, False, "raw", 80, {})
    with pytest.raises(DataError, match="differ in rank: 2: a; 20: b"):
        federations.federate({"a": client(0, 0), "b": large})


def test_the_evidence_of_normalised_data_is_not_guaranteed() -> None:
    clients = {f"g{g}-{i}": client(g, i) for i in range(3) for g in range(2)}
    assert federations.federate(clients).clustering.evidence["guaranteed"] is True
    normalised = {name: replace(c, preprocess="grey, normalise") for name, c in clients.items()}
    evidence = federations.federate(normalised).clustering.evidence
    assert evidence["guaranteed"] is False
    assert "normalise" in str(evidence["not_guaranteed_because"])


def test_pictures_of_an_earlier_federation_are_removed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    folders.save(federated(), tmp_path, "png")
    folders.save(federated(3), tmp_path, "svg")
    assert {p.name for p in tmp_path.iterdir()} >= {"dendrogram.svg", "heatmap.svg"}
    folders.save(federated(2), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([folders.STATE, folders.SUMMARY])


@pytest.mark.parametrize("kind", figures.PICTURES)
def test_pictures_are_drawn(tmp_path: Path, kind: figures.Picture) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    starts = {"svg": b"<?xml", "png": b"\x89PNG"}
    for path in figures.draw(federated(), tmp_path, kind):
        assert path.read_bytes().startswith(starts[kind])
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"dendrogram.{kind}", f"heatmap.{kind}"]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("labels", np.array([0, 0, 2, 2, 2, 2])),
        ("labels", np.array([-1, 0, 0, 0, 0, 0])),
        ("noise_scale", np.zeros(6)),
        ("names", np.array(["a"] * 6)),
        ("proximity", np.full(15, np.nan)),
        ("proximity", np.ones(10)),
        ("proximity", np.ones(14)),
        ("bases", np.full((6, 30, 2), 7.0)),
    ],
    ids=str,
)
def test_a_state_whose_parts_do_not_belong_together_is_refused(tmp_path: Path, part: str, value: np.ndarray) -> None:
    """Found by fuzzing: it was read, and made its users fail."""
    folders.save(federated(3), tmp_path)
    with np.load(tmp_path / "proximity.npz") as state:
        arrays = dict(state)
    assert len(arrays["names"]) == 6
    with (tmp_path / "proximity.npz").open("wb") as file:
        np.savez(file, **{**arrays, part: value})
    with pytest.raises(DataError, match="was it damaged"):
        folders.load(tmp_path)
