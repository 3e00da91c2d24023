"""Secure sums of uploads: the models of plain aggregation to a stated rounding, and noise that belongs to the sum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from pacfl.algorithms import PACFL, FedAvg, build
from pacfl.errors import ConfigError, DivergedError, InvalidReplyError
from pacfl.exporting.card import privacy_spent
from pacfl.federation.aggregation import Aggregation, Randomness, Rule
from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.checks import CLASS_COUNTS
from pacfl.federation.label_prior import noted
from pacfl.federation.message import ClientId, Message
from pacfl.federation.schedule import Schedule
from pacfl.federation.secure_sums import (
    Layout,
    by_cluster,
    check_sum,
    in_cluster,
    summed,
    upload_of,
    words_of,
)
from pacfl.learning.client_context import ClientContext
from pacfl.privacy.accounting import epsilon_of_sums, epsilon_of_uploads
from pacfl.privacy.limits import threshold
from tests.small_federation import LIVELY, NAMES, lively, model, pool, run_rounds, side

SUMMED = tuple(name for name in NAMES if build(name).no_secure() is None)
SECURE = Aggregation(secure=True)
RULES: tuple[Rule, ...] = ("mean", "uniform")
FULL = Schedule(rounds=3, participation=1.0)


def secured(name: str, rule: Rule = "mean", **more: Any) -> Algorithm:
    return build(
        name, **LIVELY.get(name, {}), aggregation=Aggregation(rule, secure=True), **{"label_prior": False, **more}
    )


# Models


def one_round(algorithm: Algorithm) -> tuple[Any, dict[ClientId, Message], list[Upload]]:
    """The state, downloads and uploads of a first round of all clients of the small federation."""
    clients = side(algorithm)
    n = len(pool().client_indices)
    state = algorithm.admit(algorithm.init_server(model()), {c: clients.profile(0, c) for c in range(n)})
    downloads = in_cluster({c: algorithm.download(state, c) for c in range(n)}, state.cluster_of)
    memory = algorithm.init_client(model())
    ups = {c: clients.train(0, c, down, memory)[0] for c, down in downloads.items()}
    return state, downloads, [Upload(c, len(pool().client_indices[c].train), up) for c, up in ups.items()]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SUMMED)
def test_a_round_is_the_plain_one_to_the_stated_rounding(name: str, rule: Rule) -> None:
    """By size, m changes times samples have half a step of 2^-18 each: m / (2^19 N) of a model. Then float32 rounds.

    Without weights 2^-37. FedNova multiplies a mean direction by a mean number of steps.
    """
    algorithm = secured(name, rule)
    state, downloads, uploads = one_round(algorithm)
    plain = algorithm.aggregate(state, uploads)
    secure = algorithm.aggregate(state, summed(side(algorithm), 0, downloads, uploads))
    least = min(sum(u.size for u in uploads if state.cluster_of[u.client] == k) for k in set(state.cluster_of.values()))
    bound = len(uploads) / (2**19 * least) if rule == "mean" else 2.0**-37
    factor = 2 * max(float(u.content["steps"][0]) for u in uploads) + 2 if name == "fednova" else 1
    allowed = factor * bound + np.abs(plain.models) * 2.0**-23
    assert (np.abs(secure.models - plain.models) <= allowed).all()
    assert not np.array_equal(plain.models, state.models)
    if name == "scaffold":  # which sums in float32 without masks
        rounding = len(uploads) * (2.0**-37 + 2.0**-23 * np.abs(plain.control).max())
        assert np.abs(secure.control - plain.control).max() <= rounding


@pytest.mark.parametrize("name", SUMMED)
def test_a_secure_run_ends_where_the_plain_one_does(name: str) -> None:
    plain, secure = run_rounds(lively(name), FULL), run_rounds(secured(name), FULL)
    assert np.allclose(plain[-1].state.models, secure[-1].state.models, atol=1e-5)
    assert plain[-1].state.cluster_of == secure[-1].state.cluster_of


def test_uploads_are_billed_as_words() -> None:
    """Eight bytes for each of 610 weights, and for the weight of the client; six clients."""
    (first, *_) = run_rounds(secured("fedavg"), FULL)
    assert first.bytes_up == 6 * 8 * (len(model().initial) + 1)


@pytest.mark.parametrize("rule", RULES)
def test_class_shares_are_those_of_plain_rounds(rule: Rule) -> None:
    """Counts are integers, and sums of them exact; by other rules shares are summed."""
    algorithm = FedAvg(aggregation=Aggregation(rule, secure=True), label_prior=True)
    state, downloads, uploads = one_round(algorithm)
    state = replace(state, class_shares=np.full((1, 10), 0.1))
    plain = noted(algorithm, state, uploads).class_shares
    sums = summed(side(algorithm), 0, downloads, uploads)
    assert plain is not None
    assert np.allclose(
        noted(algorithm, state, sums).class_shares, plain, atol=0 if rule == "mean" else 1e-9, rtol=1e-15
    )
    assert sums[0].n_clients == 6
    if rule == "mean":
        assert sums[0].content[CLASS_COUNTS].tolist() == sum(u.content[CLASS_COUNTS] for u in uploads).tolist()


def test_levels_are_not_validated() -> None:
    assert PACFL(aggregation=SECURE).levels == "none"
    with pytest.raises(ConfigError, match="levels = 'validated' does not apply"):
        build("pacfl", aggregation=SECURE, levels="validated")


# Who is in a sum


def with_losses(lost: Sequence[ClientId], algorithm: Algorithm | None = None) -> list[Upload]:
    algorithm = algorithm or secured("fedavg")
    _, downloads, uploads = one_round(algorithm)
    return summed(side(algorithm), 0, downloads, [u for u in uploads if u.client not in lost])


def test_a_sum_is_of_those_who_replied() -> None:
    """Six clients of 21, 34 and 55 samples each, in two domains."""
    assert [(u.size, u.n_clients) for u in with_losses([])] == [(220, 6)]
    assert [(u.size, u.n_clients) for u in with_losses([2])] == [(165, 5)]
    assert with_losses([0, 1]) == []  # four of six are not more than two thirds


def test_clusters_have_sums_of_their_own() -> None:
    sums = with_losses([1], secured("pacfl"))
    assert [(u.client, u.n_clients) for u in sums] == [(3, 3)]  # of three none may be lost


def test_equal_models_of_different_clusters_are_not_summed() -> None:
    down = {"w": np.zeros(3)}
    assert by_cluster(in_cluster(dict.fromkeys(range(5), down), {0: 0, 1: 1, 2: 0, 3: 1, 4: 1})) == [[0, 2], [1, 3, 4]]


def test_a_cluster_of_fewer_than_three_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"round 1: cluster 0 has 2 participating clients, .* is no secret; raise"):
        run_rounds(secured("fedavg"), Schedule(rounds=1, participation=0.3))


# What is refused


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: build("cfl", aggregation=SECURE), "CFL splits clusters by the cosines between single updates"),
        (lambda: build("ifca", aggregation=SECURE), "the choice of a model, which is sent as it is"),
        (lambda: build("fesem", aggregation=SECURE), "assigns clients to centres by their single models"),
        (lambda: build("flexcfl", aggregation=SECURE), "the pre-training updates of single clients"),
        (lambda: build("flis", aggregation=SECURE), "what the models of single clients infer"),
        (lambda: build("fedclust", aggregation=SECURE), "the last layers of single clients"),
        (lambda: build("feddag-clusters", aggregation=SECURE), "the first updates of single clients"),
        (lambda: build("fedrc", aggregation=SECURE), "how the classes of every client are divided"),
        (lambda: build("fedsoft", aggregation=SECURE), "weighs single clients"),
        (lambda: build("clove", aggregation=SECURE), "the loss vectors of single clients"),
        (lambda: build("stocfl", aggregation=SECURE), "the gradients of single clients"),
        (
            lambda: build("solo", aggregation=SECURE),
            "solo sends nothing that could be aggregated",
        ),
        *((lambda r=r: Aggregation(r, secure=True), "looks at single updates") for r in ("median", "trimmed-mean")),
        (lambda: Aggregation("norm-clipping", secure=True), "looks at single updates"),
        (lambda: Aggregation(clip_norm=1.0, secure=True), 'use rule = "uniform"'),
        (lambda: Aggregation("uniform", noise_multiplier=1.0, secure=True), "noise hides nothing without clip-norm"),
    ],
)
def test_settings_that_need_more_than_sums_are_refused(make: Callable[[], object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


@dataclass(frozen=True)
class Own(Algorithm):
    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:  # noqa: ARG002
        return state


@dataclass(frozen=True)
class More(Algorithm):
    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        up, memory = super().train(context, down, memory)
        return {**up, "more": np.zeros(1)}, memory


def test_a_plug_in_that_does_not_declare_its_sums_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not declare by `sums` that sums are enough"):
        Own(aggregation=SECURE)
    with pytest.raises(ConfigError, match=r"More uploads \['more'\] and does not declare by `sums`"):
        Layout.of(More(aggregation=SECURE), model(), {"w": model().initial})


def test_numbers_that_have_no_word_are_refused_and_not_wrapped() -> None:
    algorithm, down = secured("fedavg"), {"w": model().initial}
    huge = {"w": np.full_like(model().initial, 1e12)}
    with pytest.raises(DivergedError, match="'w' does not fit into secure aggregation"):
        words_of(algorithm, Layout.of(algorithm, model(), down), down, huge, 100, 3, (0, 0, 0))


def test_sums_that_no_valid_uploads_have_are_refused() -> None:
    algorithm, down = FedAvg(aggregation=SECURE, label_prior=True), {"w": model().initial}
    layout = Layout.of(algorithm, model(), down)
    words = np.zeros(layout.n_words, dtype=np.uint64)
    with pytest.raises(InvalidReplyError, match="class_counts"):
        check_sum(algorithm, model(), down, upload_of(algorithm, layout, down, words, 0, 3))
    words[0], words[-1] = np.uint64(2**62), np.uint64(3)
    words[-11:-1] = 1
    with pytest.raises(InvalidReplyError, match="norm"):
        check_sum(algorithm, model(), down, upload_of(algorithm, layout, down, words, 0, 3))
    words[0] = 0
    check_sum(algorithm, model(), down, upload_of(algorithm, layout, down, words, 0, 3))


# Noise of a sum


def hiding(multiplier: float, clip: float = 0.01, noise: Randomness = "secret") -> Algorithm:
    return FedAvg(aggregation=Aggregation("uniform", clip, multiplier, noise, secure=True))


def part_of(algorithm: Algorithm, change: np.ndarray, n: int, client: int = 0) -> np.ndarray:
    """A client's words as numbers, without its weight."""
    start = np.zeros_like(model().initial)
    layout = Layout.of(algorithm, model(), {"w": start})
    words = words_of(algorithm, layout, {"w": start}, {"w": start + change}, 100, n, (0, 0, client))
    return np.ldexp(words[:-1].view(np.int64).astype(np.float64), -36)


@given(st.floats(1e-3, 1e3), st.integers(0, 2**31), st.floats(1e-6, 1e6))
def test_no_part_of_a_sum_is_longer_than_the_clip_norm(clip: float, seed: int, length: float) -> None:
    """In exact arithmetic, and to the rounding of one product: numbers are rounded towards zero."""
    change = np.random.default_rng(seed).standard_normal(610) * length
    sent = part_of(hiding(0.0, clip), change.astype(np.float32), 3)
    square = sum(Fraction(x) ** 2 for x in sent.tolist())
    assert square <= Fraction(clip) ** 2 * (1 + Fraction(1, 2**40))


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("noise", ["secret", "seeded"])
def test_the_fewest_clients_that_may_stay_have_the_noise_of_a_sum(n: int, noise: Randomness) -> None:
    """z C on each number of the sum of t clients, normally distributed; more clients have more."""
    algorithm = hiding(2.0, 0.5, noise=noise)
    still = np.zeros(610, dtype=np.float32)
    total = sum(part_of(algorithm, still, n, c) for c in range(threshold(n)))
    assert kstest(total / (2.0 * 0.5), "norm").pvalue > 1e-6
    assert total.std() == pytest.approx(1.0, rel=0.2)


def test_the_accountant_knows_what_the_server_learns_of_sums() -> None:
    """As of one upload with the noise of the sum; with c of t clients colluding only t - c parts of it are left."""
    assert epsilon_of_sums(4.0, 20, 1e-5, 5) == epsilon_of_uploads(4.0, 20, 1e-5)
    assert epsilon_of_sums(4.0, 20, 1e-5, 5, colluding=3) == pytest.approx(epsilon_of_uploads(2.0, 20, 1e-5))
    by_colluding = [epsilon_of_sums(4.0, 20, 1e-5, 10, colluding=c) for c in range(7)]
    assert by_colluding == sorted(by_colluding)
    assert epsilon_of_sums(0.0, 1, 1e-5) == inf
    with pytest.raises(ValueError, match="for 4 of 5 clients stay"):
        epsilon_of_sums(4.0, 20, 1e-5, 5, colluding=4)


def test_a_client_adds_less_noise_than_it_would_need_alone() -> None:
    """The same protection against the server: of ten clients seven stay, so each adds a variance of a seventh."""
    still = np.zeros(610, dtype=np.float32)
    own = part_of(hiding(1.0, 1.0), still, 10).std()
    assert own == pytest.approx(7**-0.5, rel=0.2)


@pytest.mark.parametrize(("noise", "size"), [(1e-6, "small"), (1e9, "large")])
def test_noise_that_words_cannot_hold_is_refused(noise: float, size: str) -> None:
    with pytest.raises(ConfigError, match=f"too {size} for the words"):
        part_of(hiding(noise), np.zeros(610, dtype=np.float32), 3)


def test_a_model_card_states_the_epsilon_of_sums() -> None:
    settings = {"secure": True, "rule": "uniform", "clip_norm": 1.0, "noise_multiplier": 4.0}
    (sentence,) = privacy_spent(settings, [(0, 1, 2)] * 20)
    assert f"epsilon {epsilon_of_sums(4.0, 20, 1e-5):.3g}" in sentence
    assert "no client" in sentence
