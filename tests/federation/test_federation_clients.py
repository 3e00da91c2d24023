import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from pacfl.algorithms import FedAvg, FedAvgFT, FedProx, LGFedAvg, LocalOnly
from pacfl.errors import DivergedError
from pacfl.federation import client_side
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import ClientIndices, Pool, PredictionCache
from pacfl.federation.rounds import Score, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.model import Vector
from tests.small_federation import LEARNING, NAMES, SEED, lively, local, model, pool, run_rounds, same, side

ONE_ROUND = Schedule(rounds=1, participation=1.0)
CLIENTS = range(6)


def samples_of(client: int, part: str = "train") -> Samples:
    rows = getattr(pool().client_indices[client], part)
    whole = getattr(pool(), part)
    return Samples(whole.x[rows], whole.y[rows])


def task(client: int, t: int) -> ClientContext:
    train = samples_of(client)
    return ClientContext(model(), train, LEARNING, Eager(model()), (SEED, t, client), train.x)


def scored(w: Vector, client: int) -> Score:
    """Accuracy and loss on a client's test samples, with nothing remembered."""
    test = samples_of(client, "test")
    logits, losses = Eager(model()).evaluate(w, test)
    return Score(float((logits.argmax(1) == test.y).mean()), float(losses.mean(dtype=np.float64)))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_received_is_the_mean_last_trained_the_own_and_personal_a_training_of_the_mean() -> None:
    """FedAvg by hand for one round in which everybody takes part."""
    first, end = run_rounds(FedAvg(), ONE_ROUND)
    trained = [task(c, 0).sgd(model().initial)[0] for c in CLIENTS]
    sizes = np.array([len(pool().client_indices[c].train) for c in CLIENTS])
    aggregated = np.average(np.array(trained, dtype=np.float64), axis=0, weights=sizes).astype(np.float32)
    np.testing.assert_allclose(first.state.models[0], aggregated, rtol=0, atol=1e-7)
    received = first.state.models[0]
    for c in CLIENTS:
        assert end.scores["received"][c] == scored(received, c)
        assert end.scores["last_trained"][c] == scored(trained[c], c)
        assert end.scores["personal"][c] == scored(task(c, 1).sgd(received, purpose="personal")[0], c)
    assert len({tuple(end.scores[protocol].values()) for protocol in end.scores}) == 3


def test_who_never_trained_is_judged_by_what_it_received() -> None:
    (end,) = run_rounds(FedAvg(), Schedule(rounds=0))
    for c in CLIENTS:
        assert end.scores["last_trained"][c] == end.scores["received"][c] == scored(model().initial, c)


def test_last_trained_is_the_training_in_the_last_round_the_client_was_in() -> None:
    schedule = Schedule(rounds=4, participation=0.34)
    run = run_rounds(FedAvg(), schedule)
    last = {c: r.t for r in run for c in r.plan.sampled}
    assert len(set(last.values())) > 1
    for c, t in last.items():
        before = run[t - 1].state.models[0] if t else model().initial
        assert run[-1].scores["last_trained"][c] == scored(task(c, t).sgd(before)[0], c)


def test_lost_replies_are_remembered_by_the_client_that_gave_them() -> None:
    """What a client trained is its own, whether or not the server received it."""
    lossy = Schedule(rounds=1, participation=1.0, client_dropout=1.0)
    first, end = run_rounds(LocalOnly(), lossy)
    for c in CLIENTS:
        assert end.scores["received"][c] == scored(task(c, 0).sgd(model().initial)[0], c)
    received, lost = (run_rounds(LocalOnly(), schedule)[-1] for schedule in (ONE_ROUND, lossy))
    assert same(received.scores, lost.scores)
    body = slice(0, model().tail(1).start)
    with local(LGFedAvg(shared_layers=1), model(), pool(), LEARNING, SEED) as backend:
        list(rounds(LGFedAvg(1), backend, LGFedAvg(1).init_server(model()), round_plans(lossy, 6, SEED)))
        assert not np.array_equal(backend.memory[0]["body"], model().initial[body])
    assert len(first.state.models) == 0, "no model is shared"


@pytest.mark.parametrize("name", NAMES)
def test_judging_changes_nothing(name: str) -> None:
    """Neither what is learnt nor what is billed depends on how often anybody looks."""
    seen, unseen = (
        run_rounds(lively(name), Schedule(rounds=3, participation=0.5, evaluate_every=n, personal_every=n))
        for n in (1, 0)
    )
    assert same([r.state for r in seen], [r.state for r in unseen])
    assert [(r.bytes_down, r.bytes_up) for r in seen] == [(r.bytes_down, r.bytes_up) for r in unseen]
    assert same(seen[-1].scores, unseen[-1].scores)


@pytest.mark.parametrize("epochs", [1, 3])
def test_fine_tuning_of_newcomers_is_that_of_fedavg_with_fine_tuning(epochs: int) -> None:
    schedule = Schedule(rounds=2, participation=0.5, newcomers=2, fine_tune=epochs)
    plain, tuned = (run_rounds(algorithm, schedule)[-1] for algorithm in (FedAvg(), FedAvgFT(epochs=epochs)))
    assert same(plain.scores["fine_tuned"], tuned.scores["personal"])
    assert not same(plain.scores["fine_tuned"], plain.scores["received"])


def test_what_a_model_was_seen_to_say_is_what_it_says() -> None:
    """Samples are asked for in overlapping parts, one of them twice."""
    engine, test = Eager(model()), pool().test
    w = model().initial
    logits, losses = engine.evaluate(w, test)
    cache = PredictionCache(len(test.y))
    parts = [np.arange(100), np.arange(50, 150), np.arange(100), np.array([149, 3, 151, 3]), np.arange(len(test.y))]
    for rows in parts:
        seen, seen_losses = cache.predictions(rows, engine, w, test)
        np.testing.assert_allclose(seen, logits[rows], rtol=0, atol=1e-6)
        np.testing.assert_allclose(seen_losses, losses[rows], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_what_a_model_says_of_a_sample_does_not_depend_on_what_it_was_asked_before(n: int) -> None:
    """To the bit: else scores depend on which worker evaluated which client, and on where a run was taken up again."""
    engine, test = Eager(model()), pool().test
    rows = np.arange(60)
    once = PredictionCache(len(test.y)).predictions(rows, engine, model().initial, test)[1]
    piecemeal = PredictionCache(len(test.y))
    for start in range(0, 60, n):
        piecemeal.predictions(rows[start : start + n], engine, model().initial, test)
    assert piecemeal.predictions(rows, engine, model().initial, test)[1].tobytes() == once.tobytes()


def test_two_threads_that_ask_at_once_see_what_the_model_says() -> None:
    """Each for samples of its own, the first of all: neither loses what it computed."""
    engine, test = Eager(model()), pool().test
    w, parts = model().initial, [np.arange(20), np.arange(20, 40)]
    logits = np.concatenate([engine.evaluate(w, Samples(test.x[rows], test.y[rows]))[0] for rows in parts])
    both_computed = threading.Barrier(2)

    class Outputs(np.ndarray):  # both threads have outputs before either stores its own
        @property
        def shape(self) -> tuple[int, ...]:
            with suppress(threading.BrokenBarrierError):
                both_computed.wait(0.2)
            return logits.shape

    class Fixed:
        batch_dependent = False

        def evaluate(self, w: Vector, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
            return engine.evaluate(w, samples)[0].view(Outputs), np.zeros(len(samples.y), dtype=np.float32)

    cache = PredictionCache(len(test.y))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda rows: cache.predictions(rows, Fixed(), w, test), parts))
    seen, _ = cache.predictions(np.arange(40), Fixed(), w, test)
    np.testing.assert_allclose(seen, logits, rtol=0, atol=1e-6)


def test_models_are_distinguished_and_old_ones_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two models in memory, five are evaluated in turn, and each by what it says itself."""
    monkeypatch.setattr(client_side, "CACHED_MODELS", 2)
    clients = side(LocalOnly())
    vectors = [model().fresh(i) for i in range(5)]
    for _ in range(2):
        for w in vectors:
            for c in (0, 1, 5):
                assert clients.evaluate(0, c, {}, {"w": w}, None, personal=False)["received"] == scored(w, c)
    assert len(clients._predictions) <= 2


def test_fewer_models_are_cached_where_their_outputs_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for the outputs of two models, at most these and those of the current one are in memory."""
    clients = side(LocalOnly())
    size = len(pool().test.y) * 10 * 4
    monkeypatch.setattr(client_side, "CACHED_BYTES", 2 * size)
    for w in [model().fresh(i) for i in range(6)]:
        assert clients.evaluate(0, 0, {}, {"w": w}, None, personal=False)["received"] == scored(w, 0)
        assert sum(cache.nbytes for cache in clients._predictions.values()) <= 3 * size
    assert len(clients._predictions) == 3


def test_a_client_without_test_samples_is_no_obstacle_to_the_others() -> None:
    """A partition leaves a client none if the test data lack its classes."""
    indices = list(pool().client_indices)
    indices[2] = ClientIndices(indices[2].train, np.empty(0, dtype=np.int64))
    whole = run_rounds(FedAvg(), ONE_ROUND)[-1]
    lacking = run_rounds(FedAvg(), ONE_ROUND, replace(pool(), client_indices=tuple(indices)))[-1]
    for protocol, by in lacking.scores.items():
        for c, score in by.items():
            assert np.isfinite([score.primary, score.loss]).all()
            assert score == whole.scores[protocol][c]
        assert set(by) >= {0, 1, 3, 4, 5}


def test_a_client_sees_its_own_samples_only() -> None:
    """Changing everybody else's training data changes nothing for a client."""
    rows = pool().client_indices[1].train
    x, raw = np.zeros_like(pool().train.x), np.zeros_like(pool().raw)
    x[rows], raw[rows] = pool().train.x[rows], pool().raw[rows]
    blind = Pool(Samples(x, pool().train.y), pool().test, raw, pool().client_indices)
    down, pacfl = {"w": model().initial}, lively("pacfl")
    assert same(side(FedAvg()).train(0, 1, down, {}), side(FedAvg(), blind).train(0, 1, down, {}))
    assert same(side(pacfl).profile(0, 1), side(pacfl, blind).profile(0, 1))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_training_that_diverges_stops_the_run_with_its_client_and_round(workers: int) -> None:
    wild = LocalTraining(epochs=5, batch_size=8, lr=1e6, momentum=0.9, weight_decay=1.0)
    with pytest.raises(DivergedError, match=r"client \d diverged in round 1"):
        run_rounds(FedAvg(), ONE_ROUND, learning=wild, workers=workers)


def test_a_model_whose_loss_is_no_number_is_said_to_have_diverged() -> None:
    """Its weights may still be finite."""
    huge = np.full_like(model().initial, 1e30)
    with pytest.raises(DivergedError, match=r"client 1 .* round 6"):
        side(LocalOnly()).evaluate(5, 1, {}, {"w": huge}, None, personal=False)


def threads_of_blas() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def fail_inside() -> None:
    with local(FedAvg(), model(), pool(), LEARNING, SEED):
        assert torch.get_num_threads() == 1
        assert threads_of_blas() == {1}
        raise KeyError


def test_the_number_of_threads_is_given_back_whatever_happens() -> None:
    torch.set_num_threads(2)
    try:
        with threadpool_limits(2, user_api="blas"):
            outside = threads_of_blas()
            with pytest.raises(KeyError):
                fail_inside()
            assert threads_of_blas() == outside
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_by_default_an_algorithm_is_fedavg() -> None:
    plain = run_rounds(Algorithm(), Schedule(rounds=2, participation=0.5))
    assert same(
        [r.state for r in plain], [r.state for r in run_rounds(FedAvg(), Schedule(rounds=2, participation=0.5))]
    )
    assert not same(plain[-1].state, run_rounds(FedProx(mu=1.0), Schedule(rounds=2, participation=0.5))[-1].state)
