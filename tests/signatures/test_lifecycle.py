"""Clients that leave a federation: nobody else moves, and leaving undoes joining."""

from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import DataError
from pacfl.signatures import federation as federations
from pacfl.signatures import folder as folders
from pacfl.signatures.federation import Federation
from pacfl.signatures.lifecycle import leave
from pacfl.signatures.sigfile import SignatureFile
from tests.signatures.test_federation import client, federated, noise_alone
from tests.signatures.test_labelled_federation import party, too_small, two_kinds


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


def test_who_is_not_in_the_federation_cannot_leave() -> None:
    with pytest.raises(DataError, match="nobody: not in the federation, nothing was changed; its clients are g0-0, "):
        leave(three_groups(), ["g0-0", "nobody"])
