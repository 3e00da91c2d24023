"""PACFL with levels = "validated": divisions of its clusters are tried, and used where held-out samples gain."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacfl
from pacfl.algorithms import PACFL, FedAvg, build
from pacfl.errors import ConfigError, InvalidReplyError
from pacfl.experiment.codec import decode, encode
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Upload
from pacfl.federation.label_prior import corrected, remembered, sent
from pacfl.federation.levels import HELD_OUT, stages
from pacfl.federation.membership import PACFLState
from pacfl.federation.message import Message
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import RoundPlan, Schedule, round_plans
from pacfl.federation.trials import held_out
from pacfl.learning.nets import mlp
from pacfl.subspace import class_signatures, signature, split_half_angles
from pacfl.subspace.classes import as_messages
from tests.small_federation import LEARNING, SEED, local, model, pool, run_rounds, same, side

ROUNDS = 25
PLAIN = PACFL(clusters=1, compare="inputs", levels="none", label_prior=False)
TRIED = replace(PLAIN, levels="validated")
SIZES = (40, 41, 42, 43, 44, 45, 46, 47, 48, 49)
CLIENTS = pool(("upright", "negative"), SIZES)  # 0 to 9 see digits upright, 10 to 19 negative: two blocks
N = len(CLIENTS.client_indices)
SCHEDULE = Schedule(rounds=ROUNDS, participation=0.6)
FIRST, SECOND = stages(ROUNDS)


def play(algorithm: PACFL, plans: Sequence[RoundPlan], state: PACFLState | None = None, start: int = 0) -> list[Round]:
    state = algorithm.planned(algorithm.init_server(model()), ROUNDS) if state is None else state
    with local(algorithm, model(), CLIENTS, LEARNING, SEED) as backend:
        return list(rounds(algorithm, backend, state, plans, start))


@cache
def lived() -> tuple[Round, ...]:
    return tuple(play(TRIED, list(round_plans(SCHEDULE, N, SEED))))


@cache
def joined(algorithm: PACFL = TRIED, n: int = N) -> PACFLState:
    clients = side(algorithm, CLIENTS)
    profiles = {c: clients.profile(0, c) for c in range(n)}
    return algorithm.admit(algorithm.planned(algorithm.init_server(model()), ROUNDS), profiles)


def crowd(n_blocks: int = 8, size: int = 5, algorithm: PACFL = TRIED) -> PACFLState:
    """Made-up clients in blocks of similar signatures; blocks 0 and 1, 2 and 3 and so on are closer to each other."""
    rng = np.random.default_rng(SEED)
    profiles = {}
    halves = rng.normal(size=(n_blocks // 2, 64, 3))
    for block in range(n_blocks):
        centre = halves[block // 2] + 0.5 * rng.normal(size=(64, 3))
        for i in range(size):
            basis, _ = np.linalg.qr(centre + 0.05 * rng.normal(size=(64, 3)))
            angles = np.full(32, 5.0, dtype=np.float32)
            profiles[block * size + i] = {"basis": basis.astype(np.float32), "split_half_angles": angles}
    return algorithm.admit(algorithm.planned(algorithm.init_server(model()), ROUNDS), profiles)


def replies(state: PACFLState, clients: Sequence[int], gain: float) -> list[Upload]:
    """Made-up uploads: part models score more than their rivals by about the gain."""
    uploads = []
    for c in clients:
        down = TRIED.download(state, c)
        content: dict[str, Any] = {"w": down["w"] + np.float32(0.01 * (c + 1))}
        if "rival" in down:
            part = any(same(down["w"], w) for trial in state.levels.trials for w in trial.models)
            difference = (gain + 0.001 * c) * (1 if part else -1)
            content["scores"] = np.array([[0.5 + difference, 0.5]] * 2, dtype=np.float32)
        uploads.append(Upload(c, 40 + c, content))
    return uploads


def after(n_rounds: int, gain: float = 0.2, state: PACFLState | None = None) -> PACFLState:
    """The state after so many rounds of everybody."""
    state = joined() if state is None else state
    for _ in range(n_rounds):
        state = TRIED.aggregate(state, replies(state, sorted(state.cluster_of), gain))
    return state


# Without trials


def test_with_few_planned_rounds_nothing_is_tried_and_all_samples_are_used() -> None:
    few = TRIED.planned(TRIED.init_server(model()), 19)
    plans = list(round_plans(Schedule(rounds=4, participation=0.6), N, SEED))
    tried, plain = play(TRIED, plans, few), play(PLAIN, plans, PLAIN.init_server(model()))
    for a, b in zip(tried, plain, strict=True):
        assert same(a.state.models, b.state.models)
        assert (a.scores, a.bytes_down, a.bytes_up) == (b.scores, b.bytes_down, b.bytes_up)


def test_clients_that_are_too_few_to_divide_use_all_samples() -> None:
    run = run_rounds(TRIED, Schedule(rounds=2, participation=1.0))  # six clients, and rounds not known either
    assert same(run[-1].state.models, run_rounds(PLAIN, Schedule(rounds=2, participation=1.0))[-1].state.models)
    state = joined(n=9)
    assert TRIED.download(state, 0).keys() == {"w"}


def labelled(counts: Sequence[Sequence[int]], algorithm: PACFL) -> PACFLState:
    """Made-up clients with so many samples of each of three classes."""
    rng = np.random.default_rng(SEED)
    means, profiles = 5 * rng.normal(size=(3, 64)), {}
    for c, own in enumerate(counts):
        y = np.repeat(np.arange(3), own)
        x = means[y] + rng.normal(size=(len(y), 64))
        angles = split_half_angles(x, 3, measures=["smallest"])["smallest"].astype(np.float32)
        inputs = {"basis": signature(x, 3).astype(np.float32), "split_half_angles": angles}
        profiles[c] = {**inputs, **as_messages(class_signatures(x, y), 64)}
    return algorithm.admit(algorithm.planned(algorithm.init_server(model()), ROUNDS), profiles)


EQUAL, SKEWED = [[30, 30, 30]] * 12, [[70, 10, 10], [10, 10, 70]] * 6


def test_clients_of_one_distribution_use_all_samples_and_others_hold_some_out() -> None:
    equal, skewed = (labelled(counts, PACFL()) for counts in (EQUAL, SKEWED))
    assert {*equal.cluster_of.values()} == {*skewed.cluster_of.values()} == {0}
    assert "held_out" not in PACFL().download(equal, 0)
    assert "held_out" in PACFL().download(skewed, 0)
    given = labelled(EQUAL, PACFL(clusters=1))  # whether these are one distribution was not asked
    assert "held_out" in PACFL().download(given, 0)


def test_in_a_homogeneous_federation_pacfl_is_fedavg_with_the_label_prior() -> None:
    """To the bit, through the rounds in which divisions would be tried."""
    base, rng = pool(("upright",)), np.random.default_rng(SEED)
    drawn = [rng.choice(len(base.train.y), 60, replace=False) for _ in range(12)]
    clients = replace(base, client_indices=tuple(replace(base.client_indices[0], train=rows) for rows in drawn))
    plans = list(round_plans(Schedule(rounds=8, participation=0.6), 12, SEED))
    runs = []
    for algorithm in (PACFL(), FedAvg(label_prior=True)):
        state = algorithm.planned(algorithm.init_server(model()), ROUNDS)
        with local(algorithm, model(), clients, LEARNING, SEED) as backend:
            runs.append(list(rounds(algorithm, backend, state, plans)))
    assert stages(ROUNDS)[0].start < len(plans)
    for a, b in zip(*runs, strict=True):
        assert same(a.state.models, b.state.models)
        assert a.scores == b.scores


def test_newcomers_with_other_class_shares_start_trials() -> None:
    state, others = labelled(EQUAL, PACFL()), labelled(SKEWED, PACFL())
    sent_by = {
        12 + c: {
            "basis": others.bases[c],
            "split_half_angles": np.full(32, 5.0, np.float32),
            **as_messages(others.classes[c], 64),
        }
        for c in others.bases
    }
    after_all = PACFL().admit(state, sent_by)
    assert {*after_all.cluster_of.values()} == {0}
    assert "held_out" in PACFL().download(after_all, 0)


def test_without_levels_nothing_is_tried() -> None:
    state = PLAIN.init_server(model())
    assert PACFL().levels == "validated"
    assert PLAIN.planned(state, 100) is state


@pytest.mark.parametrize("more", [{"signature_epsilon": 2.0}, {"aggregation": Aggregation(clip_norm=1.0)}])
def test_scores_of_held_out_samples_are_refused_where_samples_are_hidden(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="levels = 'validated' does not apply"):
        build("pacfl", levels="validated", **more)
    assert PACFL(**more).levels == "none"
    assert not PACFL(**more).label_prior


# What is sent


def test_a_trial_costs_what_is_planned_and_later_rounds_what_fedavg_costs() -> None:
    """12 of 20 clients: a model of 610 weights down and up; 8 bytes say how many samples to hold out.

    A scored round sends each of them another model, and they reply with four numbers of 4 bytes.
    """
    n, d = 12, 4 * 610
    for r in lived()[:ROUNDS]:
        before = lived()[r.t - 1].state.levels if r.t else None
        scored = before is not None and before.trials and before.rounds >= stages(ROUNDS)[before.stage - 1].scored
        holding = before is None or before.trials or r.t < FIRST.start
        assert r.bytes_down == n * (d * (2 if scored else 1) + (8 if holding else 0))
        if r.t:
            assert r.bytes_up == n * (d + (16 if scored else 0))
    assert any(r.bytes_down >= 2 * n * d for r in lived())
    assert lived()[SECOND.end].bytes_down == n * d


def test_the_total_is_at_most_a_tenth_above_fedavg() -> None:
    plain = play(PLAIN, list(round_plans(SCHEDULE, N, SEED)), PLAIN.init_server(model()))
    tried, fedavg = (sum(r.bytes_down + r.bytes_up for r in run) for run in (lived(), plain))
    assert 1.0 < tried / fedavg <= 1.1


def test_held_out_samples_are_never_trained_on_until_all_is_decided() -> None:
    clients = side(TRIED, CLIENTS)
    for c in range(N):
        contexts = [held_out(clients._context(t, c), HELD_OUT) for t in (0, 7)]
        (own, out), (again, _) = contexts
        n = len(CLIENTS.client_indices[c].train)
        assert same(own.train.indices, again.train.indices), "the same ones in every round"
        assert len(out.indices) == n // HELD_OUT
        assert sorted([*own.train.indices, *out.indices]) == sorted(CLIENTS.client_indices[c].train)
        assert same(own.raw, CLIENTS.raw[own.train.indices])


def test_all_samples_of_a_group_are_held_out_or_none() -> None:
    """Of 40 samples 8 are held out: two groups of 4. One of 25, 10 and 5 is nearer to 8 than none; one of 40 is not."""
    rows = CLIENTS.client_indices[0].train
    for sizes, expected in (([4] * 10, {8}), ([25, 10, 5], {5, 10}), ([40], {0})):
        groups = np.zeros(len(CLIENTS.train.y), dtype=np.int64)
        groups[rows] = np.repeat(np.arange(len(sizes)), sizes)
        context = replace(side(TRIED, CLIENTS)._context(0, 0), pool_groups=groups)
        own, out = held_out(context, HELD_OUT)
        assert own.groups is not None
        assert own.n_samples + len(out.y) == 40
        assert len(out.y) in expected
        assert not set(own.groups.tolist()) & set(groups[np.setdiff1d(rows, own.rows)].tolist())


def test_who_holds_out_nothing_reports_no_gain() -> None:
    state = after(FIRST.scored, 0.0)
    down = TRIED.download(state, 0)
    context = replace(side(TRIED, CLIENTS)._context(0, 0), pool_groups=np.zeros(len(CLIENTS.train.y), dtype=np.int64))
    up, _ = TRIED.train(context, down, {})
    TRIED.check_upload(model(), down, up)
    uploads = [Upload(0, context.n_samples, up)]
    assert TRIED.aggregate(state, uploads).levels.trials[0].gains == state.levels.trials[0].gains


def test_the_upload_is_the_training_of_the_remaining_samples_and_the_last_of_the_client() -> None:
    state = after(FIRST.scored)
    clients = side(TRIED, CLIENTS)
    down = TRIED.download(state, 3)
    assert down.keys() == {"w", "held_out", "rival"}
    up, _, last = clients.train(5, 3, down, {})
    own, _ = held_out(clients._context(5, 3), HELD_OUT)
    expected, _ = own.sgd(down["w"])
    assert same(up["w"], expected)
    assert same(last, expected)
    TRIED.check_upload(model(), down, up)
    with pytest.raises(InvalidReplyError, match="scores"):
        TRIED.check_upload(model(), down, {"w": up["w"]})
    with pytest.raises(InvalidReplyError, match="NaN"):
        TRIED.check_upload(model(), down, {**up, "scores": np.full((2, 2), np.nan, np.float32)})


def test_scores_are_those_of_both_models_as_received_and_as_personal() -> None:
    state = after(FIRST.scored)
    clients = side(TRIED, CLIENTS)
    down = TRIED.download(state, 3)
    up, _, _ = clients.train(5, 3, down, {})
    own, out = held_out(clients._context(5, 3), HELD_OUT)
    for column, w in enumerate((down["w"], down["rival"])):
        personal, _ = own.sgd(w, purpose="personal")
        for row, evaluated in enumerate((w, personal)):
            outputs, _ = own.engine.evaluate(evaluated, out)
            assert up["scores"][row, column] == np.float32((outputs.argmax(axis=1) == out.y).mean())


# What happens to the state


def test_both_arms_of_a_trial_start_from_the_same_model_and_are_averaged_apart() -> None:
    before = after(FIRST.start)
    (trial,) = before.levels.trials
    assert all(same(w, before.models[0]) for w in trial.models)
    uploads = replies(before, range(N), 0.0)
    one = TRIED.aggregate(before, uploads)
    in_part = [c for c in range(N) if _trains_part(before, c)]
    assert 3 < len(in_part) < 17, "about every second client"
    for w, clients in (
        (one.models[0], [c for c in range(N) if c not in in_part]),
        *((one.levels.trials[0].models[p], [c for c in in_part if trial.part_of[c] == p]) for p in range(2)),
    ):
        own = [u for u in uploads if u.client in clients]
        shares = np.array([u.size for u in own]) / sum(u.size for u in own)
        np.testing.assert_allclose(w, shares @ np.stack([u.content["w"] for u in own]), atol=1e-6)


def _trains_part(state: PACFLState, client: int) -> bool:
    """Who trains which arm shows when a single reply arrives."""
    alone = TRIED.aggregate(state, replies(state, [client], 0.0))
    return bool(same(alone.models, state.models))


def test_a_division_that_gains_is_used_and_divided_further() -> None:
    """Eight blocks of five, in four pairs: first the pairs, then the blocks."""
    state = after(FIRST.end, 0.2, crowd())
    pairs = [{state.cluster_of[c] for c in range(10 * p, 10 * p + 10)} for p in range(4)]
    assert sorted(row for rows in pairs for row in rows) == [0, 1, 2, 3]
    assert len(state.models) == 4
    assert set(state.clustering.labels) == {0}, "the clustering has the groups"
    assert "Dividing cluster 0 into 4 parts is used" in state.clustering.evidence["reasons"]
    (trial,) = state.levels.trials
    assert all(same(w, state.models[parent]) for w, parent in zip(trial.models, trial.parents, strict=True))
    end = after(SECOND.end - FIRST.end, 0.2, state)
    blocks = [{end.cluster_of[c] for c in range(5 * b, 5 * b + 5)} for b in range(8)]
    assert sorted(row for rows in blocks for row in rows) == list(range(8))
    for p in range(4):
        assert pairs[p] <= blocks[2 * p] | blocks[2 * p + 1], "one half has the number and the row of its parent"
    assert [d["parts"] for d in end.clustering.evidence["levels"]] == [4, 8]
    assert "into 8 parts instead of 4 is used" in end.clustering.evidence["reasons"]
    assert TRIED.download(end, 0).keys() == {"w"}, "all samples are used from now on"


def test_a_division_that_loses_is_dropped_at_once_and_nothing_else_is_tried() -> None:
    """Of 50 rounds four are scored in a trial; two of them are enough."""
    (first, _), start = stages(50), TRIED.planned(joined(), 50)
    assert after(first.scored + 1, -0.2, start).levels.trials
    state = after(first.scored + 2, -0.2, start)
    assert first.end > first.scored + 2
    assert state.levels.trials == ()
    assert set(state.cluster_of.values()) == {0}
    assert len(state.models) == 1
    assert "it loses" in state.clustering.evidence["reasons"]
    assert all(TRIED.download(state, c).keys() == {"w"} for c in range(N)), "all samples are used from now on"
    assert len(after(20, 0.2, state).clustering.evidence["levels"]) == 1


def test_a_run_without_a_gain_ends_with_the_cluster_it_began_with() -> None:
    state = after(SECOND.end, gain=-0.0095)  # from -0.0095 to 0.0095: no gain on average
    assert set(state.cluster_of.values()) == {0}
    assert "gains no more than noise" in state.clustering.evidence["reasons"]


@pytest.mark.parametrize("t", [0, FIRST.start, FIRST.scored, FIRST.end - 1, SECOND.start, SECOND.end])
def test_no_uploads_change_nothing(t: int) -> None:
    state = after(t)
    assert TRIED.aggregate(state, []) is state


@pytest.mark.parametrize("t", [FIRST.start, FIRST.end - 1])
def test_any_subset_of_uploads_is_legal(t: int) -> None:
    state = after(t)
    uploads = replies(state, [0, 1, 10, 11, 19], 0.3)
    results = set()
    for n in range(len(uploads) + 1):
        for some in itertools.combinations(uploads, n):
            one = TRIED.aggregate(state, some)
            assert np.isfinite(one.models).all()
            assert set(one.cluster_of) == set(range(N))
            assert all(TRIED.download(one, c)["w"].shape == (610,) for c in range(N))
            results.add((one.models.tobytes(), *(trial.models.tobytes() for trial in one.levels.trials)))
    assert len(results) == 32, "every reply counts"


def test_newcomers_join_the_nearest_part_and_nobody_else_moves() -> None:
    """Whether a division is being tried or is used; clients 9 and 19 come late, each to its block."""
    clients = side(TRIED, CLIENTS)
    late = {c: clients.profile(0, c) for c in (9, 19)}
    early = [c for c in range(N) if c not in late]
    start = TRIED.admit(TRIED.planned(TRIED.init_server(model()), ROUNDS), {c: clients.profile(0, c) for c in early})
    for t in (FIRST.start, FIRST.end):
        before = after(t, 0.2, start)
        state = TRIED.admit(before, late)
        assert all(state.cluster_of[c] == before.cluster_of[c] for c in early)
        assert same(state.models, before.models)
        part_of = state.levels.trials[0].part_of if state.levels.trials else state.cluster_of
        assert set(part_of) == set(range(N))
        assert part_of[9] in {part_of[c] for c in range(9)}
        assert part_of[19] in {part_of[c] for c in range(10, 19)}
        assert TRIED.admit(state, late) is state, "with the same data again nothing changes"
        assert set(after(3, 0.2, state).cluster_of) == set(range(N))


def test_clients_may_leave_and_return_with_other_data_during_a_trial() -> None:
    state = after(FIRST.start)
    gone = TRIED.forget(state, {0, 1, 10})
    assert not {0, 1, 10} & gone.levels.trials[0].part_of.keys()
    clients = side(TRIED, CLIENTS)
    moved = TRIED.admit(gone, {2: clients.profile(0, 12)})  # an upright one now sees negatives
    part_of = moved.levels.trials[0].part_of
    assert part_of[2] in {part_of[c] for c in range(11, 20)}
    assert len(set(after(FIRST.end - FIRST.start, 0.2, moved).cluster_of.values())) >= 2
    everybody = TRIED.admit(gone, {c: clients.profile(0, (c + 10) % N) for c in gone.cluster_of})
    assert everybody.levels.trials == (), "the group that was divided is no more"
    after(2, 0.2, everybody)


def test_groups_are_tried_on_their_own() -> None:
    """Two clusters of two blocks: each has a trial, and what one gains the other need not use."""
    algorithm = replace(TRIED, clusters=2)
    state = crowd(4, 5, algorithm)
    for _ in range(FIRST.end):
        uploads = [replies(state, [c], 0.2 if c < 10 else -0.2)[0] for c in range(20)]
        state = algorithm.aggregate(state, uploads)
    assert {state.cluster_of[c] for c in range(10)} == {0, 2}
    assert {state.cluster_of[c] for c in range(10, 20)} == {1}
    assert [d["used"] for d in sorted(state.clustering.evidence["levels"], key=lambda d: d["group"])] == [True, False]


def test_a_run_that_is_interrupted_in_a_trial_ends_as_if_it_was_not() -> None:
    plans = list(round_plans(SCHEDULE, N, SEED))
    for t in (FIRST.scored + 1, SECOND.start + 1):
        arrays: dict[str, np.ndarray] = {}
        tree = json.loads(json.dumps(encode(lived()[t].state, arrays)))
        resumed = TRIED.planned(decode(tree, arrays), ROUNDS)
        assert same(resumed, lived()[t].state)
        *_, end = play(TRIED, plans, resumed, t + 1)
        assert same(end.state, lived()[-1].state)


def test_fewer_planned_rounds_end_a_trial() -> None:
    state = TRIED.planned(after(FIRST.start), 5)
    assert TRIED.download(state, 0).keys() == {"w"}
    after(1, 0.2, state)


def test_no_method_changes_its_arguments() -> None:
    state = after(FIRST.end - 1)
    uploads = replies(state, range(N), 0.2)
    before = json.dumps(encode(state, {})), state.models.copy(), state.levels.trials[0].models.copy()
    TRIED.aggregate(state, uploads)
    TRIED.forget(state, {0, 1})
    down: Message = TRIED.download(state, 0)
    side(TRIED, CLIENTS).train(3, 0, down, {})
    assert json.dumps(encode(state, {})) == before[0]
    assert same(state.models, before[1])
    assert same(state.levels.trials[0].models, before[2])


# With the label prior


PRIOR = replace(TRIED, label_prior=True)


@cache
def corrected_run() -> tuple[Round, ...]:
    return tuple(play(PRIOR, list(round_plans(SCHEDULE, N, SEED))))


def test_the_label_prior_changes_no_model_before_a_decision() -> None:
    for a, b in zip(corrected_run()[: FIRST.end], lived(), strict=False):
        if a.t + 1 < FIRST.end:
            assert same(a.state.models, b.state.models)
            for one, other in zip(a.state.levels.trials, b.state.levels.trials, strict=True):
                assert same(one.models, other.models)


def test_parts_have_class_shares_of_their_own() -> None:
    """Those of the samples of the clients that trained them; a cluster's are of those that trained its model."""
    before, state = (corrected_run()[FIRST.start + t].state for t in (0, 1))
    (trial,) = state.levels.trials
    counts = np.array([np.bincount(CLIENTS.train.y[own.train], minlength=10) for own in CLIENTS.client_indices])
    sampled = corrected_run()[FIRST.start + 1].plan.sampled
    rows = {c: PRIOR.trained_row(before, Upload(c, 1, {})) for c in sampled}
    assert set(rows.values()) == {0, None}
    for part in range(len(trial.models)):
        own = [c for c in sampled if rows[c] is None and trial.part_of[c] == part]
        if own:
            of_round = counts[own].sum(axis=0) / counts[own].sum()
            expected = remembered(before.levels.trials[0].class_shares[part], of_round, len(own))
            np.testing.assert_allclose(trial.class_shares[part], expected)
    own = [c for c in sampled if rows[c] == 0]
    of_round = counts[own].sum(axis=0) / counts[own].sum()
    np.testing.assert_allclose(state.class_shares[0], remembered(before.class_shares[0], of_round, len(own)))


def test_a_scored_download_has_the_shares_of_both_models() -> None:
    state = corrected_run()[FIRST.scored - 1].state
    (trial,) = state.levels.trials
    for c in range(N):
        down = sent(PRIOR, state, c)
        assert down.keys() == {"w", "class_shares", "held_out", "rival", "rival_class_shares"}
        part, own = trial.class_shares[trial.part_of[c]], state.class_shares[0]
        expected = (part, own) if same(down["w"], trial.models[trial.part_of[c]]) else (own, part)
        np.testing.assert_allclose((down["class_shares"], down["rival_class_shares"]), expected, rtol=1e-6)


def test_scores_are_those_of_corrected_models() -> None:
    down = sent(PRIOR, corrected_run()[FIRST.scored - 1].state, 3)
    clients = side(PRIOR, CLIENTS)
    up, _, _ = clients.train(5, 3, down, {})
    own, out = held_out(clients._context(5, 3), HELD_OUT)
    w = corrected(PRIOR, own, {"w": down["rival"], "class_shares": down["rival_class_shares"]})["w"]
    assert not same(w, down["rival"])
    outputs, _ = own.engine.evaluate(w, out)
    assert up["scores"][0, 1] == np.float32((outputs.argmax(axis=1) == out.y).mean())


def test_a_division_that_is_used_has_the_shares_of_its_parts() -> None:
    state = replace(after(FIRST.end - 1), class_shares=np.full((1, 10), 0.1))
    (trial,) = state.levels.trials
    shares = np.eye(10)[: len(trial.models)]
    state = replace(state, levels=replace(state.levels, trials=(replace(trial, class_shares=shares),)))
    used = after(1, 0.2, state)
    for c in range(N):
        assert same(used.class_shares[used.cluster_of[c]], shares[trial.part_of[c]])


def test_with_a_server_optimiser_a_division_that_is_used_has_the_moments_of_its_parts() -> None:
    """Without momentum all models are those of means, and m is the last update."""
    optimising = replace(TRIED, aggregation=Aggregation(server_optimiser="momentum", beta1=0.0))
    state = joined()
    for _ in range(FIRST.end):
        before, state = state, optimising.aggregate(state, replies(state, range(N), 0.2))
    plain = after(FIRST.end)
    assert same(state.models, plain.models)
    assert same(state.cluster_of, plain.cluster_of)
    (trial,) = before.levels.trials
    for c in range(N):
        row = state.cluster_of[c]
        update = state.models[row] - trial.models[trial.part_of[c]]
        assert np.abs(update).max() > 0
        np.testing.assert_allclose(state.moments.first[row], update, atol=1e-6)


def test_what_was_decided_is_stored_with_the_clustering_of_a_run(tmp_path: Path) -> None:
    clients = [
        (CLIENTS.train.x[own.train], CLIENTS.train.y[own.train], CLIENTS.test.x[own.test], CLIENTS.test.y[own.test])
        for own in CLIENTS.client_indices
    ]
    pacfl.federate(
        clients,
        lambda: mlp((1, 8, 8), 10, 8),
        TRIED,
        LEARNING,
        rounds=ROUNDS,
        participation=0.6,
        runs=tmp_path,
        channels="first",
    )
    (stored,) = tmp_path.rglob("clustering.json")
    evidence = json.loads(stored.read_text())["evidence"]
    assert evidence["levels"][0]["parts"] >= 2
    assert all(decision["reasons"] in evidence["reasons"] for decision in evidence["levels"])
