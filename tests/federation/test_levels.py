"""When divisions are tried, which ones, and when they are used."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacfl.federation.levels import LEAST_CLIENTS, LEAST_ROUNDS, LEAST_SCORED, Trial, decide, divide, mean_gain, stages


def blocks(sizes: list[int], near: float = 1.0, far: float = 9.0) -> np.ndarray:
    """Distances of clients in blocks, with a little order inside each."""
    block = np.repeat(np.arange(len(sizes)), sizes)
    distances = np.where(block[:, None] == block, near, far) + np.abs(block[:, None] - block)
    jitter = np.random.default_rng(0).uniform(0, 0.1, distances.shape)
    distances = distances + jitter + jitter.T
    np.fill_diagonal(distances, 0.0)
    return distances


def trial(gains: Sequence[tuple[float, float]], parents: tuple[int, ...] = (0, 0)) -> Trial:
    """Gains of clients 0, 1, ..., in two rounds in turn."""
    by_client = tuple((c % 2, c, *gain) for c, gain in enumerate(gains))
    return Trial(0, {}, np.zeros((len(parents), 1), np.float32), parents, by_client)


@given(st.integers(0, 5000))
def test_all_is_decided_by_half_of_the_rounds_for_at_most_eight_percent_more_bytes(planned: int) -> None:
    """FedAvg sends two models per client and round; a scored round sends a third."""
    plan = stages(planned)
    assert (plan == ()) == (planned < LEAST_ROUNDS)
    for stage in plan:
        assert 0 < stage.start < stage.scored < stage.end <= planned / 2
    assert all(a.end == b.start for a, b in pairwise(plan))
    assert sum(stage.end - stage.scored for stage in plan) / max(2 * planned, 1) <= 0.08


def test_blocks_are_divided_where_they_are_far_apart() -> None:
    parts = divide(blocks([6, 7, 8]), [tuple(range(21))], 3, "average")
    assert sorted(parts) == [tuple(range(6)), tuple(range(6, 13)), tuple(range(13, 21))]


def test_clients_that_are_few_join_the_nearer_part() -> None:
    """Two clients apart from all others are no part; of two blocks they are nearer to the second."""
    distances = blocks([6, 6, 2])
    first, second = sorted(divide(distances, [tuple(range(14))], 2, "average"))
    assert (first, second) == (tuple(range(6)), tuple(range(6, 14)))


@given(st.integers(2 * LEAST_CLIENTS - 2, 40), st.integers(0, 20), st.sampled_from(["average", "single", "complete"]))
def test_divisions_are_nested_and_no_part_is_small(n: int, seed: int, linkage: str) -> None:
    points = np.random.default_rng(seed).normal(size=(n, 3))
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    everybody = [tuple(range(n))]
    coarse = divide(distances, everybody, 4, linkage)  # type: ignore[arg-type]
    fine = divide(distances, coarse, 8, linkage)  # type: ignore[arg-type]
    for parts in (coarse, fine):
        assert sorted(i for part in parts for i in part) == list(range(n))
        assert len(parts) == 1 or min(map(len, parts)) >= LEAST_CLIENTS
    assert all(any(set(part) <= set(parent) for parent in coarse) for part in fine)


def test_a_gain_above_noise_by_one_protocol_is_used() -> None:
    """Of nine clients, 0.01 to 0.09: mean 0.05, standard deviation 0.0274, standard error 0.0274 / 3 = 0.0091.

    Even and odd clients have the same mean: rounds add nothing. With 8 degrees of freedom a gain is above noise from
    2.90 standard errors on, and a loss from 1.86 on.
    """
    decision = decide(trial([(0.0, 0.01 * (c + 1)) for c in range(9)]))
    assert decision.used
    assert decision.personal is not None
    assert decision.personal.mean == pytest.approx(0.05)
    assert decision.personal.standard_error == pytest.approx(0.00913, abs=1e-5)
    assert decision.personal.noise == pytest.approx(2.8965 * 0.00913, abs=1e-4)
    assert decision.personal.least == pytest.approx(-1.8595 * 0.00913, abs=1e-4)
    assert "is used: 9 clients measured +0.000 ± 0.000 as received and +0.050 ± 0.009 as personal" in decision.reasons


def test_a_gain_by_one_protocol_does_not_pay_for_a_loss_by_the_other() -> None:
    decision = decide(trial([(-0.01 * (c + 1), 0.01 * (c + 1)) for c in range(9)]))
    assert (decision.used, decision.lost, decision.open) == (False, True, False)
    assert "it loses" in decision.reasons


def test_what_may_be_noise_is_not_used_and_a_hint_leaves_the_trial_open() -> None:
    """Gains of +1 and -1 in turn in each round: mean 0. Of 12 clients 8 gain: mean 0.33, standard error 0.28."""
    even = decide(trial([(0.0, (-1.0) ** (c // 2)) for c in range(12)]))
    assert (even.used, even.lost, even.open) == (False, False, False)
    hint = decide(trial([(0.0, 1.0 if c < 8 else -1.0) for c in range(12)]))
    assert (hint.used, hint.lost, hint.open) == (False, False, True)


def test_a_gain_of_one_round_alone_is_noise_however_many_clients_show_it() -> None:
    """100 clients gain 1.0 in one round and nothing in the other: mean 0.5, and rounds vary by as much.

    The means of the two rounds have variance 0.5, half of it for the mean of two: standard error 0.5.
    """
    gain = mean_gain(np.tile([0.0, 1.0], 50), np.tile([0, 1], 50), np.arange(100))
    assert gain.mean == 0.5
    assert gain.standard_error == pytest.approx(0.5, abs=0.01)
    assert gain.noise > 2.5


def test_the_stated_error_rates_hold_where_clients_and_rounds_vary() -> None:
    """48 scores in four rounds, by 36 clients of 1 to 100 samples, without any gain: nominally 10 and 50 of 1,000.

    Where rounds vary more than clients do, four of them show too little of it: up to 4 % and 8 %.
    """
    rng = np.random.default_rng(0)
    sizes = np.geomspace(1, 100, 36).astype(np.int64)
    for of_rounds in (0.0, 0.3, 1.0):
        above = below = 0
        for _ in range(1000):
            rounds, clients = np.repeat(np.arange(4), 12), rng.permutation(np.r_[np.arange(36), np.arange(12)])
            of_clients = rng.normal(size=36)[clients] * 0.5 + rng.normal(size=48) * 3 / np.sqrt(sizes[clients])
            gains = of_clients + of_rounds * rng.normal(size=4)[rounds]
            gain = mean_gain(gains, rounds, clients)
            above += gain.mean > gain.noise
            below += gain.mean < gain.least
        assert above <= (40 if of_rounds else 25), of_rounds
        assert below <= 80, of_rounds


def test_several_scores_of_a_client_count_once() -> None:
    once = tuple((c % 2, c, 0.0, 0.01 * c) for c in range(10))
    often = tuple((r, c, 0.0, 0.01 * c) for r in (0, 1) for c in range(10))
    one, other = (decide(replace(trial([]), gains=gains)) for gains in (once, often))
    assert one.clients == other.clients == 10
    assert one.personal == other.personal


@pytest.mark.parametrize(
    "gains",
    [[(c % 2, c, 1.0, 1.0) for c in range(LEAST_SCORED - 1)], [(0, c, 1.0, 1.0) for c in range(20)]],
)
def test_few_clients_or_a_single_round_decide_nothing(gains: list[tuple[int, int, float, float]]) -> None:
    decision = decide(replace(trial([]), gains=tuple(gains)))
    assert (decision.used, decision.lost, decision.open) == (False, False, True)
    assert "at least 8 in 2 are needed" in decision.reasons


def test_one_client_cannot_decide_by_a_huge_claim() -> None:
    """One value among zeros has t = 1, whatever it is."""
    for claim in (1e6, -1e6):
        honest = tuple((c % 2, c, 0.0, 0.0) for c in range(1, 30))
        decision = decide(replace(trial([]), gains=((0, 0, claim, claim), *honest)))
        assert not decision.used
        assert not decision.lost
