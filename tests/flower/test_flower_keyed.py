"""The key of a site is in its own configuration: the server gets directions that it cannot see."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from pacfl.algorithms import build
from pacfl.errors import ConfigError, DataError
from pacfl.experiment.federations import federation_in
from pacfl.experiment.store import RunFolder
from pacfl.federation.private import keyed_profile, used_key
from pacfl.flower import settings
from pacfl.flower.server import federate
from pacfl.flower.signature_ledger import Budget
from pacfl.folders import required
from pacfl.signatures.keying import unkeyed_federation
from pacfl.signatures.keys import key_id
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.flower.test_signature_ledger import DELTA, PRIVATE, requested, spent
from tests.small_federation import lively, same

pytestmark = pytest.mark.usefixtures("identity")
KEY, OTHER = b"a key of the federation", b"another key of all sites"


@pytest.fixture
def keys(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "key", tmp_path / "other"]
    for path, key in zip(paths, (KEY, OTHER), strict=True):
        path.write_bytes(key)
    return list(map(str, paths))


def test_a_site_sends_what_it_would_have_sent_under_its_key(tmp_path: Path, keys: list[str]) -> None:
    plain = requested(lively("pacfl"), tmp_path / "a")
    keyed = requested(lively("pacfl"), tmp_path / "b", signature_key=keys[0])
    assert same(keyed, keyed_profile(plain, KEY))
    assert used_key(keyed) == key_id(KEY)


def test_another_key_costs_no_privacy(tmp_path: Path, keys: list[str]) -> None:
    """The ledger has the private signature without a key: under another one it is the same noise."""
    plain = requested(build(**PRIVATE), tmp_path)
    for path, key in zip(keys, (KEY, OTHER), strict=True):
        assert same(requested(build(**PRIVATE), tmp_path, signature_key=path), keyed_profile(plain, key))
    assert spent(tmp_path) == Budget(2.0, DELTA)


class Sites(FakeGrid):
    """Nodes with the keys of their sites."""

    def __init__(self, folder: Path, keys: dict[int, str]) -> None:
        super().__init__(client_loader(build("pacfl", threshold=12.0), folder / "memory"), sorted(keys))
        self.keys = keys

    def context(self, node: int) -> Context:
        own = {"signature-key": self.keys[node]} if self.keys[node] else {}
        return Context(1, node, {"partition-id": node - 100, **own}, RecordDict(), {})


def config(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "settings": "",
        "federation.folder": str(folder / "federation"),
        "federation.task": "tests.flower.small_task",
        "federation.minimum-clients": 6,
        "federation.poll": 0.01,
        "federation.delivery": 0.0,
        "algorithm.name": "pacfl",
        "algorithm.threshold": 12.0,
        "schedule.rounds": 1,
        "schedule.participation": 1.0,
        **more,
    }


def trained(folder: Path, keys: dict[int, str], **more: Any) -> tuple[dict[str, int], list[str], Sites]:
    """Clusters by client, what went wrong, and the grid."""
    grid = Sites(folder, keys)
    federate(grid, Context(1, 1, {}, RecordDict(), config(folder, **more)))
    last = RunFolder(folder / "federation").records()[-1]
    failures = [line for line in (folder / "federation" / "server.log").read_text().splitlines() if "refused" in line]
    return last["cluster_of"], failures, grid


def test_a_federation_with_a_key_has_the_clusters_of_one_without(tmp_path: Path, keys: list[str]) -> None:
    plain, *_ = trained(tmp_path / "a", dict.fromkeys(range(100, 106), ""))
    keyed, failures, grid = trained(tmp_path / "b", dict.fromkeys(range(100, 106), keys[0]))
    assert len(set(plain.values())) > 1
    assert keyed == plain
    assert failures == []
    assert not any(KEY in str(message.content).encode() for message in grid.sent)


def test_a_server_s_federation_is_explained_where_the_key_is(tmp_path: Path, keys: list[str]) -> None:
    trained(tmp_path, dict.fromkeys(range(100, 106), keys[0]))
    stored = federation_in(required(tmp_path / "federation", "explain", "server"))
    assert stored.settings.directions == key_id(KEY)
    with pytest.raises(DataError, match=r"keyed with key .* give its file with --key"):
        stored.explain(0, 1, "clusters")
    assert len(unkeyed_federation(stored, KEY).explain(0, 1, "clusters").features) > 0


def test_a_site_with_another_key_cannot_join(tmp_path: Path, keys: list[str]) -> None:
    own = {**dict.fromkeys(range(100, 106), keys[0]), 104: keys[1], 105: ""}
    clusters, failures, _ = trained(tmp_path, own, **{"federation.minimum-clients": 4})
    assert len(clusters) == 4
    assert any(
        f"site-04: reply refused: directions of its signature have key {key_id(OTHER)}" in one for one in failures
    )
    assert any("site-05: reply refused: directions of its signature have no key" in one for one in failures)


def test_the_key_never_travels_in_the_app(tmp_path: Path, keys: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"set signature-key in the site\.config of every site"):
        settings.read(config(tmp_path, **{"algorithm.signature-key": keys[0]}))


def test_directions_on_the_wire_are_orthonormal(tmp_path: Path, keys: list[str]) -> None:
    basis = requested(lively("pacfl"), tmp_path, signature_key=keys[0])["basis"].astype(np.float64)
    assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-5)
