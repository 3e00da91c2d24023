from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pacfl.algorithms import FedAvg
from pacfl.errors import DataError
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean, mean, shares
from pacfl.federation.local import LocalClients
from pacfl.federation.message import ClientId, Message, nbytes
from pacfl.federation.rounds import Round, Scores, rounds
from pacfl.federation.schedule import RoundPlan, Schedule, round_plans
from tests.small_federation import LEARNING, NAMES, SEED, arrays_in, lively, local, model, pool, run_rounds, same

CHURN = Schedule(
    rounds=5,
    participation=0.7,
    evaluate_every=1,
    personal_every=2,
    client_dropout=0.2,
    joins={1: (2,), 3: (5,), 5: (2,)},
    leaves={4: (2, 0)},
    reprofile={5: (1,)},
)


class Recording:
    """A backend that keeps a count of the bytes of everything that passes."""

    def __init__(self, backend: LocalClients) -> None:
        self.backend = backend
        self.down: list[int] = []
        self.up: list[int] = []

    def begin(self) -> None:
        self.down.append(0)
        self.up.append(0)

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        profiles = self.backend.profile(t, clients)
        self.up[t] += count(profiles)
        return profiles

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        self.down[t] += count(downloads)
        uploads = self.backend.train(t, downloads, lost)
        self.up[t] += count([upload.content for upload in uploads])
        return uploads

    def evaluate(self, t: int, downloads: Mapping[ClientId, Message], personal: bool, fine_tune: int) -> Scores:
        return self.backend.evaluate(t, downloads, personal, fine_tune)


def count(messages: Any) -> int:
    return sum(len(array.tobytes()) for array in arrays_in(messages))


def recorded(algorithm: Algorithm, schedule: Schedule) -> tuple[list[Round], Recording]:
    with local(algorithm, model(), pool(), LEARNING, SEED) as backend:
        recording = Recording(backend)
        plan = list(round_plans(schedule, len(pool().client_indices), SEED))
        for _ in plan:
            recording.begin()
        return list(rounds(algorithm, recording, algorithm.init_server(model()), plan)), recording


@pytest.mark.parametrize("name", NAMES)
def test_what_is_in_a_message_is_what_is_billed(name: str) -> None:
    run, recording = recorded(lively(name), CHURN)
    assert [r.bytes_down for r in run] == recording.down
    assert [r.bytes_up for r in run] == recording.up
    assert (sum(recording.down) > 0) == (name != "solo")


@pytest.mark.parametrize("name", NAMES)
def test_going_on_from_any_round_is_as_never_having_stopped(name: str) -> None:
    algorithm = lively(name)
    plan = list(round_plans(CHURN, len(pool().client_indices), SEED))
    whole, saved = [], []
    with local(algorithm, model(), pool(), LEARNING, SEED) as backend:
        for r in rounds(algorithm, backend, algorithm.init_server(model()), plan):
            whole.append(r)
            saved.append((dict(backend.memory), dict(backend.last_trained)))
    for k in (1, 3, 4, 5):
        with local(algorithm, model(), pool(), LEARNING, SEED) as backend:
            backend.memory, backend.last_trained = (dict(part) for part in saved[k - 1])
            rest = list(rounds(algorithm, backend, whole[k - 1].state, plan, start=k))
        assert [r.t for r in rest] == list(range(k, 6))
        assert same(rest, whole[k:])


def test_a_plan_is_obeyed_in_order() -> None:
    """Who joins in a round may be sampled in it; replies that are lost change nothing; scores are of those judged."""
    plan = [
        RoundPlan(joining=(4, 1), sampled=(1,)),
        RoundPlan(sampled=(4,), lost=frozenset({4}), evaluated=(4,)),
        RoundPlan(joining=(0,), sampled=(0, 1), evaluated=(0, 1), personal=True),
    ]
    with local(FedAvg(), model(), pool(), LEARNING, SEED) as backend:
        first, second, third = rounds(FedAvg(), backend, FedAvg().init_server(model()), plan)
    assert first.scores == {}
    assert same(second.state, first.state)
    assert {protocol: set(by) for protocol, by in second.scores.items()} == {"received": {4}, "last_trained": {4}}
    assert {protocol: set(by) for protocol, by in third.scores.items()} == {
        protocol: {0, 1} for protocol in ("received", "last_trained", "personal")
    }
    assert set(third.state.cluster_of) == {0, 1, 4}


class HardOfHearing(Recording):
    """A backend that misses what some clients tell when they are first asked."""

    def __init__(self, backend: LocalClients, missed: set[ClientId]) -> None:
        super().__init__(backend)
        self.missed = missed

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        profiles = self.backend.profile(t, [c for c in clients if c not in self.missed])
        self.missed -= set(clients)
        return profiles

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        return self.backend.train(t, downloads, lost)


@pytest.mark.parametrize("missed", [{1, 4}, {0, 1, 2, 3, 4, 5}], ids=["some", "all"])
@pytest.mark.parametrize("name", NAMES)
def test_who_was_not_heard_when_it_joined_is_asked_again(name: str, missed: set[ClientId]) -> None:
    plan = [
        RoundPlan(joining=tuple(range(6)), sampled=(1, 2), evaluated=(1, 2)),
        RoundPlan(sampled=(1, 4), evaluated=(1, 4, 5)),
    ]
    algorithm = lively(name)
    with local(algorithm, model(), pool(), LEARNING, SEED) as backend:
        deaf = HardOfHearing(backend, set(missed))
        first, second = rounds(algorithm, deaf, algorithm.init_server(model()), plan)
    assert set(first.state.cluster_of) == set(range(6)) - missed
    assert set(first.scores.get("received", {})) == {1, 2} - missed
    assert set(second.state.cluster_of) == {*first.state.cluster_of, 1, 4}
    assert set(second.scores["received"]) == {1, 4, 5} & set(second.state.cluster_of)


def test_a_lost_reply_is_not_billed_but_what_was_sent_is() -> None:
    d = 4 * len(model().initial)
    run = run_rounds(FedAvg(), Schedule(rounds=2, participation=1.0, client_dropout=1.0))
    assert [(r.bytes_down, r.bytes_up) for r in run] == [(6 * d, 0), (6 * d, 0), (0, 0)]


def test_bytes_are_those_of_the_arrays() -> None:
    assert nbytes({}) == 0
    assert nbytes({"a": np.zeros(3, dtype=np.float32), "b": np.zeros((2, 5))}) == 3 * 4 + 10 * 8


def upload(client: int, size: int, *w: float) -> Upload:
    return Upload(client, size, {"w": np.array(w, dtype=np.float32)})


def test_the_mean_weighs_by_size() -> None:
    """Sizes 1 and 3: shares 1/4 and 3/4; 1/4 · (4, 0) + 3/4 · (0, 8) = (1, 6)."""
    uploads = [upload(0, 1, 4, 0), upload(1, 3, 0, 8)]
    assert shares(uploads).tolist() == [0.25, 0.75]
    assert mean(uploads, "w", Aggregation()).tolist() == [1, 6]


def test_clusters_do_not_mix_and_silent_ones_keep_their_model() -> None:
    state = State(np.array([[1, 1], [2, 2], [3, 3]], dtype=np.float32), {5: 0, 6: 2, 7: 2, 8: 1})
    after = cluster_mean(state, [upload(7, 1, 8, 4), upload(5, 9, 0, 7), upload(6, 1, 4, 0)], Aggregation())
    assert after.models.tolist() == [[0, 7], [2, 2], [6, 2]]
    assert after.cluster_of == state.cluster_of


class Exclusive(Algorithm):
    def incompatible(self, state: State, profiles: Mapping[ClientId, Message]) -> Mapping[ClientId, str]:  # noqa: ARG002
        return dict.fromkeys(profiles.keys() & {1}, "it does not fit")


def test_local_clients_that_do_not_fit_together_are_an_error() -> None:
    with pytest.raises(DataError, match="client 1 cannot join: it does not fit"):
        run_rounds(Exclusive(), Schedule(rounds=1))
