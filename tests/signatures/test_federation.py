from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.errors import DataError
from pacfl.signatures import federation as federations
from pacfl.signatures import figures
from pacfl.signatures.federation import Federation
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import agglomerate, cluster, proximity, signature, split_half_angles


def client(group: int, seed: int, n: int = 80) -> SignatureFile:
    """Samples around one of three directions of a 30-dimensional space."""
    rng = np.random.default_rng([group, seed])
    x = rng.normal(size=(n, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10 * group : 10 * group + 3] += 4
    return SignatureFile(signature(x, 2).astype(np.float32), 2, False, "raw", n, split_half_angles(x, 2))


def made(n_per_group: int = 5, **how: Any) -> Federation:
    clients = {f"g{g}-{i}": client(g, i) for i in range(n_per_group) for g in range(2)}
    angles = proximity([c.basis for c in clients.values()])
    return federations.found(clients, cluster(angles, federations.own_angles(clients, "smallest"), **how))


def test_groups_are_found_and_the_threshold_gives_the_labels_again() -> None:
    federation = made()
    assert sorted(map(sorted, federation.clusters())) == [[f"g{g}-{i}" for i in range(5)] for g in range(2)]
    clustering = federation.clustering
    assert np.array_equal(
        agglomerate(clustering.distances(), clustering.threshold, clustering.linkage), clustering.labels
    )


@pytest.mark.parametrize("n_clusters", range(1, 11))
def test_any_number_of_clusters_can_be_had_with_the_threshold_that_gives_it(n_clusters: int) -> None:
    federation = made(n_clusters=n_clusters)
    clustering = federation.clustering
    assert len(federation.clusters()) == n_clusters
    assert np.array_equal(agglomerate(clustering.distances(), clustering.threshold), clustering.labels)


def test_a_given_threshold_cuts_the_angles_as_measured() -> None:
    clustering = made(threshold=12.5).clustering
    assert clustering.threshold == 12.5
    assert np.array_equal(clustering.labels, agglomerate(clustering.proximity, 12.5))


def test_a_newcomer_joins_its_like_and_nobody_moves() -> None:
    before = made()
    after, bridges = federations.joined(
        before, {"late": client(1, 99), "stranger": client(2, 0), "strange too": client(2, 1)}
    )
    assert np.array_equal(after.clustering.labels[: len(before.names)], before.clustering.labels)
    assert after.clustering.labels[-3] == before.clustering.labels[before.names.index("g1-0")]
    assert after.clustering.labels[-2] == after.clustering.labels[-1] == before.clustering.labels.max() + 1
    assert bridges == ()


def test_extension_equals_founding_with_everybody() -> None:
    before = made()
    after, _ = federations.joined(before, {"late": client(1, 99)})
    everybody = proximity(list(after.bases))
    assert np.allclose(after.clustering.proximity, everybody, atol=1e-5)


def test_a_saved_federation_is_loaded_as_it_was(tmp_path: Path) -> None:
    before = made()
    federations.save(before, tmp_path)
    after = federations.load(tmp_path)
    assert after.summary() == before.summary()
    assert np.array_equal(after.clustering.proximity, before.clustering.proximity)
    assert all(np.array_equal(a, b) for a, b in zip(after.bases, before.bases, strict=True))


def test_a_member_cannot_join_twice() -> None:
    with pytest.raises(DataError, match="g0-0: already in the federation"):
        federations.joined(made(), {"g0-0": client(0, 0)})


def test_a_damaged_or_foreign_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a federation folder"):
        federations.load(tmp_path)
    federations.save(made(), tmp_path)
    content = (tmp_path / federations.STATE).read_bytes()
    (tmp_path / federations.STATE).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"proximity\.npz: cannot be read"):
        federations.load(tmp_path)


def test_a_failure_while_saving_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = made()
    federations.save(before, tmp_path)
    after, _ = federations.joined(before, {"late": client(1, 99)})

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        federations.save(after, tmp_path)
    assert federations.load(tmp_path).names == before.names
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([federations.STATE, federations.SUMMARY])


@pytest.mark.parametrize("kind", figures.PICTURES)
def test_pictures_are_drawn(tmp_path: Path, kind: figures.Picture) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    starts = {"svg": b"<?xml", "png": b"\x89PNG"}
    for path in figures.draw(made(), tmp_path, kind):
        assert path.read_bytes().startswith(starts[kind])
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"dendrogram.{kind}", f"heatmap.{kind}"]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("labels", np.array([0, 0, 2, 2, 2, 2])),
        ("labels", np.array([-1, 0, 0, 0, 0, 0])),
        ("noise_scale", np.zeros(6)),
        ("names", np.array(["a"] * 6)),
        ("proximity", np.full((6, 6), np.nan)),
        ("bases", np.full((6, 30, 2), 7.0)),
    ],
    ids=str,
)
def test_a_state_whose_parts_do_not_belong_together_is_refused(tmp_path: Path, part: str, value: np.ndarray) -> None:
    """Found by fuzzing: it was read, and failed whoever used it."""
    federations.save(made(3), tmp_path)
    with np.load(tmp_path / "proximity.npz") as state:
        arrays = dict(state)
    assert len(arrays["names"]) == 6
    with (tmp_path / "proximity.npz").open("wb") as file:
        np.savez(file, **{**arrays, part: value})
    with pytest.raises(DataError, match="was it damaged"):
        federations.load(tmp_path)
