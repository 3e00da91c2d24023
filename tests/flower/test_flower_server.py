"""The server of real sites: connected clients take part, and a crash costs nothing but time."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from flwr.app import Context, Message, RecordDict

from pacfl.algorithms import PACFL
from pacfl.errors import StoreError
from pacfl.experiment.store import RunFolder
from pacfl.federation.client_side import ClientIndices, Setup
from pacfl.federation.local import LocalBackend
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import client_registry, health, status
from pacfl.flower.backend import FlowerBackend
from pacfl.flower.message_types import SIGNATURE, TRAIN
from pacfl.flower.server import federate
from tests.flower.fake_grid import FakeGrid, client_loader, key_of
from tests.small_federation import LEARNING, LIVELY, SEED, lively, local, model, pool, same

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module


def config(folder: Path, name: str = "pacfl", rounds: int = 4, **more: Any) -> Context:
    flat = {
        "seed": SEED,
        "settings": "learning.epochs = 1; learning.lr = 0.1",
        "federation.folder": str(folder),
        "federation.task": "small_task",
        "federation.deadline": 0.3,
        "federation.poll": 0.01,
        "federation.delivery": 0.0,
        "learning.batch_size": 8,
        "schedule.rounds": rounds,
        "schedule.participation": 1.0,
        "algorithm.name": name,
        **{f"algorithm.{key}": value for key, value in LIVELY.get(name, {}).items()},
        "algorithm.label_prior": False,
        **more,
    }
    return Context(1, 1, {}, RecordDict(), flat)


class GoneError(RuntimeError):
    """The server is killed."""


class Killed(FakeGrid):
    """A grid whose server is killed when it receives replies of some round, after the clients have trained."""

    def __init__(self, *args: Any, at: int) -> None:
        super().__init__(*args)
        self.at = str(at)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = super().pull_messages(message_ids)
        if any(r.metadata.message_type == TRAIN and r.metadata.group_id == self.at for r in replies):
            raise GoneError
        return replies


class Changing(FakeGrid):
    """A grid whose nodes come and go: connected nodes by the round from which on they are."""

    def __init__(self, load: Any, connected: dict[int, list[int]]) -> None:
        super().__init__(load, connected[0])
        self.connected = connected

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        t = int(messages[0].metadata.group_id)
        self.nodes = self.connected.get(t + 1, self.nodes)  # seen when the next round starts
        return super().push_messages(messages)


NODES = [100, 101, 102, 103, 104, 105]


def state_of(folder: Path) -> Any:
    checkpoint = RunFolder(folder).load_checkpoint()
    assert checkpoint is not None
    return checkpoint["state"]


def records(folder: Path) -> list[dict[str, Any]]:
    return RunFolder(folder).records()


def messages(grid: FakeGrid, kind: str) -> list[tuple[int, int]]:
    """Round and node of every message of a type."""
    return [(int(m.metadata.group_id), m.metadata.dst_node_id) for m in grid.sent if m.metadata.message_type == kind]


def test_all_rounds_run_and_everybody_is_evaluated_at_the_end(tmp_path: Path) -> None:
    grid = FakeGrid(client_loader(lively("pacfl"), tmp_path / "memory"), NODES)
    federate(grid, config(tmp_path / "f"))
    content = health.read(tmp_path / "f")
    assert content is not None
    assert (content["phase"], content["round"], content["last_error"]) == ("finished", 4, None)
    assert [r["round"] for r in records(tmp_path / "f")] == [1, 2, 3, 4, 5]
    assert set(records(tmp_path / "f")[-1]["by_client"]) == {"received", "last_trained", "personal"}
    assert len(set(state_of(tmp_path / "f").cluster_of.values())) == 2


def test_a_client_is_asked_for_its_signature_once(tmp_path: Path) -> None:
    grid = FakeGrid(client_loader(lively("pacfl"), tmp_path / "memory"), NODES)
    federate(grid, config(tmp_path / "f"))
    assert sorted(messages(grid, SIGNATURE)) == [(0, node) for node in NODES]


def test_scores_are_piggybacked_on_uploads(tmp_path: Path) -> None:
    grid = FakeGrid(client_loader(lively("fedavg"), tmp_path / "memory"), NODES)
    federate(grid, config(tmp_path / "f", "fedavg"))
    assert all("received" in r["accuracy"] for r in records(tmp_path / "f"))
    assert {t for t, _ in messages(grid, "evaluate")} == {4}


@pytest.mark.parametrize("name", ["pacfl", "scaffold", "lg-fedavg", "cfl", "ifca"])
@pytest.mark.parametrize("at", [0, 2])
def test_a_server_that_is_killed_resumes_and_ends_with_the_same_result(name: str, at: int, tmp_path: Path) -> None:
    """Clients had trained the round that is run again, and had stored it; their nodes have other ids then."""
    load = client_loader(lively(name), tmp_path / "memory")
    with pytest.raises(GoneError):
        federate(Killed(load, NODES, at=at), config(tmp_path / "killed", name))
    content = health.read(tmp_path / "killed")
    assert content is not None
    assert content["phase"] == "failed"
    federate(FakeGrid(load, [n + 100 for n in NODES]), config(tmp_path / "killed", name))
    federate(FakeGrid(client_loader(lively(name), tmp_path / "other"), NODES), config(tmp_path / "whole", name))
    assert same(state_of(tmp_path / "killed"), state_of(tmp_path / "whole"))
    assert [r["round"] for r in records(tmp_path / "killed")] == [1, 2, 3, 4, 5]
    for a, b in zip(records(tmp_path / "killed"), records(tmp_path / "whole"), strict=True):
        assert {**a, "at": 0} == {**b, "at": 0}


def test_divisions_are_tried_over_flower_as_on_this_machine(tmp_path: Path) -> None:
    """The server is killed in a scored round of a trial, and resumes; clients see two domains, ten in each."""
    algorithm = PACFL(clusters=1, levels="validated", label_prior=False)
    clients = pool(sizes=tuple(range(40, 50)))
    nodes = [100 + c for c in range(20)]
    more = {"algorithm.clusters": 1, "algorithm.levels": "validated", "schedule.participation": 0.6}
    more |= {"federation.minimum-clients": 20}
    settings = config(tmp_path / "f", rounds=20, **more)
    del settings.run_config["algorithm.threshold"]
    load = client_loader(algorithm, tmp_path / "memory", clients=clients)
    with pytest.raises(GoneError):
        federate(Killed(load, nodes, at=6), settings)
    federate(FakeGrid(load, nodes), settings)
    over_flower = state_of(tmp_path / "f")
    assert over_flower.clustering.evidence["levels"]
    with local(algorithm, model(), clients) as backend:
        state = algorithm.planned(algorithm.init_server(model()), 20)
        plans = round_plans(Schedule(rounds=20, participation=0.6), 20, SEED)
        *_, here = rounds(algorithm, backend, state, plans)
    assert same(over_flower, here.state)


def test_sites_with_permuted_labels_are_a_cluster_of_their_own(tmp_path: Path) -> None:
    """Four sites have the same kind of inputs; two of them number the classes otherwise."""
    clients = pool(("upright",), sizes=(1,))
    own = np.array_split(np.random.default_rng(SEED).permutation(len(clients.train.y))[:480], 4)
    y = clients.train.y.copy()
    y[np.concatenate(own[1::2])] = (y[np.concatenate(own[1::2])] + 3) % 10
    indices = tuple(ClientIndices(np.sort(rows), clients.client_indices[0].test) for rows in own)
    clients = replace(clients, train=replace(clients.train, y=y), client_indices=indices)
    context = config(tmp_path / "f", rounds=1)
    del context.run_config["algorithm.threshold"]
    grid = FakeGrid(client_loader(PACFL(label_prior=False), tmp_path / "m", clients=clients), [100, 101, 102, 103])
    federate(grid, context)
    assert len(messages(grid, SIGNATURE)) == 4
    assert {frozenset(own) for own in clusters_of(tmp_path / "f")} == {frozenset({0, 2}), frozenset({1, 3})}


def clusters_of(folder: Path) -> list[set[int]]:
    """The clients of each cluster at the end."""
    cluster_of = {int(c): k for c, k in records(folder)[-1]["cluster_of"].items()}
    return [{c for c, k in cluster_of.items() if k == cluster} for cluster in set(cluster_of.values())]


def test_a_finished_federation_may_resume_for_more_rounds(tmp_path: Path) -> None:
    load = client_loader(lively("fedavg"), tmp_path / "memory")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=2))
    ended = records(tmp_path / "f")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=5))
    assert records(tmp_path / "f")[:3] == ended  # nothing is lost, and there are five rounds of training
    assert [bool(r["sampled"]) for r in records(tmp_path / "f")] == [True, True, False, True, True, True, False]


def test_the_status_counts_rounds_of_training_and_not_an_earlier_final_evaluation(tmp_path: Path) -> None:
    load = client_loader(lively("fedavg"), tmp_path / "memory")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=2))
    with pytest.raises(GoneError):
        federate(Killed(load, NODES, at=4), config(tmp_path / "f", "fedavg", rounds=5))
    content = health.read(tmp_path / "f")  # 0 and 1, the evaluation 2, and 3 are stored; the server was killed in 4
    assert content is not None
    assert (content["round"], content["rounds"]) == (3, 5)


@pytest.mark.parametrize("rounds", [2, 1])
def test_a_finished_federation_without_more_rounds_does_nothing(rounds: int, tmp_path: Path) -> None:
    load = client_loader(lively("fedavg"), tmp_path / "memory")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=2))
    ended = records(tmp_path / "f")
    again = FakeGrid(load, NODES)
    federate(again, config(tmp_path / "f", "fedavg", rounds=rounds))
    assert again.sent == []
    assert records(tmp_path / "f") == ended
    content = health.read(tmp_path / "f")
    assert content is not None
    assert (content["phase"], content["round"]) == ("finished", rounds)


def test_a_federation_whose_rounds_are_reduced_is_evaluated_at_once(tmp_path: Path) -> None:
    load = client_loader(lively("fedavg"), tmp_path / "memory")
    with pytest.raises(GoneError):
        federate(Killed(load, NODES, at=2), config(tmp_path / "f", "fedavg"))
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=1))
    assert [bool(r["sampled"]) for r in records(tmp_path / "f")] == [True, True, False]


def test_other_settings_do_not_resume_it(tmp_path: Path) -> None:
    load = client_loader(lively("fedavg"), tmp_path / "memory")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=1))
    with pytest.raises(StoreError, match="other settings"):
        federate(FakeGrid(load, NODES), config(tmp_path / "f", "solo", rounds=1))


def test_a_newcomer_joins_in_mid_run_and_the_others_do_not_move(tmp_path: Path) -> None:
    grid = Changing(client_loader(lively("pacfl"), tmp_path / "memory"), {0: NODES[:5], 2: NODES})
    federate(grid, config(tmp_path / "f"))
    assert [r["clients"] for r in records(tmp_path / "f")] == [5, 5, 6, 6, 6]
    assert [pair for pair in messages(grid, SIGNATURE) if pair[0]] == [(2, NODES[5])]
    first, last = records(tmp_path / "f")[0]["cluster_of"], records(tmp_path / "f")[-1]["cluster_of"]
    assert {c: last[c] for c in first} == first


def test_a_client_that_returns_has_its_id_and_cluster_whatever_its_node(tmp_path: Path) -> None:
    grid = Changing(client_loader(lively("pacfl"), tmp_path / "memory"), {0: NODES, 2: NODES[:5], 3: [*NODES[:5], 205]})
    federate(grid, config(tmp_path / "f"))
    assert [len(r["sampled"]) for r in records(tmp_path / "f")] == [6, 6, 5, 6, 0]
    assert {t for t, _ in messages(grid, SIGNATURE)} == {0}
    assert (3, 205) in messages(grid, TRAIN)
    clusters = [r["cluster_of"] for r in records(tmp_path / "f")]
    assert clusters[0] == clusters[-1]


def test_a_newcomer_without_a_signature_is_asked_less_and_less(tmp_path: Path) -> None:
    silent = {105: lambda kind, content: None if kind == SIGNATURE else content}
    grid = FakeGrid(client_loader(lively("pacfl"), tmp_path / "memory"), NODES, silent)
    federate(grid, config(tmp_path / "f", rounds=9))
    assert [t for t, node in messages(grid, SIGNATURE) if node == 105] == [0, 2, 5]


def test_pauses_between_attempts_to_join_double_up_to_a_limit() -> None:
    """After failing in round t the next time is t + 2, then t + 3, + 5, + 9, + 9: pauses of 1, 2, 4, 8, 8 rounds."""
    registry, t, times = client_registry.ClientRegistry(), 0, []
    for _ in range(5):
        registry.joined(t, {7}, set())
        times.append(registry.pause_until[7] - t)
        t = registry.pause_until[7]
    assert times == [2, 3, 5, 9, 9]
    registry.joined(t, {7}, {7})
    assert registry.pause_until == {}


def test_ids_are_given_in_order_of_arrival_and_never_change() -> None:
    registry, node = client_registry.ClientRegistry(), client_registry.Node
    registry.update({"b": node(1), "c": node(2)})
    registry.update({"a": node(5), "c": node(9)})
    assert registry.client_of == {"b": 0, "c": 1, "a": 2}
    assert registry.nodes == {2: 5, 1: 9}


def test_names_are_those_of_the_registration_and_outlast_a_restart() -> None:
    """A key that is registered under a name that another client has got another name: it is another client."""
    registry, node = client_registry.ClientRegistry(), client_registry.Node
    registry.update({"a": node(1, "10"), "b": node(2, "9"), "c": node(3, "lyon"), "d": node(4)})
    registry.update({"a": node(1, "graz"), "e": node(5, "lyon")})
    again = client_registry.ClientRegistry.restored(json.loads(json.dumps(registry.described())))
    for one in (registry, again):
        assert {i: one.names[c] for i, c in one.client_of.items()} == {
            "d": "0",
            "b": "9",
            "a": "10",
            "c": "lyon",
            "e": "lyon-4",
        }
    assert again.client_of == registry.client_of
    assert again.described() == registry.described()
    assert again.described()["3"] == {"name": "lyon", "fingerprint": "c", "node": 3}


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_the_fingerprint_of_a_key_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    key = load_pem_public_key(key_of(100))
    (tmp_path / "node.pub").write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    printed = subprocess.run(["ssh-keygen", "-lf", tmp_path / "node.pub"], capture_output=True, text=True, check=True)
    assert client_registry.fingerprint(key_of(100)) == printed.stdout.split()[1]


def test_a_name_that_could_be_a_path_is_not_used() -> None:
    class Named(FakeGrid):
        def get_nodes(self) -> list[Any]:
            return [SimpleNamespace(node_id=1, public_key=key_of(1), name="../lyon")]

    (node,) = client_registry.nodes_by_key(Named(None, [])).values()
    assert node.name == ""


def test_a_node_without_a_key_is_not_a_client() -> None:
    class Anonymous(FakeGrid):
        def get_nodes(self) -> list[Any]:
            return [type("Node", (), {"node_id": 1, "public_key": b""})()]

    assert client_registry.nodes_by_key(Anonymous(None, [])) == {}


def test_the_status_is_one_complete_file(tmp_path: Path) -> None:
    federate(FakeGrid(client_loader(lively("pacfl"), tmp_path / "m"), NODES), config(tmp_path / "f"))
    content = json.loads((tmp_path / "f" / "status.json").read_text())
    assert sorted(content["clients"]) == ["0", "1", "2", "3", "4", "5"]
    assert all(c["alive"] and c["cluster"] in (0, 1) for c in content["clients"].values())
    for node, client in zip(NODES, content["clients"].values(), strict=True):
        assert (client["name"], client["node"]) == (f"site-{node % 100:02d}", node)
        assert client["fingerprint"] == client_registry.fingerprint(key_of(node))
    log = (tmp_path / "f" / "server.log").read_text()
    assert "client site-03: joined, in cluster" in log
    assert not re.search(r"client \d", log)
    assert np.isfinite(content["accuracy"])


def test_metrics_are_recorded_as_on_this_machine(tmp_path: Path) -> None:
    asked = config(tmp_path / "f", "fedavg", rounds=1)
    asked.run_config["settings"] += "; evaluation.metrics = ['macro-f1', 'auroc']"
    names = ("auroc", "macro-f1")
    federate(FakeGrid(client_loader(lively("fedavg"), tmp_path / "m", names), NODES), asked)
    first, last = records(tmp_path / "f")
    assert set(first["metrics"]["auroc"]) == {"received", "last_trained"}
    with LocalBackend().connect(Setup(lively("fedavg"), model(), pool(), LEARNING, SEED, metrics=names)) as clients:
        scores = clients.evaluate(0, {c: {"w": model().initial} for c in range(len(NODES))}, personal=False)
    for c, score in scores["received"].items():
        for name in names:
            assert first["metrics_by_client"][name]["received"][str(c)] == score.metrics[name]
    assert set(last["metrics"]["macro-f1"]) == {"received", "last_trained", "personal"}


def test_the_status_names_another_metric_than_accuracy(tmp_path: Path) -> None:
    registry = client_registry.ClientRegistry({})
    backend = FlowerBackend(FakeGrid(None, []), lively("fedavg"), model(), "f")
    file = status.StatusFile(tmp_path, 3, registry, backend, {}, metric="mae")
    file.round_finished(
        0, {}, {"metric": "mae", "mae": {"received": {"mean": 2.5}}, "clusters": 1, "sampled": [0], "cluster_of": {}}
    )
    content = health.read(tmp_path)
    assert content is not None
    assert (content["metric"], content["mae"]) == ("mae", 2.5)
    assert "accuracy" not in content
