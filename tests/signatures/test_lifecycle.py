"""Clients that leave a federation: nobody else moves, and leaving undoes joining."""

from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import DataError
from pacfl.features import Reading, init_schema
from pacfl.features.reading import Samples
from pacfl.privacy import private_signature, seeded
from pacfl.signatures import cluster_files, sign_file
from pacfl.signatures import federation as federations
from pacfl.signatures import folder as folders
from pacfl.signatures.federation import Federation
from pacfl.signatures.lifecycle import leave, replace_client
from pacfl.signatures.sigfile import SignatureFile
from pacfl.signatures.signing import sign
from pacfl.subspace import proximity, signature, split_half_angles
from tests.signatures.test_federation import client, federated, noise_alone
from tests.signatures.test_labelled_federation import party, too_small, two_kinds
from tests.signatures.test_table_signatures import write_site


@cache
def three_groups() -> Federation:
    return federations.federate({f"g{g}-{i}": client(g, i) for g in range(3) for i in range(4)})


def state(federation: Federation, folder: Path) -> dict[str, bytes]:
    """All that is stored of a federation."""
    folder.mkdir()
    folders.save(federation, folder)
    with np.load(folder / folders.STATE) as stored:
        return {name: stored[name].tobytes() for name in stored.files}


def labels(federation: Federation) -> dict[str, int]:
    return dict(zip(federation.names, federation.clustering.labels.tolist(), strict=True))


NEWCOMERS: dict[str, dict[str, SignatureFile]] = {
    "inputs": {"late": client(1, 99), "other": client(2, 0), "noise": noise_alone(3)},
    "classes": {
        "late": party(50, 1),
        "new kind": party(51, 2),
        "little": too_small(),
        "unlabelled": party(52, 0, False),
    },
}


@pytest.mark.parametrize("kind", ["inputs", "classes"])
def test_leaving_undoes_joining(tmp_path: Path, kind: str) -> None:
    before = federated() if kind == "inputs" else two_kinds()
    newcomers = NEWCOMERS[kind]
    joined = federations.join(before, newcomers)
    assert joined.opened
    assert state(leave(joined.federation, list(newcomers)), tmp_path / "after") == state(before, tmp_path / "before")


@pytest.mark.parametrize("which", ["inputs", "classes"])
def test_the_order_of_leaving_does_not_matter(tmp_path: Path, which: str) -> None:
    federation, names = (three_groups(), ("g0-0", "g1-2", "g1-0")) if which == "inputs" else (two_kinds(), ("p0", "p3"))
    together = state(leave(federation, names), tmp_path / "together")
    for order in permutations(names):
        left = federation
        for name in order:
            left = leave(left, [name])
        assert state(left, tmp_path / "-".join(order)) == together


def test_nobody_else_moves_and_an_emptied_cluster_stays_empty(tmp_path: Path) -> None:
    before = three_groups()
    assert len(before.clusters()) == 3
    middle = before.clusters()[1]
    after = leave(before, middle)
    assert labels(after) == {name: k for name, k in labels(before).items() if name not in middle}
    assert after.clusters() == [before.clusters()[0], [], before.clusters()[2]]
    assert after.size() == "8 clients in 2 clusters"
    assert [row[0] for row in after.table()] == ["cluster", "0", "2"]
    assert [pair.clusters for pair in after.diagnosis.pairs] == [(0, 2)]
    assert "Clusters 0 and 2" in after.diagnosis.words
    assert "cluster 2" in after.explain(0, 2, "clusters").words
    with pytest.raises(DataError, match="there are 2 clusters, 0, 2"):
        after.explain(0, 1, "clusters")
    folders.save(after, tmp_path)
    assert folders.load(tmp_path).summary() == after.summary()


def test_nobody_joins_an_emptied_cluster_and_its_number_is_not_given_again() -> None:
    middle = three_groups().clusters()[1]
    joined = federations.join(leave(three_groups(), middle), {"late": client(0, 50), "again": client(1, 50)})
    assert joined.placed == {"late": 0, "again": 3}
    assert joined.opened == [3]


def test_where_classes_were_compared_the_others_stay_where_they_were(tmp_path: Path) -> None:
    before = two_kinds()
    after = leave(before, before.clusters()[0])
    assert after.clusters() == [[], before.clusters()[1]]
    assert list(after.not_judged()) == ["small"]
    folders.save(after, tmp_path)
    again = folders.load(tmp_path)
    assert again.summary() == after.summary()
    assert federations.join(again, {"late": party(50, 1)}).placed == {"late": 1}


def test_one_client_may_be_left_but_not_none(tmp_path: Path) -> None:
    names = three_groups().names
    alone = leave(three_groups(), names[:-1])
    assert alone.names == names[-1:]
    folders.save(alone, tmp_path)
    assert labels(folders.load(tmp_path)) == {names[-1]: 2}
    with pytest.raises(DataError, match="nobody would be left"):
        leave(alone, names[-1:])


def test_newcomers_of_its_distribution_join_the_only_client_and_others_do_not() -> None:
    alone = federations.federate({"first": client(0, 0)})
    for seed in range(20, 40):
        assert federations.join(alone, {"late": client(0, seed)}).placed == {"late": 0}
        assert federations.join(alone, {"late": client(1, seed)}).placed == {"late": 1}


def test_the_only_client_may_send_a_new_signature(tmp_path: Path) -> None:
    alone = leave(three_groups(), three_groups().names[:-1])
    (name,) = alone.names
    assert replace_client(alone, name, client(2, 3)).federation is alone
    for group, drifted in ((2, False), (0, True)):
        replaced = replace_client(alone, name, client(group, 60))
        assert (replaced.drift.drifted, labels(replaced.federation)) == (drifted, {name: 2})
        (tmp_path / str(group)).mkdir()
        folders.save(replaced.federation, tmp_path / str(group))
        again = folders.load(tmp_path / str(group))
        assert again.summary() == replaced.federation.summary()
        assert federations.join(again, {"late": client(group, 61)}).placed == {"late": 2}


@pytest.mark.parametrize("kind", ["inputs", "classes"])
def test_newcomers_are_not_compared_with_a_client_that_drifted(kind: str) -> None:
    """Most of cluster 0 drifts to what cluster 1 is and stays: newcomers go where they would have gone before."""
    before = three_groups() if kind == "inputs" else two_kinds()
    newcomers = {"a": late(0, 80), "b": late(1, 80)} if kind == "inputs" else {"a": party(50, 0), "b": party(51, 1)}
    drifted = [name for name in before.clusters()[0] if name != "small"][:-1]
    after = before
    for i, name in enumerate(drifted):
        after = replace_client(after, name, late(1, 80, 70 + i) if kind == "inputs" else party(60 + i, 1)).federation
    assert set(after.drifted) == set(drifted)
    joined = federations.join(after, newcomers)
    assert joined.placed == federations.join(before, newcomers).placed == {"a": 0, "b": 1}
    assert labels(joined.federation) == {**labels(before), **joined.placed}


def test_a_runner_up_that_all_have_left_is_not_shown() -> None:
    joined = federations.join(federated(), {"late": client(0, 99)}).federation
    assert joined.newcomers["late"].runner_up == 1
    gone = leave(joined, [f"g1-{i}" for i in range(5)]).newcomers["late"]
    assert (gone.cluster, gone.runner_up, gone.runner_up_distance) == (0, None, None)


def test_who_is_not_in_the_federation_cannot_leave() -> None:
    with pytest.raises(DataError, match="nobody: not in the federation, nothing was changed; its clients are g0-0, "):
        leave(three_groups(), ["g0-0", "nobody"])


def late(group: int, n: int, seed: int = 60) -> SignatureFile:
    return client(group, seed, n)


@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("kind", ["inputs", "classes"])
def test_the_same_signature_changes_nothing(kind: str, move: bool) -> None:
    before, name, same = (
        (three_groups(), "g1-2", client(1, 2)) if kind == "inputs" else (two_kinds(), "p3", party(3, 1))
    )
    replaced = replace_client(before, name, same, move=move)
    assert replaced.federation is before
    assert replaced.drift.compared == kind
    assert not replaced.drift.drifted
    assert replaced.drift.size < 1e-3


@pytest.mark.parametrize("kind", ["inputs", "classes"])
def test_a_new_sample_of_the_same_distribution_has_not_drifted(tmp_path: Path, kind: str) -> None:
    before, name, new = (three_groups(), "g1-2", late(1, 80)) if kind == "inputs" else (two_kinds(), "p3", party(60, 1))
    replaced = replace_client(before, name, new)
    after, at = replaced.federation, before.names.index(name)
    assert not replaced.drift.drifted
    assert 0.3 < replaced.drift.size < replaced.drift.limit
    assert after.names == before.names
    assert labels(after) == labels(before)
    assert np.array_equal(after.bases[at], new.basis)
    assert np.allclose(after.clustering.proximity, proximity(list(after.bases)), atol=1e-5)
    folders.save(after, tmp_path)
    assert folders.load(tmp_path).summary() == after.summary()


@pytest.mark.parametrize("kind", ["inputs", "classes"])
def test_who_drifted_stays_unless_asked_to_move(tmp_path: Path, kind: str) -> None:
    before, name, new = (three_groups(), "g1-2", late(2, 80)) if kind == "inputs" else (two_kinds(), "p3", party(60, 0))
    own, other = (1, 2) if kind == "inputs" else (1, 0)
    stayed = replace_client(before, name, new)
    assert stayed.drift.drifted
    assert stayed.drift.size > 3
    assert (stayed.before, stayed.cluster, stayed.drift.fits) == (own, own, other)
    assert labels(stayed.federation) == labels(before)
    assert stayed.federation.drifted == {name: stayed.drift}
    folders.save(stayed.federation, tmp_path)
    stored = folders.load(tmp_path)
    assert stored.summary() == stayed.federation.summary()
    for start in (before, stored):  # the choice may be made later, with the same file
        moved = replace_client(start, name, new, move=True)
        assert (moved.before, moved.cluster) == (own, other)
        assert labels(moved.federation) == {**labels(before), name: other}
        assert moved.federation.drifted == {}
    assert leave(stored, [name]).drifted == {}


def test_who_is_alone_in_a_cluster_has_its_number_whatever_it_sends() -> None:
    before = leave(three_groups(), ["g1-0", "g1-1", "g1-2"])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 30)) * 0.3
    x[:, 7] += 5
    new = SignatureFile(signature(x, 2).astype(np.float32), 2, False, "raw", 80, split_half_angles(x, 2))
    replaced = replace_client(before, "g1-3", new, move=True)
    assert replaced.drift.drifted
    assert replaced.cluster == replaced.drift.fits == 1
    assert labels(replaced.federation) == labels(before)


def test_who_could_not_be_judged_is_placed_by_a_better_signature() -> None:
    before = federations.join(federated(), {"late": noise_alone(1)}).federation
    assert list(before.not_judged()) == ["late"]
    replaced = replace_client(before, "late", client(1, 99))
    assert (replaced.before, replaced.cluster) == (-1, labels(before)["g1-0"])
    assert replaced.federation.not_judged() == {}


def test_a_signature_that_cannot_be_judged_leaves_its_client_where_it_is() -> None:
    replaced = replace_client(federated(), "g1-0", noise_alone(1), move=True)
    assert replaced.before == replaced.cluster >= 0
    assert not replaced.drift.drifted
    assert "cannot be said: its own noise" in replaced.drift.words()
    assert replaced.federation.not_judged() == {}


def test_drift_of_private_signatures_is_tested() -> None:
    def private(group: int, seed: int) -> SignatureFile:
        rng = np.random.default_rng([group, seed])
        x = rng.normal(size=(2000, 12))
        x[:, 4 * group : 4 * group + 2] += 4
        made = private_signature(x, 2, 8.0, noise=seeded(rng))
        return SignatureFile(
            made.basis.astype(np.float32), 2, False, "raw", None, made.split_half_angles, made.guarantee
        )

    before = federations.federate({f"g{g}-{i}": private(g, i) for g in range(2) for i in range(4)})
    assert len(before.clusters()) == 2
    assert not replace_client(before, "g0-1", private(0, 50)).drift.drifted
    moved = replace_client(before, "g0-1", private(1, 50), move=True)
    assert moved.drift.drifted
    assert moved.cluster == labels(before)["g1-0"]


def test_newcomers_say_how_far_their_cluster_and_the_next_one_are() -> None:
    after = federations.join(federated(), {"late": client(1, 99), "other": client(2, 0)}).federation
    late_one, other = after.newcomers["late"], after.newcomers["other"]
    assert late_one.distance is not None
    assert late_one.runner_up_distance is not None
    assert 0.5 < late_one.distance < 1.5
    assert late_one.runner_up_distance > 5 * late_one.distance
    assert (late_one.cluster, late_one.runner_up) == (labels(after)["g1-0"], labels(after)["g0-0"])
    assert (other.opened, other.distance, other.merge) == (True, None, False)
    assert other.runner_up in (0, 1)
    assert not late_one.warnings()


@pytest.mark.parametrize("kind", ["inputs", "classes"])
def test_a_copy_of_somebody_elses_signature_is_noticed(kind: str) -> None:
    cases = {
        "inputs": (federated(), "g1-2", client(1, 2), client(1, 70)),
        "classes": (two_kinds(), "p3", party(3, 1), party(70, 1)),
    }
    before, copied, copy, fresh = cases[kind]
    after = federations.join(before, {"copy": copy, "fresh": fresh, "copy of fresh": fresh}).federation
    assert [one.copy_of for one in after.newcomers.values()] == [copied, None, "fresh"]
    assert f"nearer to that of {copied}" in after.newcomers["copy"].warnings()[0]


def test_who_signs_nearly_the_same_samples_is_noticed() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10:13] += 4

    def signed(rows: np.ndarray) -> SignatureFile:
        return SignatureFile(
            signature(rows, 2).astype(np.float32), 2, False, "raw", len(rows), split_half_angles(rows, 2)
        )

    before = federations.federate({**{f"g1-{i}": client(1, i) for i in range(5)}, "whole": signed(x)})
    after = federations.join(before, {"nearly": signed(x[:-4])}).federation
    assert after.newcomers["nearly"].copy_of == "whole"


def test_a_party_too_small_to_tell_clusters_apart_is_noticed() -> None:
    """Two clusters 20 degrees apart; five samples cannot say which of them they are from, and eighty can."""

    def turned(angle: float, seed: int, n: int) -> SignatureFile:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, 20)) * 0.8
        x[:, 0] += 3 * np.cos(angle)
        x[:, 1] += 3 * np.sin(angle)
        return SignatureFile(signature(x, 1).astype(np.float32), 1, False, "raw", n, split_half_angles(x, 1))

    before = federations.federate({f"g{g}-{i}": turned(0.35 * g, 10 * g + i, 300) for g in range(2) for i in range(5)})
    assert len(before.clusters()) == 2
    after = federations.join(before, {"small": turned(0.0, 99, 5), "large": turned(0.0, 98, 80)}).federation
    assert after.newcomers["small"].too_small
    assert not after.newcomers["large"].too_small
    assert "too few samples to be placed with confidence" in after.newcomers["small"].warnings()[0]
    assert "small" not in after.merge_suggestions()


def test_of_clients_without_labels_inputs_say_whether_they_are_too_small() -> None:
    """Two kinds of inputs with labels: a newcomer without is judged by the limit of inputs, not by that of classes."""

    def made(kind: int, seed: int, n: int, labels: bool) -> SignatureFile:
        rng, y = np.random.default_rng([kind, seed]), np.arange(n) % 3
        x = rng.normal(size=(n, 12)) + 3 * np.eye(12)[y] + 2
        x[:, 5] += kind
        return sign("one", Samples(x, y if labels else None), 1, Reading(labels="y" if labels else None))

    labelled = federations.federate({f"c{i}": made(i % 2, i, 120, True) for i in range(6)})
    inputs = federations.federate({f"c{i}": made(i % 2, i, 120, False) for i in range(6)})
    assert labelled.clustering.inputs is not None
    assert labelled.clustering.labels.tolist() == inputs.clustering.labels.tolist() == [0, 1] * 3
    newcomers = {f"n{n}": made(0, n, n, False) for n in range(6, 60, 9)}
    said = [
        {name: one.too_small for name, one in federations.join(before, newcomers).federation.newcomers.items()}
        for before in (labelled, inputs)
    ]
    assert said[0] == said[1]
    assert set(said[0].values()) == {True, False}


def test_history_counts_who_came_and_left() -> None:
    joined = federations.join(federated(), {"late": client(1, 99), "other": client(2, 0)}).federation
    assert federated().history() == ""
    assert leave(joined, ["g0-0", "other"]).history() == "10 clients clustered; 1 joined and 1 left since."


def test_drift_of_a_column_is_noticed(tmp_path: Path) -> None:
    """Hospitals of adults and of children: a hospital of adults that now has children drifted in its age."""
    sites = [write_site(tmp_path / f"site{i}.csv", i, 60.0 if i < 4 else 8.0) for i in range(6)]
    how = Reading(schema=init_schema(sites))
    cluster_files(sites, reading=how, output=tmp_path / "federation")
    before = folders.load(tmp_path / "federation")

    def sent(seed: int, age: float) -> SignatureFile:
        return sign_file(write_site(tmp_path / "site0.csv", seed, age), tmp_path / "site0.sig", reading=how)

    same = replace_client(before, "site0", sent(0, 60.0), move=True)
    assert same.federation is before
    redrawn = replace_client(before, "site0", sent(30, 60.0))
    assert not redrawn.drift.drifted
    moved = replace_client(before, "site0", sent(31, 8.0), move=True)
    assert moved.drift.drifted
    assert (moved.drift.compared, moved.drift.column) == ("columns", "age")
    assert "its column age is" in moved.drift.words()
    assert (moved.before, moved.cluster) == (0, 1)
    joined = federations.join(before, {"late": sent(32, 8.0)}).federation.newcomers["late"]
    assert (joined.cluster, joined.runner_up, joined.too_small) == (1, 0, False)
    assert joined.distance is not None
    assert joined.runner_up_distance is not None
    assert joined.distance < joined.runner_up_distance
