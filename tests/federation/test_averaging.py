import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pacfl.algorithms import PACFL, FedAvg, build
from pacfl.federation.algorithm import State, Upload, cluster_mean
from pacfl.federation.averaging import AGGREGATIONS, Aggregation, cluster_centres, norm_clipped, trimmed_mean
from pacfl.federation.schedule import Schedule
from tests.small_federation import model, run_rounds, same, side

D = 4
MODELS = np.zeros((2, D), dtype=np.float32)
ROBUST: tuple[Aggregation, ...] = ("median", "trimmed-mean", "norm-clipping")
FLOATS = st.floats(-100, 100, width=32)


def uploads(trained: np.ndarray, sizes: list[int] | None = None) -> list[Upload]:
    return [Upload(c, 1 if sizes is None else sizes[c], {"w": w.astype(np.float32)}) for c, w in enumerate(trained)]


def centre(trained: np.ndarray, aggregation: Aggregation, sizes: list[int] | None = None) -> np.ndarray:
    state = State(MODELS, dict.fromkeys(range(len(trained)), 0))
    return cluster_centres(state, uploads(trained, sizes), aggregation).models[0]


@given(arrays(np.float32, (5, D), elements=FLOATS), st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_the_mean_is_that_of_fedavg(trained: np.ndarray, sizes: list[int]) -> None:
    state = State(MODELS, {0: 0, 1: 1, 2: 0, 3: 1, 4: 1})
    sent = uploads(trained, sizes)
    assert same(cluster_centres(state, sent, "mean"), cluster_mean(state, sent))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_uploads_that_agree_are_their_own_centre(aggregation: Aggregation) -> None:
    assert np.allclose(centre(np.tile([1.0, 2, 3, 4], (7, 1)), aggregation), [1, 2, 3, 4])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_silence_changes_nothing_and_clusters_do_not_hear_each_other(aggregation: Aggregation) -> None:
    state = State(MODELS, {0: 0, 1: 1})
    assert cluster_centres(state, [], aggregation) is state
    after = cluster_centres(state, [Upload(1, 3, {"w": np.ones(D, dtype=np.float32)})], aggregation)
    assert np.array_equal(after.models, [[0] * D, [1] * D])


@pytest.mark.parametrize("aggregation", ROBUST)
@given(attack=arrays(np.float32, (3, D), elements=st.floats(-1e6, 1e6, width=32)))
def test_three_hostile_of_ten_cannot_carry_the_centre_away(aggregation: Aggregation, attack: np.ndarray) -> None:
    """Seven honest uploads lie between 0.9 and 1.1 in every coordinate: median and trimmed mean stay between them.

    Clipping keeps every update within the median length, at most that of an honest one, 2.2: three of ten move the
    mean by 0.3 × 2.2 at most, besides what they take away.
    """
    honest = np.linspace(0.9, 1.1, 7)[:, None] * np.ones(D)
    moved = centre(np.vstack([honest, attack]), aggregation)
    if aggregation == "norm-clipping":
        assert np.linalg.norm(moved - 0.7) <= 0.3 * 2.2 + 0.1
    else:
        assert (moved >= 0.9 - 1e-6).all()
        assert (moved <= 1.1 + 1e-6).all()


@pytest.mark.parametrize("aggregation", ["uniform", *ROBUST])
def test_claimed_sizes_buy_no_votes(aggregation: Aggregation) -> None:
    trained = np.vstack([np.ones((4, D)), np.full((1, D), -9.0)])
    honest, greedy = (centre(trained, aggregation, [1, 1, 1, 1, size]) for size in (1, 10**9))
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


@pytest.mark.parametrize("name", ["fedavg", "pacfl"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_word_of_the_configuration_is_obeyed(name: str, aggregation: Aggregation) -> None:
    algorithm = build(name, aggregation=aggregation)
    state = State(MODELS, dict.fromkeys(range(5), 0))
    sent = uploads(np.random.default_rng(0).normal(size=(5, D)), [1, 2, 3, 4, 5])
    assert same(algorithm.aggregate(state, sent), cluster_centres(state, sent, aggregation))


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="aggregation must be one of 'mean', 'uniform', 'median'"):
        build("fedavg", aggregation="krum")


# Updates that hide their client


def test_a_clip_that_nothing_reaches_changes_no_run() -> None:
    schedule = Schedule(rounds=2, participation=0.5)
    plain, clipped = (run_rounds(algorithm, schedule) for algorithm in (FedAvg(), FedAvg(clip_norm=1e6)))
    for one, other in zip(plain, clipped, strict=True):
        assert np.allclose(one.state.models, other.state.models, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [FedAvg, PACFL])
def test_no_upload_is_further_than_the_clip(kind: type[FedAvg] | type[PACFL]) -> None:
    start = model().initial
    up, _, _ = side(kind(clip_norm=0.01)).train(0, 0, {"w": start}, {})
    assert np.linalg.norm(up["w"].astype(np.float64) - start) == pytest.approx(0.01, rel=1e-3)


def test_noise_is_upon_every_weight_secret_or_seeded() -> None:
    start = model().initial

    def sent(randomness: str, t: int = 0) -> np.ndarray:
        hiding = build("fedavg", **{"clip-norm": 0.01, "noise-multiplier": 100.0, "private-noise": randomness})
        return side(hiding).train(t, 0, {"w": start}, {})[0]["w"]

    noise = sent("secret") - start
    assert np.std(noise) == pytest.approx(1.0, rel=0.2)
    assert not np.array_equal(sent("secret"), sent("secret"))
    assert np.array_equal(sent("seeded"), sent("seeded"))
    assert not np.array_equal(sent("seeded"), sent("seeded", t=1))


@pytest.mark.parametrize("settings", [{"noise_multiplier": 1.0}, {"clip_norm": 0.0}, {"clip_norm": -1.0}])
@pytest.mark.parametrize("name", ["fedavg", "pacfl"])
def test_what_would_hide_nothing_is_refused(name: str, settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="clip_norm"):
        build(name, **settings)
