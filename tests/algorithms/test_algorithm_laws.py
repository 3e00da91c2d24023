"""Laws that every algorithm keeps, tested for all of them at once."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from pacfl.algorithms import NAMES
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.message import Message
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import RoundPlan, Schedule, round_plans
from pacfl.learning.client_context import LocalTraining
from tests.small_federation import LEARNING, SEED, arrays_in, lively, local, model, pool, run_rounds, same, side

CLIENTS = range(6)
every = pytest.mark.parametrize("name", NAMES)


@cache
def after_a_round(name: str) -> tuple[Any, list[Upload]]:
    """The state after one round, and what everybody uploads in the next."""
    algorithm = lively(name)
    clients = side(algorithm)
    state = algorithm.admit(algorithm.init_server(model(name)), {c: clients.profile(0, c) for c in CLIENTS})
    memory: dict[int, Message] = {c: algorithm.init_client(model(name)) for c in CLIENTS}
    uploads: list[Upload] = []
    for t in range(2):
        state = algorithm.aggregate(state, uploads)
        uploads = []
        for c in CLIENTS:
            up, memory[c], _ = clients.train(t, c, algorithm.download(state, c), memory[c])
            uploads.append(Upload(c, len(pool().client_indices[c].train), up))
    return state, uploads


def assert_sound(state: Any) -> None:
    """Every model is finite, and every known client has one, unless the algorithm shares none."""
    assert np.isfinite(state.models).all()
    assert state.models.dtype == np.float32
    assert len(state.models) == 0 or all(0 <= k < len(state.models) for k in state.cluster_of.values())


def assert_well(run: Sequence[Round]) -> None:
    for r in run:
        assert_sound(r.state)
        for by in r.scores.values():
            assert set(by) == set(r.plan.evaluated)
            assert all(np.isfinite([score.primary, score.loss]).all() for score in by.values())


@every
def test_no_uploads_change_nothing(name: str) -> None:
    algorithm = lively(name)
    for state in (algorithm.init_server(model(name)), after_a_round(name)[0]):
        assert algorithm.aggregate(state, []) is state


@every
def test_any_subset_of_uploads_is_legal(name: str) -> None:
    algorithm = lively(name)
    state, uploads = after_a_round(name)
    form = {c: {key: a.dtype for key, a in algorithm.download(state, c).items()} for c in CLIENTS}
    results = set()
    for n in range(len(uploads) + 1):
        for some in itertools.combinations(uploads, n):
            after = algorithm.aggregate(state, some)
            assert_sound(after)
            assert set(after.cluster_of) == set(CLIENTS)
            assert {c: {key: a.dtype for key, a in algorithm.download(after, c).items()} for c in CLIENTS} == form
            results.add(after.models.tobytes())
    assert len(results) == (1 if name == "solo" else 64), "every reply counts"


@every
def test_the_order_of_replies_does_not_matter(name: str) -> None:
    algorithm = lively(name)
    state, uploads = after_a_round(name)
    one, other = (algorithm.aggregate(state, replies) for replies in (uploads, uploads[::-1]))
    for c in CLIENTS:
        for key, array in algorithm.download(one, c).items():
            np.testing.assert_allclose(algorithm.download(other, c)[key], array, rtol=0, atol=1e-6)


class Watched:
    """An algorithm whose methods find all their arguments unwritable, and must leave them as they were."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._algorithm, name)
        if not callable(method):
            return method  # type: ignore[no-any-return]  # a setting

        def watched(*arguments: Any) -> Any:
            for array in arrays_in(arguments):
                array.flags.writeable = False
            before = fingerprint(arguments)
            result = method(*arguments)
            assert fingerprint(arguments) == before, f"{name} changed what it was given"
            self.seen.add(name)
            return result

        return watched


def fingerprint(value: Any) -> Any:
    """What a value says, with the bytes of its arrays; things that are neither data nor containers are left out."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), [fingerprint(getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return [(key, fingerprint(part)) for key, part in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [fingerprint(part) for part in value]
    return value if isinstance(value, str | int | float | None) else None


@every
def test_no_method_changes_its_arguments(name: str) -> None:
    own = dataclasses.replace(model(name), initial=model(name).initial.copy())
    watched: Any = Watched(lively(name))
    plan = [
        RoundPlan(joining=(0, 1, 2, 3, 4), sampled=(0, 1, 2, 3), lost=frozenset({2}), evaluated=(0, 4), personal=True),
        RoundPlan(joining=(5, 1), sampled=(0, 1, 3, 4, 5), evaluated=(1, 2, 3)),
        RoundPlan(sampled=(0, 1, 2, 3, 4, 5), evaluated=(5,), personal=True),
    ]
    with local(watched, own, pool(), LEARNING, SEED) as backend:
        run = list(rounds(watched, backend, watched.init_server(own), plan))
    assert watched.seen - {"check_training", "incompatible"} == {
        "init_server", "admit", "download", "aggregate", "init_client", "profile", "train", "receive", "personalise",
    }  # fmt: skip
    assert_well(run)


# What may happen to a federation


@every
def test_a_federation_whose_replies_are_all_lost_stands_still(name: str) -> None:
    run = run_rounds(lively(name), Schedule(rounds=3, participation=0.7, client_dropout=1.0, evaluate_every=1))
    assert_well(run)
    assert all(same(r.state, run[0].state) for r in run)
    assert all(r.bytes_up == 0 for r in run[1:])


@every
def test_lost_replies_are_survived(name: str) -> None:
    run = run_rounds(lively(name), Schedule(rounds=6, participation=1.0, client_dropout=0.5, evaluate_every=2))
    assert any(0 < len(r.plan.lost) < 6 for r in run)
    assert_well(run)


@every
def test_a_federation_that_everybody_leaves_goes_on_when_they_are_back(name: str) -> None:
    schedule = Schedule(
        rounds=5,
        participation=0.5,
        evaluate_every=1,
        joins={1: tuple(CLIENTS), 4: (4, 1), 5: (0, 2, 3, 5)},
        leaves={2: tuple(CLIENTS)},
    )
    run = run_rounds(lively(name), schedule)
    assert [len(r.plan.sampled) for r in run] == [3, 0, 0, 1, 3, 0]
    assert same([r.state for r in run[1:3]], [run[0].state] * 2), "empty rounds change nothing"
    assert_well(run)


def chaos(seed: int, n_rounds: int = 7) -> list[RoundPlan]:
    """A plan in which anybody may come, go, come again and fall silent at any time."""
    rng = np.random.default_rng(seed)
    known: set[int] = set()
    present: set[int] = set()
    plan = []
    for t in range(n_rounds):
        coming = tuple(int(c) for c in rng.permutation(6)[: rng.integers(0 if t else 1, 4)])
        known |= set(coming)
        present = {c for c in present if rng.random() < 0.7} | set(coming)
        sampled = tuple(c for c in sorted(present) if rng.random() < 0.7)
        lost = frozenset(c for c in sampled if rng.random() < 0.3)
        plan.append(RoundPlan(coming, sampled, lost, tuple(sorted(known)), personal=t % 3 == 0))
    return plan


@pytest.mark.parametrize("seed", range(2))
@every
def test_any_coming_and_going_is_survived(name: str, seed: int) -> None:
    algorithm = lively(name)
    with local(algorithm, model(name), pool(), LEARNING, SEED) as backend:
        assert_well(list(rounds(algorithm, backend, algorithm.init_server(model(name)), chaos(seed))))


@every
def test_newcomers_after_the_last_round_are_served_and_change_nothing(name: str) -> None:
    """The federation ends as if there were nobody else; what they are given is what is trained for them."""
    run = run_rounds(lively(name), Schedule(rounds=2, participation=0.5, newcomers=2, fine_tune=1))
    assert_well(run)
    *_, end, after = run
    assert set(end.scores["personal"]) == set(range(6)) - set(after.plan.joining)
    assert set(after.scores) == {"received", "last_trained", "personal", "fine_tuned"}
    assert set(after.scores["fine_tuned"]) == set(after.plan.joining)
    assert after.scores["last_trained"] == after.scores["received"], "they have never trained before"
    assert all(end.state.cluster_of[c] == after.state.cluster_of[c] for c in end.state.cluster_of)
    assert same(after.state.models[: len(end.state.models)], end.state.models)


@every
def test_a_federation_of_one_is_a_federation(name: str) -> None:
    plan = [
        RoundPlan(joining=(4,), sampled=(4,), evaluated=(4,), personal=True),
        RoundPlan(sampled=(4,), evaluated=(4,)),
    ]
    algorithm = lively(name)
    with local(algorithm, model(name), pool(), LEARNING, SEED) as backend:
        assert_well(list(rounds(algorithm, backend, algorithm.init_server(model(name)), plan)))


@every
def test_a_round_without_local_epochs_teaches_nothing(name: str) -> None:
    idle = LocalTraining(epochs=0, batch_size=8, lr=0.1, momentum=0.5)
    run = run_rounds(lively(name), Schedule(rounds=2, participation=1.0, evaluate_every=1), learning=idle)
    assert_well(run)
    assert same(run[1].scores["received"], run[0].scores["received"])


def test_the_control_of_scaffold_is_the_mean_of_all_clients_controls() -> None:
    """Of those who took part, who did not, who came later and who left, as long as no reply is lost."""
    schedule = Schedule(rounds=6, participation=0.5, joins={3: (1,), 5: (3, 5)}, leaves={4: (0,)})
    scaffold = lively("scaffold")
    seen: set[int] = set()
    with local(scaffold, model(), pool(), LEARNING, SEED) as backend:
        for r in rounds(scaffold, backend, scaffold.init_server(model()), round_plans(schedule, 6, SEED)):
            seen |= set(r.state.cluster_of)
            known = [backend.memory.get(c, scaffold.init_client(model()))["c"] for c in sorted(seen)]
            np.testing.assert_allclose(r.state.control, np.mean(known, axis=0), rtol=0, atol=1e-6)
    assert np.abs(r.state.control).max() > 1e-2


# What travels: hand-counted, in numbers of 4 bytes, d = 610 weights, 90 of them in the last layer


D, TAIL, SIGNATURE = 610, 90, 64 * 3 + 32  # a signature: 3 directions of 64 pixels, and what 32 halvings showed


@pytest.mark.parametrize(
    ("name", "down", "up", "joining"),
    [
        ("solo", 0, 0, 0),
        ("fedavg", D, D, 0),
        ("fedavg-ft", D, D, 0),
        ("fedprox", D, D, 0),
        *((name, D, D, 0) for name in ("fedavgm", "fedadam", "fedyogi")),
        ("fednova", D, D + 2, 0),  # and the number of steps in 8 bytes
        ("scaffold", 2 * D, 2 * D, 0),
        ("lg-fedavg", TAIL, TAIL, 0),
        ("per-fedavg", D, D, 0),
        ("ifca", 2 * D, D + 2, 0),  # and the choice in 8 bytes
        ("cfl", D, D, 0),
        ("pacfl", D, D, SIGNATURE),
        *((name, D, D, 0) for name in ("apfl", "ditto", "fedala", "fedbn", "pfedme")),
        *((name, D - TAIL, D - TAIL, 0) for name in ("fedbabu", "fedper", "fedrep")),
        ("fesem", D, D, D),
        ("flexcfl", D, D, D),
        ("flis", D, D, 100),  # a class for each public input
        ("fedclust", D, D, TAIL),
        ("clove", 2 * D + 2, D + 2, 2),  # the choice in 8 bytes down, two losses up
        ("stocfl", 2 * D, 2 * D, D),
        ("fedem", 2 * D, 2 * D, 0),
        ("fedrc", 2 * D + 2 * 10, 2 * D + 2 * 10, 0),  # and ten class shares of each model
        ("fedsoft", 2 * D, D + 2, 0),  # and the importance of each model
    ],
)
def test_messages_hold_what_the_method_needs_and_no_more(name: str, down: int, up: int, joining: int) -> None:
    first, second, end = run_rounds(lively(name), Schedule(rounds=2, participation=0.5))
    assert (first.bytes_down, second.bytes_down) == (3 * 4 * down, 3 * 4 * down)
    assert (first.bytes_up, second.bytes_up) == (6 * 4 * joining + 3 * 4 * up, 3 * 4 * up)
    assert (end.bytes_down, end.bytes_up) == (0, 0)
