from pathlib import Path

import numpy as np
import pytest

from pacfl.alike import federation as federations
from pacfl.alike import figures
from pacfl.alike.federation import Federation
from pacfl.alike.reading import DataError
from pacfl.alike.sigfile import SignatureFile
from pacfl.subspace import agglomerate, proximity, self_angles, signature


def client(group: int, seed: int, n: int = 80) -> SignatureFile:
    """Samples around one of three directions of a 30-dimensional space."""
    rng = np.random.default_rng([group, seed])
    x = rng.normal(size=(n, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10 * group : 10 * group + 3] += 4
    return SignatureFile(signature(x, 2).astype(np.float32), 2, False, "raw", n, self_angles(x, 2))


def made(n_per_group: int = 5) -> Federation:
    clients = {f"g{g}-{i}": client(g, i) for i in range(n_per_group) for g in range(2)}
    angles = proximity([c.basis for c in clients.values()])
    return federations.found(clients, angles, "smallest", "average")


def test_groups_are_found_and_the_threshold_gives_the_labels_again() -> None:
    federation = made()
    assert sorted(map(sorted, federation.clusters())) == [[f"g{g}-{i}" for i in range(5)] for g in range(2)]
    again = agglomerate(federation.distances(), federation.threshold, federation.linkage)
    assert np.array_equal(again, federation.labels)


@pytest.mark.parametrize("n_clusters", range(1, 11))
def test_any_number_of_clusters_can_be_had_with_the_threshold_that_gives_it(n_clusters: int) -> None:
    clients = {f"g{g}-{i}": client(g, i) for i in range(5) for g in range(2)}
    angles = proximity([c.basis for c in clients.values()])
    federation = federations.found(clients, angles, "smallest", "average", n_clusters=n_clusters)
    assert len(federation.clusters()) == n_clusters
    assert np.array_equal(agglomerate(federation.distances(), federation.threshold), federation.labels)


def test_a_given_threshold_cuts_the_angles_as_measured() -> None:
    clients = {f"g{g}-{i}": client(g, i) for i in range(3) for g in range(2)}
    angles = proximity([c.basis for c in clients.values()])
    federation = federations.found(clients, angles, "smallest", "average", threshold=12.5)
    assert federation.threshold == 12.5
    assert np.array_equal(federation.labels, agglomerate(angles, 12.5))


def test_a_newcomer_joins_its_like_and_nobody_moves() -> None:
    before = made()
    after, bridges = federations.joined(
        before, {"late": client(1, 99), "stranger": client(2, 0), "strange too": client(2, 1)}
    )
    assert np.array_equal(after.labels[: len(before.names)], before.labels)
    assert after.labels[-3] == before.labels[before.names.index("g1-0")]
    assert after.labels[-2] == after.labels[-1] == before.labels.max() + 1
    assert bridges == ()


def test_extension_equals_founding_with_everybody() -> None:
    before = made()
    after, _ = federations.joined(before, {"late": client(1, 99)})
    everybody = proximity(list(after.bases))
    assert np.allclose(after.proximity, everybody, atol=1e-5)


def test_a_saved_federation_is_loaded_as_it_was(tmp_path: Path) -> None:
    before = made()
    federations.save(before, tmp_path)
    after = federations.load(tmp_path)
    assert after.summary() == before.summary()
    assert np.array_equal(after.proximity, before.proximity)
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
