from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pacfl.algorithms import FedAvg, FedNova, Scaffold, build
from pacfl.errors import ConfigError
from pacfl.federation.aggregation import RULES, Aggregation, Rule, norm_clipped, trimmed_mean
from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean, mean, shares
from pacfl.federation.message import Message
from pacfl.federation.schedule import Schedule
from tests.small_federation import LIVELY, NAMES, lively, model, pool, run_rounds, side

D = 4
MODELS = np.zeros((2, D), dtype=np.float32)
ROBUST: tuple[Rule, ...] = ("median", "trimmed-mean", "norm-clipping")
FLOATS = st.floats(-100, 100, width=32)
AVERAGING = tuple(name for name in NAMES if name != "solo")
NOT_HIDING = ("ifca", "fesem", "flexcfl", "flis", "fedclust", "clove", "stocfl", "fedrc", "fedsoft", "feddag-clusters")
HIDING = tuple(name for name in AVERAGING if name not in NOT_HIDING)


def uploads(trained: np.ndarray, sizes: list[int] | None = None) -> list[Upload]:
    return [Upload(c, 1 if sizes is None else sizes[c], {"w": w.astype(np.float32)}) for c, w in enumerate(trained)]


def centre(trained: np.ndarray, rule: Rule, sizes: list[int] | None = None) -> np.ndarray:
    state = State(MODELS, dict.fromkeys(range(len(trained)), 0))
    return cluster_mean(state, uploads(trained, sizes), Aggregation(rule)).models[0]


# Rules


@given(arrays(np.float32, (5, D), elements=FLOATS), st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_the_mean_is_by_size_within_each_cluster(trained: np.ndarray, sizes: list[int]) -> None:
    state = State(MODELS, {0: 0, 1: 1, 2: 0, 3: 1, 4: 1})
    models = cluster_mean(state, uploads(trained, sizes), Aggregation()).models
    for k, members in enumerate(([0, 2], [1, 3, 4])):
        weights = np.array(sizes, dtype=np.float64)[members]
        assert np.allclose(models[k], np.average(trained[members].astype(np.float64), 0, weights), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_uploads_that_agree_are_their_own_centre(rule: Rule) -> None:
    assert np.allclose(centre(np.tile([1.0, 2, 3, 4], (7, 1)), rule), [1, 2, 3, 4])


@pytest.mark.parametrize("rule", RULES)
def test_without_uploads_nothing_changes_and_clusters_are_apart(rule: Rule) -> None:
    state = State(MODELS, {0: 0, 1: 1})
    assert cluster_mean(state, [], Aggregation(rule)) is state
    after = cluster_mean(state, [Upload(1, 3, {"w": np.ones(D, dtype=np.float32)})], Aggregation(rule))
    assert np.array_equal(after.models, [[0] * D, [1] * D])


@pytest.mark.parametrize("rule", ROBUST)
@given(attack=arrays(np.float32, (3, D), elements=st.floats(-1e6, 1e6, width=32)))
def test_three_hostile_of_ten_cannot_carry_the_centre_away(rule: Rule, attack: np.ndarray) -> None:
    """Seven honest uploads lie between 0.9 and 1.1 in every coordinate: median and trimmed mean stay between them.

    Clipping keeps every update within the median length, at most that of an honest one, 2.2: three of ten move the
    mean by 0.3 × 2.2 at most, besides what they take away.
    """
    honest = np.linspace(0.9, 1.1, 7)[:, None] * np.ones(D)
    moved = centre(np.vstack([honest, attack]), rule)
    if rule == "norm-clipping":
        assert np.linalg.norm(moved - 0.7) <= 0.3 * 2.2 + 0.1
    else:
        assert (moved >= 0.9 - 1e-6).all()
        assert (moved <= 1.1 + 1e-6).all()


@pytest.mark.parametrize("rule", ["uniform", *ROBUST])
def test_claimed_sizes_buy_no_votes(rule: Rule) -> None:
    trained = np.vstack([np.ones((4, D)), np.full((1, D), -9.0)])
    honest, greedy = (centre(trained, rule, [1, 1, 1, 1, size]) for size in (1, 10**9))
    assert np.array_equal(honest, greedy)
    assert centre(trained, "mean", [1, 1, 1, 1, 10**9])[0] < -8


def test_trimming_takes_a_share_from_either_end() -> None:
    """Of ten, three lowest and three highest go: the mean of 3, 4, 5, 6 is 4.5."""
    assert trimmed_mean(np.arange(10.0)[::-1, None]) == [4.5]
    assert trimmed_mean(np.array([[1.0], [5.0]])) == [3.0]


def test_clipping_shortens_to_the_median_length() -> None:
    """Updates of length 1, 2 and 30 in three directions: the last becomes 2 long. Means: 1 / 3, 2 / 3, 2 / 3."""
    trained = np.diag([1.0, 2.0, 30.0]) + 5
    assert np.allclose(norm_clipped(trained, np.full(3, 5, dtype=np.float32)) - 5, [1 / 3, 2 / 3, 2 / 3])


@pytest.mark.parametrize("rule", RULES)
def test_an_array_of_any_shape_is_averaged_as_a_vector(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    flat, start = rng.normal(size=(5, 6)), rng.normal(size=6)
    one, other = (
        mean([Upload(c, c + 1, {"a": a.reshape(shape)}) for c, a in enumerate(flat)], "a", Aggregation(rule), origin)
        for shape, origin in ((6, start), ((2, 3), start.reshape(2, 3)))
    )
    assert np.array_equal(one.reshape(2, 3), other)


# Every rule with every algorithm


@pytest.mark.parametrize("name", AVERAGING)
def test_every_rule_runs_with_every_algorithm_and_changes_its_result(name: str) -> None:
    schedule = Schedule(rounds=2, participation=1.0, evaluate_every=0)
    clients, ends = pool(sizes=(12, 16, 20, 24, 28)), {}  # of four or more, trimming takes some
    rules = ("mean", "uniform") if name == "fedsoft" else RULES  # which weighs uploads, and refuses others
    for rule in rules:
        algorithm = build(name, **LIVELY.get(name, {}), aggregation=Aggregation(rule))
        ends[rule] = run_rounds(algorithm, schedule, clients)[-1].state.models
        assert np.isfinite(ends[rule]).all()
    assert len({models.tobytes() for models in ends.values()}) == len(rules)


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_of_fednova_is_of_directions(rule: Rule) -> None:
    """With one effective step each, w0 - centre of directions is the centre of w0 - direction."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=D).astype(np.float32)
    directions = rng.normal(size=(5, D)).astype(np.float32)
    state = State(start[None], dict.fromkeys(range(5), 0))
    sent = [Upload(c, c + 1, {"direction": d, "steps": np.array([1.0])}) for c, d in enumerate(directions)]
    trained = [Upload(c, c + 1, {"w": start - d}) for c, d in enumerate(directions)]
    nova = FedNova(aggregation=Aggregation(rule)).aggregate(state, sent)
    average = FedAvg(aggregation=Aggregation(rule)).aggregate(state, trained)
    assert np.allclose(nova.models, average.models, atol=1e-6)


@pytest.mark.parametrize("rule", ROBUST)
def test_one_client_cannot_carry_away_the_control_variate_of_scaffold(rule: Rule) -> None:
    algorithm = Scaffold(aggregation=Aggregation(rule))
    state = algorithm.admit(algorithm.init_server(model()), {c: {} for c in range(10)})
    w = model().initial
    sent = [Upload(c, 1, {"w": w, "dc": np.full_like(w, 1e6 if c == 0 else 1.0)}) for c in range(10)]
    assert np.allclose(algorithm.aggregate(state, sent).control, 1.0, atol=0.01)


def test_uniform_is_the_mean_of_equal_sizes() -> None:
    sent = uploads(np.random.default_rng(0).normal(size=(5, D)))
    assert np.allclose(shares(sent), 0.2)
    assert np.allclose(mean(sent, "w", Aggregation()), mean(sent, "w", Aggregation("uniform")))


# Updates that hide their client


def sent_by(algorithm: Algorithm, t: int = 0) -> tuple[Message, Message]:
    """What the first client of a small federation uploads in a round, and what it was sent."""
    clients = side(algorithm)
    profiles = {c: clients.profile(0, c) for c in range(6)}
    down = algorithm.download(algorithm.admit(algorithm.init_server(model()), profiles), 0)
    up, _, _ = clients.train(t, 0, down, algorithm.init_client(model()))
    return up, down


def update(algorithm: Algorithm, up: Message, down: Message) -> np.ndarray:
    """All that an upload says about samples, as a change, in one vector."""
    start = algorithm.upload_start(down)
    hidden = [name for name in up if name not in algorithm.public_uploads]
    return np.concatenate([up[name].astype(np.float64) - start.get(name, 0.0) for name in hidden])


def test_a_clip_that_nothing_reaches_changes_no_run() -> None:
    schedule = Schedule(rounds=2, participation=0.5)
    algorithms = (FedAvg(), FedAvg(aggregation=Aggregation(clip_norm=1e6)))
    plain, clipped = (run_rounds(algorithm, schedule) for algorithm in algorithms)
    for one, other in zip(plain, clipped, strict=True):
        assert np.allclose(one.state.models, other.state.models, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", HIDING)
def test_no_update_of_any_algorithm_is_longer_than_the_clip(name: str) -> None:
    """Over all uploaded arrays together, whatever they are called, and in the direction of the plain update."""
    plain, clipped = (replace(lively(name), aggregation=Aggregation(clip_norm=c)) for c in (None, 0.01))
    length = np.linalg.norm(update(plain, *sent_by(plain)))
    short, whole = update(clipped, *sent_by(clipped)), update(plain, *sent_by(plain))
    assert length > 0.1
    assert np.linalg.norm(short) == pytest.approx(0.01, rel=1e-3)
    assert np.allclose(short, whole * 0.01 / length, atol=1e-6)


@pytest.mark.parametrize("name", HIDING)
def test_noise_is_on_every_number_that_depends_on_samples(name: str) -> None:
    hiding = Aggregation(clip_norm=0.01, noise_multiplier=100.0)
    algorithm = build(name, **LIVELY.get(name, {}), aggregation=hiding)
    one, other = (update(algorithm, *sent_by(algorithm)) for _ in range(2))
    assert np.std(one) == pytest.approx(1.0, rel=0.25)
    assert (one != other).all()


def test_noise_is_secret_or_seeded() -> None:
    def sent(noise: Any, t: int = 0) -> np.ndarray:
        hiding = Aggregation(clip_norm=0.01, noise_multiplier=100.0, noise=noise)
        return sent_by(FedAvg(aggregation=hiding), t)[0]["w"]

    assert not np.array_equal(sent("secret"), sent("secret"))
    assert np.array_equal(sent("seeded"), sent("seeded"))
    assert not np.array_equal(sent("seeded"), sent("seeded", t=1))


@dataclass(frozen=True)
class Counting(Algorithm):
    """A method of somebody else, which also uploads how often a class was seen."""

    def train(self, context: Any, down: Message, memory: Message) -> tuple[Message, Message]:
        return {"w": down["w"], "counts": np.bincount(context.train.y)}, memory


def test_an_upload_that_cannot_be_hidden_is_refused() -> None:
    assert "counts" in sent_by(Counting())[0]
    with pytest.raises(ConfigError, match=r"clip-norm cannot hide the upload 'counts': it is int64"):
        sent_by(Counting(aggregation=Aggregation(clip_norm=1.0)))
    with pytest.raises(ConfigError, match=r"IFCA cannot hide updates: the choice .*leave out clip-norm"):
        build("ifca", aggregation=Aggregation(clip_norm=1.0))
    with pytest.raises(ConfigError, match=r"FedClust cannot hide updates: a client also sends the last layer .* as it"):
        build("fedclust", aggregation=Aggregation(clip_norm=1.0))


@pytest.mark.parametrize("name", NOT_HIDING)
def test_methods_that_send_more_than_updates_refuse_a_clip_norm(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot hide updates.*leave out clip-norm"):
        build(name, aggregation=Aggregation(clip_norm=1.0))


# Settings


@pytest.mark.parametrize("settings", [{"noise_multiplier": 1.0}, {"clip_norm": 0.0}, {"noise": "seeded"}])
def test_what_would_hide_nothing_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"clip[_-]norm"):
        Aggregation(**settings)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="rule must be one of 'mean', 'uniform', 'median'"):
        Aggregation("krum")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="aggregation must be an Aggregation, got 'median'"):
        FedAvg(aggregation="median")  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"rule": "median"}, {"clip_norm": 1.0}])
def test_local_training_has_nothing_to_aggregate(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="solo sends nothing"):
        build("solo", aggregation=Aggregation(**settings))
