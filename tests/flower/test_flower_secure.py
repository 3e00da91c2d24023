"""Secure aggregation over Flower's messages: the models of one machine, whoever is lost, and a server that lies."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from pacfl.algorithms import build
from pacfl.errors import SecureAggregationError
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import digest
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import RoundPlan, Schedule
from pacfl.flower import secure_client as names
from pacfl.flower import wire
from pacfl.flower.backend import FlowerBackend
from pacfl.flower.client_handlers import handle
from pacfl.flower.message_types import CONFIRM, KEYS, REVEAL, SHARES, TRAIN
from pacfl.flower.secure_client import SecureClient
from pacfl.flower.server import federate
from pacfl.secure import shamir
from pacfl.secure.identity import Identity, fingerprint
from pacfl.secure.messages import packed, to_text, unpacked
from tests.flower.fake_grid import FakeGrid, Tamper, client_loader
from tests.flower.test_flower_server import GoneError, config, records, state_of
from tests.small_federation import LIVELY, model, run_rounds, same

pytestmark = pytest.mark.usefixtures("identity")

SESSION = (KEYS, SHARES, TRAIN, CONFIRM, REVEAL)
SECURE = {"aggregation.secure": True}
NODES = [100, 101, 102, 103, 104, 105]


def secured(name: str = "fedavg", label_prior: bool = False, **aggregation: Any) -> Algorithm:
    own = Aggregation(**aggregation, secure=True)
    return build(name, **LIVELY.get(name, {}), label_prior=label_prior, aggregation=own)


class Replying(FakeGrid):
    """A grid that replies with an error where a client refuses, as Flower does."""

    def _reply(self, message: Message) -> Message | None:
        try:
            return super()._reply(message)
        except (SecureAggregationError, ValueError) as refusal:
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(refusal)), reply_to=message)

    def kinds(self, node: int) -> list[str]:
        """The types of messages to a node."""
        return [m.metadata.message_type for m in self.sent if m.metadata.dst_node_id == node]


def over_flower(
    algorithm: Algorithm,
    folder: Path,
    tampering: dict[int, Tamper] | None = None,
    n_rounds: int = 1,
    nodes: Sequence[int] = NODES,
    grid: Replying | None = None,
) -> tuple[list[Round], FlowerBackend, Replying]:
    grid = grid or Replying(client_loader(algorithm, folder), nodes, tampering)
    backend = FlowerBackend(grid, algorithm, model(), "f", {n - 100: n for n in nodes}, deadline=0.2)
    clients = tuple(n - 100 for n in nodes)
    plans = [RoundPlan(joining=() if t else clients, sampled=clients) for t in range(n_rounds)]
    return list(rounds(algorithm, backend, algorithm.init_server(model()), plans)), backend, grid


# The same models


@pytest.mark.parametrize(("name", "label_prior"), [("pacfl", True), ("scaffold", False)])
def test_rounds_over_flower_are_those_of_this_machine_to_the_last_bit(
    name: str, label_prior: bool, tmp_path: Path
) -> None:
    """Two clusters and class counts, which are in the sum; and memory, with what is summed without weights."""
    algorithm = secured(name, label_prior)
    done, backend, grid = over_flower(algorithm, tmp_path, n_rounds=2)
    here = run_rounds(algorithm, Schedule(rounds=2, participation=1.0))
    assert (done[-1].state.class_shares is not None) == label_prior
    assert same(done[-1].state, here[1].state)
    assert [(r.bytes_down, r.bytes_up) for r in done] == [(r.bytes_down, r.bytes_up) for r in here[:2]]
    assert backend.reply_failures == []
    assert [kind for kind in grid.kinds(100) if kind in SESSION] == [*SESSION, *SESSION]


def test_noise_of_a_seed_is_that_of_this_machine(tmp_path: Path) -> None:
    algorithm = secured(rule="uniform", clip_norm=0.1, noise_multiplier=1.0, noise="seeded")
    done, _, _ = over_flower(algorithm, tmp_path)
    assert same(done[0].state.models, run_rounds(algorithm, Schedule(rounds=1, participation=1.0))[0].state.models)


def test_no_reply_has_a_model_or_a_number_of_samples(tmp_path: Path) -> None:
    _, _, grid = over_flower(secured(), tmp_path)
    replies = [r for r in grid.replies.values() if r is not None and r.metadata.message_type in SESSION]
    sent = {name for reply in replies for name in reply.content["arrays"]}
    assert sent == {names.KEYS, names.SEALED, names.MASKED, names.COMPLAINTS, names.SIGNATURES, names.SHARES}
    assert all("size" not in wire.about(reply.content) for reply in replies)


# Clients that are lost


@pytest.mark.parametrize("stage", SESSION)
def test_one_lost_client_is_survived_at_each_stage(stage: str, tmp_path: Path) -> None:
    """Of five; whoever had sent its masked update before it was lost is in the sum."""
    algorithm = secured()
    lost: dict[int, Tamper] = {102: lambda kind, content: None if kind == stage else content}
    done, backend, grid = over_flower(algorithm, tmp_path / "lost", lost, nodes=NODES[:5])
    nodes = NODES[:5] if stage in (CONFIRM, REVEAL) else [100, 101, 103, 104]
    whole, _, _ = over_flower(algorithm, tmp_path / "whole", nodes=nodes)
    assert same(done[0].state.models, whole[0].state.models)
    assert [failure.client for failure in backend.reply_failures] == [2]
    assert f"no reply to {stage!r}" in backend.reply_failures[0].what
    assert backend.silent == {2}
    assert grid.kinds(102)[-1] == stage  # it is not asked for more


def test_without_enough_clients_the_model_stays_and_the_log_says_why(tmp_path: Path) -> None:
    lost: dict[int, Tamper] = dict.fromkeys((101, 102), lambda kind, content: None if kind == TRAIN else content)
    done, backend, _ = over_flower(secured(), tmp_path, lost)
    assert same(done[0].state.models[0], model().initial)
    assert "4 of 6 clients have sent their masked updates, and 5 are needed" in backend.reply_failures[-1].what


def test_a_cluster_of_two_is_not_trained_and_the_others_are(tmp_path: Path) -> None:
    """Five sites, in domains of three and two."""
    done, backend, grid = over_flower(secured("pacfl"), tmp_path, nodes=NODES[:5])
    models, cluster_of = done[0].state.models, done[0].state.cluster_of
    assert same(models[cluster_of[4]], model().initial)
    assert not same(models[cluster_of[0]], model().initial)
    assert [failure.client for failure in backend.reply_failures] == [3]
    assert "2 participating clients, and a sum of fewer than 3 is no secret" in backend.reply_failures[0].what
    assert not {*grid.kinds(103), *grid.kinds(104)} & set(SESSION)


class Killed(Replying):
    """A grid whose server is killed when it receives replies of a type, after the clients have sent them."""

    def __init__(self, load: Any, nodes: Iterable[int], kind: str, at: int) -> None:
        super().__init__(load, nodes)
        self.kind, self.at = kind, str(at)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = super().pull_messages(message_ids)
        if any(r.metadata.message_type == self.kind and r.metadata.group_id == self.at for r in replies):
            raise GoneError
        return replies


@pytest.mark.parametrize("kind", [TRAIN, REVEAL])
def test_a_server_that_is_killed_in_a_session_resumes_and_ends_with_the_same_result(kind: str, tmp_path: Path) -> None:
    load = client_loader(secured("scaffold"), tmp_path / "memory")
    settings = {"name": "scaffold", "rounds": 2, **SECURE}
    with pytest.raises(GoneError):
        federate(Killed(load, NODES, kind, at=1), config(tmp_path / "killed", **settings))
    federate(Replying(load, [n + 100 for n in NODES]), config(tmp_path / "killed", **settings))
    whole = client_loader(secured("scaffold"), tmp_path / "other")
    federate(Replying(whole, NODES), config(tmp_path / "whole", **settings))
    assert same(state_of(tmp_path / "killed"), state_of(tmp_path / "whole"))
    assert [r["round"] for r in records(tmp_path / "killed")] == [1, 2, 3]


def test_a_round_that_is_run_again_has_no_sum_of_other_clients(tmp_path: Path) -> None:
    """The server may have had the sum of all; the difference to that of the others would be the update of one."""
    load = client_loader(secured(), tmp_path / "memory")
    settings = {"name": "fedavg", "rounds": 3, **SECURE}
    with pytest.raises(GoneError):
        federate(Killed(load, NODES, REVEAL, at=1), config(tmp_path / "f", **settings))
    federate(Replying(load, NODES[:5]), config(tmp_path / "f", **settings))
    _, first, second, *_ = records(tmp_path / "f")
    assert any("was summed with other clients before" in failure["what"] for failure in first["reply_failures"])
    assert any("no secure sum of its cluster" in failure["what"] for failure in first["reply_failures"])
    assert second["reply_failures"] == []


# Clients that do not follow the protocol


def changing(kind: str, array: str, change: Any) -> Tamper:
    """A client that changes the text of an array in its replies of a type."""

    def tamper(received: str, content: RecordDict) -> RecordDict:
        if received != kind:
            return content
        arrays = dict(wire.unpack(content, 2**20))
        arrays[array] = packed(change(unpacked(arrays[array], "reply")))
        return wire.pack(arrays, wire.about(content))  # type: ignore[arg-type]

    return tamper


def test_a_site_that_sends_wrong_shares_is_named(tmp_path: Path) -> None:
    def wrong(shares: dict[str, Any]) -> dict[str, Any]:
        value = to_text((5).to_bytes(shamir.LENGTH, "big"))
        return {kind: {d: {**own, "value": value} for d, own in of.items()} for kind, of in shares.items()}

    done, backend, _ = over_flower(secured(), tmp_path / "a", {103: changing(REVEAL, names.SHARES, wrong)})
    whole, _, _ = over_flower(secured(), tmp_path / "b")
    assert same(done[0].state.models, whole[0].state.models)  # five of six are enough
    ((client, what),) = [(failure.client, failure.what) for failure in backend.reply_failures]
    assert client == 3
    assert "has not signed" in what


@pytest.mark.parametrize(
    ("kind", "array", "change"),
    [
        (KEYS, names.KEYS, lambda keys: {**keys, "masking": keys["encryption"]}),
        (KEYS, names.KEYS, lambda keys: [keys]),
        (SHARES, names.SEALED, lambda sealed: list(sealed)),
        (CONFIRM, names.SIGNATURES, lambda signature: {"text": signature}),
        (REVEAL, names.SHARES, lambda shares: {"seed": shares["seed"]}),
    ],
)
def test_replies_that_are_none_are_refused_and_the_round_goes_on(
    kind: str, array: str, change: Any, tmp_path: Path
) -> None:
    done, backend, _ = over_flower(secured(), tmp_path, {101: changing(kind, array, change)})
    assert not same(done[0].state.models[0], model().initial)
    assert [failure.client for failure in backend.reply_failures] == [1]
    assert "reply refused" in backend.reply_failures[0].what


def test_words_of_another_shape_are_refused(tmp_path: Path) -> None:
    def short(kind: str, content: RecordDict) -> RecordDict:
        if kind != TRAIN:
            return content
        arrays = wire.unpack(content, 2**20)
        return wire.pack({**arrays, names.MASKED: arrays[names.MASKED][1:]}, wire.about(content))  # type: ignore[arg-type]

    done, backend, _ = over_flower(secured(), tmp_path, {104: short})
    assert not same(done[0].state.models[0], model().initial)
    assert "has words uint64 of shape (610,)" in backend.reply_failures[0].what


def test_sums_that_no_models_have_are_refused(tmp_path: Path) -> None:
    """A client may put any words behind its mask. Nobody can say whose they were."""

    def huge(kind: str, content: RecordDict) -> RecordDict:
        if kind != TRAIN:
            return content
        arrays = dict(wire.unpack(content, 2**20))
        arrays[names.MASKED] = arrays[names.MASKED] + np.uint64(2**60)
        return wire.pack(arrays, wire.about(content))  # type: ignore[arg-type]

    done, backend, _ = over_flower(secured(), tmp_path, {104: huge})
    assert same(done[0].state.models[0], model().initial)
    assert "no secure sum of its cluster: the updates of its clients sum up to" in backend.reply_failures[-1].what


# Servers that do not follow it


class Lying(Replying):
    """A server that changes what it sends to one node, in messages of a type."""

    def __init__(self, load: Any, node: int, kind: str, change: Any) -> None:
        super().__init__(load, NODES)
        self.node, self.kind, self.change = node, kind, change

    def _reply(self, message: Message) -> Message | None:
        if (message.metadata.dst_node_id, message.metadata.message_type) == (self.node, self.kind):
            arrays = self.change(dict(wire.unpack(message.content, 2**20)))
            message.content = wire.pack(arrays, wire.about(message.content))  # type: ignore[arg-type]
        return super()._reply(message)


def other_model(arrays: dict[str, Any]) -> dict[str, Any]:
    return {**arrays, "w": np.zeros_like(arrays["w"])}


def fewer(arrays: dict[str, Any]) -> dict[str, Any]:
    return {names.SURVIVORS: packed(sorted(unpacked(arrays[names.SURVIVORS], "x"))[:4])}


def unsigned(arrays: dict[str, Any]) -> dict[str, Any]:
    signatures = unpacked(arrays[names.SIGNATURES], "x")
    return {names.SIGNATURES: packed(dict(list(signatures.items())[:4]))}


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        (TRAIN, other_model, "the download is not the one for which the others have signed"),
        (CONFIRM, fewer, "a sum of 4 of 6 clients is refused|this one among them"),
        (REVEAL, unsigned, "could ask for both shares of one"),
    ],
)
def test_a_client_refuses_a_server_that_lies_to_it(kind: str, change: Any, why: str, tmp_path: Path) -> None:
    """Another model for one client alone would single out its update; so would two sets of clients."""
    grid = Lying(client_loader(secured(), tmp_path), 103, kind, change)
    _, backend, _ = over_flower(secured(), tmp_path, grid=grid)
    (refusal,) = [failure for failure in backend.reply_failures if failure.client == 3]
    assert re.search(why, refusal.what)


def test_a_session_is_over_when_another_begins(tmp_path: Path) -> None:
    """Replayed requests of a former round get nothing."""
    done, backend, grid = over_flower(secured(), tmp_path, n_rounds=2)
    first = [m for m in grid.sent if m.metadata.message_type in SESSION and m.metadata.group_id == "0"]
    for message in first:
        if message.metadata.message_type != KEYS:
            with pytest.raises(SecureAggregationError):
                handle(message.metadata.message_type, message.content, grid.context(100), grid.load)
    assert backend.reply_failures == []
    assert len(done) == 2


def test_what_a_client_stores_of_a_session_only_its_owner_can_read(tmp_path: Path) -> None:
    over_flower(secured(), tmp_path)
    folder = tmp_path / "f" / "0"
    assert folder.stat().st_mode & 0o077 == 0
    session = json.loads((folder / names.SESSION).read_text())
    assert (session["stage"], session["secrets"], session["shares"]) == ("revealed", {}, {})


# Keys of real sites


def site(folder: Path, private: Identity, trusted: Mapping[str, str], run: Path, **more: str) -> Context:
    """The context of a deployed site."""
    folder.mkdir()
    (folder / "node.key").write_bytes(
        private.private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    )
    (folder / "trusted-sites").write_text("".join(f"{key} {name}\n" for key, name in trusted.items()))
    own = {"node-key": str(folder / "node.key"), "trusted-sites": str(folder / "trusted-sites"), **more}
    return replace_config(config(run), own)


def replace_config(context: Context, node_config: Mapping[str, str]) -> Context:
    return Context(1, 1, dict(node_config), RecordDict(), dict(context.run_config))


def test_sites_sign_with_the_keys_of_their_nodes_and_trust_those_of_their_list(tmp_path: Path) -> None:
    keys = [Identity.ephemeral() for _ in range(4)]
    listed = {fingerprint(key.public): f"site-{i}" for i, key in enumerate(keys)}
    lists = [listed, listed, dict(list(listed.items())[:3]), listed]
    contexts = [site(tmp_path / f"{i}", keys[i], lists[i], tmp_path / "run") for i in range(4)]
    clients = [SecureClient(tmp_path / f"{i}" / "memory", "f", 0) for i in range(4)]
    bound = {names.DIGEST: packed(digest({}))}
    roster = [unpacked(c.keys(bound, context)[names.KEYS], "x") for c, context in zip(clients, contexts, strict=True)]
    assert [own["public"] for own in roster] == [key.public for key in keys]
    for i in (0, 1, 3):
        assert names.SEALED in clients[i].shares({names.ROSTER: packed(roster)}, contexts[i])
    with pytest.raises(SecureAggregationError, match="is not among the sites that this one trusts; compare"):
        clients[2].shares({names.ROSTER: packed(roster)}, contexts[2])


@pytest.mark.parametrize("missing", ["node-key", "trusted-sites"])
def test_a_site_without_its_key_or_its_list_refuses(missing: str, tmp_path: Path) -> None:
    context = site(tmp_path / "s", Identity.ephemeral(), {}, tmp_path / "run", **{missing: ""})
    with pytest.raises(SecureAggregationError, match=f"was started without {missing}"):
        SecureClient(tmp_path, "f", 0).keys({names.DIGEST: packed("x")}, context)


def test_a_simulated_client_has_the_same_key_in_every_round(tmp_path: Path) -> None:
    simulated = Context(1, 1, {"partition-id": 3}, RecordDict(), {})
    one, trusted = names.identity(simulated, tmp_path)
    other, _ = names.identity(simulated, tmp_path)
    assert one.public == other.public
    assert trusted is None
    assert (tmp_path / names.IDENTITY).stat().st_mode & 0o077 == 0 or tmp_path.stat().st_mode & 0o077 == 0
