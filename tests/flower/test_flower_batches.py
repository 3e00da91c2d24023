"""Requests that share a message are answered as if each had come alone."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict

from pacfl.errors import NoReplyError
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import batches, wire
from pacfl.flower.batches import BatchingGrid, answered, packed, parts
from pacfl.flower.client_handlers import ClientLoader
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.simulation import Simulated
from tests.flower.fake_grid import client_loader
from tests.small_federation import SEED, lively, model, pool, run_rounds, same

pytestmark = pytest.mark.usefixtures("identity")
DOWNLOADS = {c: {"w": model().initial} for c in range(6)}
EVERYBODY = Schedule(rounds=2, participation=1.0)


class Workers:
    """A grid of few nodes that answers at once; it may lose a process."""

    def __init__(self, load: ClientLoader, *, lost: bool = False) -> None:
        self.load, self.lost = load, lost
        self.replies: dict[str, Message] = {}
        self.sent: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            names.append(f"m{len(self.sent)}")
            message.metadata.__dict__["_message_id"] = names[-1]
            self.sent.append(message)
            context = Context(1, message.metadata.dst_node_id, {}, RecordDict(), {})
            content = Error(0, "the process ended") if self.lost else answered(message.content, context, self.load)
            self.replies[names[-1]] = Message(content, reply_to=message)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(name) for name in list(message_ids) if name in self.replies]


def backend(workers: Workers, folder: Path, name: str = "scaffold", n_nodes: int = 2) -> Simulated:
    grid = BatchingGrid(workers, list(range(1, n_nodes + 1)))  # type: ignore[arg-type]
    nodes = {c: c + 1 for c in range(6)}
    return Simulated(grid, lively(name), model(), "f", nodes, poll=0.0, folder=folder, n_clients=6)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["pacfl", "scaffold"])
def test_batches_give_the_results_of_the_local_backend(tmp_path: Path, name: str) -> None:
    workers, algorithm = Workers(client_loader(lively(name), tmp_path)), lively(name)
    plan = round_plans(EVERYBODY, len(pool().client_indices), SEED)
    found = list(rounds(algorithm, backend(workers, tmp_path, name), algorithm.init_server(model()), plan))
    for a, b in zip(found, run_rounds(algorithm, EVERYBODY), strict=True):
        assert same(a.state, b.state)
        assert a.scores == b.scores
        assert (a.bytes_down, a.bytes_up) == (b.bytes_down, b.bytes_up)


def test_six_clients_need_two_messages_in_each_phase(tmp_path: Path) -> None:
    workers = Workers(client_loader(lively("fedavg"), tmp_path))
    uploads = backend(workers, tmp_path, "fedavg").train(0, DOWNLOADS, frozenset())
    assert [upload.client for upload in uploads] == [0, 1, 2, 3, 4, 5]
    assert [message.metadata.dst_node_id for message in workers.sent] == [1, 2]


def test_large_requests_are_not_put_into_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_BYTES", 2 * model().initial.nbytes + 1000)
    workers = Workers(client_loader(lively("fedavg"), tmp_path))
    backend(workers, tmp_path, "fedavg", n_nodes=1).train(0, DOWNLOADS, frozenset())
    assert len(workers.sent) == 3


def test_the_error_of_one_client_is_its_own(tmp_path: Path) -> None:
    """The others of its message have trained; the experiment stops and names it."""
    workers = Workers(client_loader(lively("fedavg"), tmp_path))
    downloads = {c: {"w": model().initial * (np.nan if c == 3 else 1)} for c in range(6)}
    with pytest.raises(NoReplyError, match=r"round 1, client 3: .*DivergedError: client 3 diverged in round 1"):
        backend(workers, tmp_path, "fedavg").train(0, downloads, frozenset())
    assert sorted(path.parent.name for path in (tmp_path / "f").rglob("after-0.npz")) == ["0", "1", "2", "4", "5"]


def test_a_process_that_ends_is_an_error_of_its_clients(tmp_path: Path) -> None:
    workers = Workers(client_loader(lively("fedavg"), tmp_path), lost=True)
    with pytest.raises(NoReplyError, match=r"client \d: error 0: the process ended"):
        backend(workers, tmp_path, "fedavg").train(0, DOWNLOADS, frozenset())


def test_what_is_packed_is_there_again() -> None:
    contents = [wire.pack({"a.b": np.full(i, i)}, {"round": i}) for i in range(3)]
    again = parts(packed(contents, {"types": ["train"] * 3}), 3)
    for before, after in zip(contents, again, strict=True):
        assert wire.about(after) == wire.about(before)
        assert same(dict(wire.unpack(after, 100)), dict(wire.unpack(before, 100)))


def test_simulations_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That took longer than training small models; sites wait, because a power failure must not undo a round."""
    waits: list[int] = []
    monkeypatch.setattr("os.fsync", waits.append)
    workers = Workers(client_loader(lively("fedavg"), tmp_path))
    backend(workers, tmp_path, "fedavg").train(0, DOWNLOADS, frozenset())
    assert waits == []
    ClientMemory(tmp_path / "site").save(0, {}, None, 0)
    assert len(waits) == 1
