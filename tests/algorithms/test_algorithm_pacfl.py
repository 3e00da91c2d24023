from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacfl.algorithms import PACFL, FedAvg
from pacfl.federation.algorithm import Upload
from pacfl.federation.membership import PACFLState
from pacfl.federation.message import Message
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.subspace import (
    LINKAGES,
    MEASURES,
    Linkage,
    Measure,
    adjusted_rand_index,
    agglomerate,
    proximity,
    signature,
    split_half_angles,
)
from tests.small_federation import model, pool, run_rounds, same, side

DOMAINS = ("upright", "turned", "negative")
SIZES = (60, 70, 80, 90)
THREE = pool(DOMAINS, SIZES)  # clients 0..3 see digits upright, 4..7 turned, 8..11 negative
TRUTH = np.repeat(np.arange(3), 4)


def profiles(algorithm: PACFL) -> dict[int, Message]:
    """What everybody tells, which neither the linkage nor the threshold can change."""
    return cached_profiles(algorithm.rank, algorithm.measure)


@cache
def cached_profiles(rank: Any, measure: Measure) -> dict[int, Message]:
    clients = side(PACFL(rank=rank, measure=measure, compare="inputs"), THREE)
    return {c: clients.profile(0, c) for c in range(12)}


def admitted(algorithm: PACFL, *groups: Sequence[int]) -> PACFLState:
    """The state after clients came, group by group."""
    state = algorithm.init_server(model())
    for group in groups:
        state = algorithm.admit(state, {c: profiles(algorithm)[c] for c in group})
    return state


def partition(state: Any) -> np.ndarray:
    return np.array([state.cluster_of[c] for c in sorted(state.cluster_of)])


def trained(state: PACFLState, *clusters: int) -> PACFLState:
    """The state after the first member of each cluster uploaded a model full of its number + 1."""
    uploads = []
    for k in clusters:
        member = next(c for c, own in state.cluster_of.items() if own == k)
        uploads.append(Upload(member, 5, {"w": np.full_like(model().initial, k + 1)}))
    return PACFL().aggregate(state, uploads)


GIVEN = PACFL(threshold=12.0)


def test_the_profile_is_the_signature_of_the_pixels_and_what_halves_of_them_show() -> None:
    for c in (0, 5):
        rows = THREE.raw[THREE.client_indices[c].train]
        profile = profiles(PACFL(rank=2, compare="inputs"))[c]
        assert set(profile) == {"basis", "split_half_angles"}
        assert profile["basis"].tobytes() == signature(rows, 2).astype(np.float32).tobytes()
        assert profile["split_half_angles"].shape == (32,)
        assert {array.dtype for array in profile.values()} == {np.dtype(np.float32)}


def test_clusters_are_those_of_the_dendrogram_cut_at_the_threshold() -> None:
    for degrees in (3.0, 6.0, 12.0, 80.0):
        algorithm = PACFL(threshold=degrees)
        bases = [profile["basis"] for profile in profiles(algorithm).values()]
        expected = agglomerate(proximity(bases), degrees, "average")
        assert partition(admitted(algorithm, range(12))).tolist() == expected.tolist()


def test_left_alone_it_finds_the_domains() -> None:
    state = admitted(PACFL(), range(12))
    assert adjusted_rand_index(partition(state), TRUTH) == 1.0
    assert state.models.shape == (3, len(model().initial))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 12, 50])
def test_as_many_clusters_as_asked_or_as_there_are_clients(k: int) -> None:
    state = admitted(PACFL(clusters=k), range(12))
    assert len(set(state.cluster_of.values())) == len(state.models) == min(k, 12)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_can_be_used(measure: Measure) -> None:
    """`entrywise` depends on the basis and `trace` on its order: only the others are sure to find the domains."""
    algorithm = PACFL(clusters=3, measure=measure)
    state = admitted(algorithm, range(12))
    assert len(set(state.cluster_of.values())) == 3
    assert state.clustering is not None
    assert state.clustering.measure == measure
    if measure in ("smallest", "sum"):
        assert adjusted_rand_index(partition(state), TRUTH) == 1.0
    assert len(admitted(algorithm, range(1, 12), [0]).cluster_of) == 12


@pytest.mark.parametrize("measure", MEASURES)
def test_signatures_of_each_class_can_be_used(measure: Measure) -> None:
    """Clients that have three classes only: as many directions as of the whole, one of each class."""
    few = tuple(replace(own, train=own.train[THREE.train.y[own.train] >= 7]) for own in THREE.client_indices)
    algorithm = PACFL(rank=1, clusters=3, measure=measure, per_class=True)
    clients = side(algorithm, replace(THREE, client_indices=few))
    own = {c: clients.profile(0, c) for c in range(12)}
    for c, profile in own.items():
        rows = few[c].train
        expected = signature(THREE.raw[rows], 1, THREE.train.y[rows])
        assert expected.shape == (64, 3)
        assert profile["basis"].tobytes() == expected.astype(np.float32).tobytes()
    state = algorithm.admit(algorithm.init_server(model()), own)
    assert len(set(state.cluster_of.values())) == 3
    if measure in ("smallest", "sum"):
        assert adjusted_rand_index(partition(state), TRUTH) == 1.0


@pytest.mark.parametrize("linkage", LINKAGES)
def test_every_linkage_can_be_used(linkage: Linkage) -> None:
    state = admitted(PACFL(clusters=3, linkage=linkage), range(12))
    assert adjusted_rand_index(partition(state), TRUTH) == 1.0


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("threshold", ["auto", 12.0])
def test_newcomers_are_placed_by_the_linkage(linkage: Linkage, threshold: Any) -> None:
    """Four of each domain but the last, whose last client comes alone and late."""
    state = admitted(PACFL(threshold=threshold, linkage=linkage), range(11), [11])
    assert state.clustering is not None
    assert state.clustering.linkage == linkage
    assert state.cluster_of[11] == state.cluster_of[10]


# Newcomers: 0, 1, 4, 5, 8, 9 federate, others come later


@pytest.mark.parametrize("algorithm", [PACFL(), GIVEN, PACFL(clusters=3)], ids=["auto", "degrees", "clusters"])
def test_newcomers_get_the_cluster_of_their_domain_and_nobody_else_moves(algorithm: PACFL) -> None:
    before = trained(admitted(algorithm, [0, 1, 4, 5, 8, 9]), 0, 1, 2)
    after = algorithm.admit(before, {c: profiles(algorithm)[c] for c in (2, 7, 10, 3)})
    assert {c: after.cluster_of[c] for c in before.cluster_of} == before.cluster_of
    for newcomer, friend in ((2, 0), (3, 1), (7, 4), (10, 9)):
        assert after.cluster_of[newcomer] == before.cluster_of[friend]
    assert same(after.models, before.models)
    assert algorithm.download(after, 7)["w"][0] == before.cluster_of[4] + 1


def test_coming_one_by_one_ends_as_coming_together() -> None:
    one_by_one = admitted(GIVEN, [0, 4, 8], *([c] for c in (1, 5, 9, 2, 6, 10, 3, 7, 11)))
    assert adjusted_rand_index(partition(one_by_one), TRUTH) == 1.0


def test_a_cluster_that_is_opened_later_starts_from_the_initial_model() -> None:
    before = trained(admitted(GIVEN, range(8)), 0, 1)
    after = GIVEN.admit(before, {c: profiles(GIVEN)[c] for c in (8, 9)})
    assert after.cluster_of[8] == after.cluster_of[9] == 2
    assert same(after.models[:2], before.models)
    assert after.models[2].tobytes() == model().initial.tobytes()


def test_newcomers_after_the_last_round_are_judged_by_their_clusters_model() -> None:
    run = run_rounds(GIVEN, Schedule(rounds=2, participation=1.0, newcomers=3), THREE)
    before, after = run[-2], run[-1]
    newcomers = set(after.plan.joining)
    untrained = run_rounds(FedAvg(), Schedule(rounds=0), THREE)[0].scores["received"]
    assert same(after.state.models, before.state.models)
    assert {c: after.state.cluster_of[c] for c in before.state.cluster_of} == before.state.cluster_of
    assert set(after.scores["received"]) == newcomers
    assert not newcomers & set(before.scores["received"])
    assert not newcomers & set(before.state.bases), "unseen until they come"
    for c in newcomers:
        friend = next(f for f in range(12) if TRUTH[f] == TRUTH[c] and f not in newcomers)
        assert after.state.cluster_of[c] == after.state.cluster_of[friend]
        assert after.scores["received"][c].loss < untrained[c].loss
        assert after.scores["fine_tuned"][c].loss < untrained[c].loss


@st.composite
def comings_and_goings(draw: st.DrawFn) -> Schedule:
    """A plan in which anybody comes late, goes, comes back, or drifts."""
    at = st.dictionaries(st.integers(1, 6), st.lists(st.integers(0, 11), max_size=4, unique=True).map(tuple))
    joins, leaves, reprofile = draw(at), draw(at), draw(at)
    leaves = {t: tuple(c for c in clients if c not in joins.get(t, ())) for t, clients in leaves.items()}
    named = {c for plan in (joins, leaves, reprofile) for clients in plan.values() for c in clients}
    newcomers = draw(st.integers(0, min(4, 12 - len(named), 11)))
    return Schedule(rounds=6, newcomers=newcomers, joins=joins, leaves=leaves, reprofile=reprofile)


@settings(max_examples=60)
@given(
    schedule=comings_and_goings(),
    algorithm=st.sampled_from(
        [GIVEN, PACFL(threshold=5.0, linkage="single"), PACFL(clusters=2, measure="sum"), PACFL(linkage="complete")]
    ),
    drift=st.integers(0, 11),
)
def test_nobody_changes_cluster_because_somebody_else_came(schedule: Schedule, algorithm: PACFL, drift: int) -> None:
    """A client is in another cluster than before only if its own signature is another; nor are models exchanged.

    Whoever comes or comes back from the fourth round_plan on has the data of another client, if there is drift.
    """
    state = algorithm.init_server(model())
    for t, round_plan in enumerate(round_plans(schedule, 12, seed=0)):
        shift = drift if t > 3 else 0
        told_now = {c: profiles(algorithm)[(c + shift) % 12] for c in round_plan.joining}
        before, state = state, algorithm.admit(state, told_now) if told_now else state
        same_data = [c for c in before.bases if np.array_equal(state.bases[c], before.bases[c])]
        assert set(before.bases) - set(same_data) <= set(round_plan.joining)
        assert [state.cluster_of[c] for c in same_data] == [before.cluster_of[c] for c in same_data]
        assert same(state.models[: len(before.models)], before.models)
        incompatible = {k for c, k in state.cluster_of.items() if c not in before.cluster_of}
        assert incompatible <= set(before.cluster_of.values()) | set(range(len(before.models), len(state.models)))
        uploads = [Upload(c, 5, {"w": np.full_like(model().initial, c + t)}) for c in state.cluster_of if c % 2]
        state = algorithm.aggregate(state, uploads)


def test_whoever_comes_back_as_it_was_is_where_it_was() -> None:
    before = admitted(PACFL(threshold=5.0), [0, 4, 8], [1, 2], [3, 5, 6, 7])
    assert PACFL(threshold=5.0).admit(before, {c: profiles(GIVEN)[c] for c in (1, 2, 8)}) is before


# Drift


def test_a_client_whose_data_drifted_moves_and_nobody_else_does() -> None:
    before = trained(admitted(GIVEN, range(11)), 0, 1, 2)
    drifted = GIVEN.admit(before, {1: profiles(GIVEN)[11]})
    assert before.cluster_of[1] == before.cluster_of[0]
    assert drifted.cluster_of[1] == before.cluster_of[8]
    assert {c: k for c, k in drifted.cluster_of.items() if c != 1} == {
        c: k for c, k in before.cluster_of.items() if c != 1
    }
    assert same(drifted.models, before.models)
    back = GIVEN.admit(drifted, {1: profiles(GIVEN)[1]})
    assert back.cluster_of == before.cluster_of


def test_a_client_that_comes_back_with_other_labels_is_placed_anew() -> None:
    """Its inputs are the same, but for the noise of their order: only the names of its classes differ."""
    clients = pool(("upright",), (150,) * 9)
    relabelled = replace(clients, train=replace(clients.train, y=(clients.train.y + 1) % 10))
    algorithm = PACFL(compare="classes")
    plain, other = (side(algorithm, which) for which in (clients, relabelled))
    before = algorithm.init_server(model())
    before = algorithm.admit(before, {c: (other if c > 4 else plain).profile(0, c) for c in range(9)})
    assert partition(before).tolist() == [0] * 5 + [1] * 4
    drifted = algorithm.admit(before, {2: other.profile(1, 2)})
    assert partition(drifted).tolist() == [0, 0, 1, 0, 0, 1, 1, 1, 1]
    assert partition(algorithm.admit(drifted, {2: plain.profile(2, 2)})).tolist() == partition(before).tolist()


def test_everybody_may_drift_at_once() -> None:
    before = trained(admitted(GIVEN, range(12)), 0, 1, 2)
    after = GIVEN.admit(before, {c: profiles(GIVEN)[(c + 4) % 12] for c in range(12)})
    assert adjusted_rand_index(partition(after), TRUTH) == 1.0
    assert len(after.models) >= 3


@pytest.mark.parametrize("c", [0, 5, 10])
def test_profiling_anew_without_drift_changes_nothing(c: int) -> None:
    before = trained(admitted(GIVEN, range(12)), 0, 1, 2)
    after = GIVEN.admit(before, {c: profiles(GIVEN)[c]})
    assert after.cluster_of == before.cluster_of
    assert same(after.models, before.models)


@pytest.mark.parametrize("c", range(3))
def test_a_client_alone_in_its_cluster_keeps_its_model_when_it_is_profiled_anew(c: int) -> None:
    """Three clients of three domains; one goes and comes back as it was."""
    before = trained(admitted(GIVEN, [0, 4, 8]), 0, 1, 2)
    own = [0, 4, 8][c]
    after = GIVEN.admit(before, {own: profiles(GIVEN)[own]})
    assert GIVEN.download(after, own)["w"].tobytes() == GIVEN.download(before, own)["w"].tobytes()
    others = [other for other in (0, 4, 8) if other != own]
    assert [after.cluster_of[other] for other in others] == [before.cluster_of[other] for other in others]


def test_a_cluster_that_was_left_does_not_pass_its_model_to_strangers() -> None:
    """The only negative client turns upright; later another negative one comes, which nobody has ever served."""
    before = trained(admitted(GIVEN, [0, 1, 4, 5, 8]), 0, 1, 2)
    left = GIVEN.admit(before, {8: profiles(GIVEN)[2]})
    assert left.cluster_of[8] == left.cluster_of[0]
    assert not any(k == 2 for k in left.cluster_of.values())
    after = GIVEN.admit(left, {9: profiles(GIVEN)[9]})
    assert after.cluster_of[9] not in (after.cluster_of[0], after.cluster_of[4])
    assert GIVEN.download(after, 9)["w"].tobytes() == model().initial.tobytes()


def test_a_left_cluster_is_no_obstacle_to_training() -> None:
    before = admitted(GIVEN, [0, 1, 4, 5, 8])
    left = GIVEN.admit(before, {8: profiles(GIVEN)[2]})
    clients = side(GIVEN, THREE)
    uploads = [Upload(c, 60, clients.train(1, c, GIVEN.download(left, c), {})[0]) for c in left.cluster_of]
    after = GIVEN.aggregate(left, uploads)
    assert np.isfinite(after.models).all()
    assert same(after.models[2], left.models[2])


def test_who_is_in_another_cluster_is_not_heard() -> None:
    """A cluster learns as if it were alone: the same rounds with its members only give the same model."""
    schedule = Schedule(rounds=2, participation=1.0)
    whole = run_rounds(GIVEN, schedule, THREE)[-1].state
    others = tuple(c for c in range(12) if c not in range(4, 8))
    alone = run_rounds(FedAvg(), Schedule(rounds=2, participation=1.0, joins={9: others}), THREE)[-1].state
    assert same(whole.models[whole.cluster_of[5]], alone.models[0])


def of_noise(seed: int) -> Message:
    """The profile of samples without a leading direction."""
    x = np.random.default_rng(seed).normal(size=(60, len(profiles(PACFL(compare="inputs"))[0]["basis"])))
    own = split_half_angles(x, 3, measures=["smallest"])["smallest"]
    return {"basis": signature(x, 3).astype(np.float32), "split_half_angles": own.astype(np.float32)}


def test_clients_that_cannot_be_compared_train_alone_or_all_together_if_there_are_no_clusters() -> None:
    algorithm = PACFL(rank=3, compare="inputs", levels="none", label_prior=False)
    state = algorithm.admit(algorithm.init_server(model()), {**profiles(algorithm), 12: of_noise(0), 13: of_noise(1)})
    assert adjusted_rand_index(partition(state)[:12], TRUTH) == 1
    assert len(set(partition(state).tolist())) == 5
    assert len(state.models) == 5
    lost = algorithm.admit(algorithm.init_server(model()), {c: of_noise(c) for c in range(5)})
    assert partition(lost).tolist() == [0] * 5
