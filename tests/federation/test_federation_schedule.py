import pytest

from pacfl.federation.schedule import RoundPlan, Schedule, round_plans

N = 12


def plan(schedule: Schedule, seed: int = 0, n: int = N) -> list[RoundPlan]:
    return list(round_plans(schedule, n, seed))


def test_there_is_one_event_for_each_round_and_one_for_the_end() -> None:
    *plans, end = plan(Schedule(rounds=5, participation=0.5))
    assert len(plans) == 5
    assert plans[0].joining == tuple(range(N))
    assert all(round_plan.joining == () for round_plan in plans[1:])
    assert all(round_plan.evaluated == () and round_plan.lost == frozenset() for round_plan in plans)
    assert end == RoundPlan(evaluated=tuple(range(N)), personal=True)


@pytest.mark.parametrize(("share", "count"), [(1.0, 12), (0.5, 6), (0.1, 1), (0.01, 1), (0.3, 4), (0.99, 12)])
def test_the_share_is_rounded_and_somebody_is_always_sampled(share: float, count: int) -> None:
    for round_plan in plan(Schedule(rounds=20, participation=share))[:-1]:
        assert len(round_plan.sampled) == count == len(set(round_plan.sampled))


def test_everybody_is_sampled_in_time() -> None:
    """The chance that one of 12 clients misses 200 draws of 3 is 12 · 0.75^200 < 1e-23."""
    seen = {c for round_plan in plan(Schedule(rounds=200, participation=0.25)) for c in round_plan.sampled}
    assert seen == set(range(N))


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    schedule = Schedule(rounds=10, participation=0.3, client_dropout=0.5, evaluate_every=2, newcomers=2)
    assert plan(schedule, 1) == plan(schedule, 1)
    assert plan(schedule, 1) != plan(schedule, 2)


def test_a_longer_plan_begins_as_the_shorter_one_did() -> None:
    short, long = (plan(Schedule(rounds=n, participation=0.3, client_dropout=0.5))[:5] for n in (5, 9))
    assert short == long


def test_who_is_sampled_does_not_depend_on_whose_reply_is_lost() -> None:
    certain, lossy = (plan(Schedule(rounds=9, participation=0.3, client_dropout=share)) for share in (0.0, 0.7))
    assert [e.sampled for e in certain] == [e.sampled for e in lossy]


def test_replies_are_lost_as_often_as_asked_and_only_of_the_sampled() -> None:
    """Of 2,400 replies 30 % are lost, with a deviation of √(0.3 · 0.7 / 2400) = 0.94 %: five of them are allowed."""
    lossy = plan(Schedule(rounds=400, participation=0.5, client_dropout=0.3))[:-1]
    assert all(round_plan.lost <= set(round_plan.sampled) for round_plan in lossy)
    assert sum(len(round_plan.lost) for round_plan in lossy) / 2400 == pytest.approx(0.3, abs=0.047)
    assert all(
        round_plan.lost == set(round_plan.sampled) for round_plan in plan(Schedule(rounds=5, client_dropout=1.0))[:-1]
    )


def test_judging_comes_when_due() -> None:
    plans = plan(Schedule(rounds=6, evaluate_every=2, personal_every=4))
    assert [bool(round_plan.evaluated) for round_plan in plans] == [False, True, False, True, False, True, True]
    assert [round_plan.personal for round_plan in plans] == [False, False, False, True, False, False, True]


def test_the_end_is_evaluated_without_personalisation_where_that_is_asked() -> None:
    schedule = Schedule(rounds=4, personal_every=2, newcomers=1, final_personal=False)
    assert [round_plan.personal for round_plan in plan(schedule)] == [False, True, False, True, False, False]


@pytest.mark.parametrize("seed", range(3))
def test_newcomers_are_not_seen_before_the_end_and_then_are_the_ones_judged(seed: int) -> None:
    *plans, end, after = plan(Schedule(rounds=6, participation=1.0, evaluate_every=1, newcomers=3, fine_tune=2), seed)
    old = tuple(c for c in range(N) if c not in after.joining)
    assert len(old) == 9
    for round_plan in plans:
        assert round_plan.sampled == round_plan.evaluated == old
    assert plans[0].joining == old
    assert end == RoundPlan(evaluated=old, personal=True)
    assert after == RoundPlan(joining=after.joining, evaluated=after.joining, personal=True, fine_tune=2)


def test_newcomers_are_drawn_by_the_seed() -> None:
    drawn = {plan(Schedule(rounds=1, newcomers=3), seed)[-1].joining for seed in range(8)}
    assert len(drawn) > 4


def test_who_is_named_in_the_plan_is_no_newcomer() -> None:
    schedule = Schedule(rounds=3, newcomers=4, joins={2: (0, 1, 2)}, leaves={3: (3, 4)}, reprofile={2: (5, 6)})
    for seed in range(5):
        assert set(plan(schedule, seed)[-1].joining) < set(range(7, N))


def test_joins_and_leaves_are_honoured() -> None:
    schedule = Schedule(
        rounds=6, participation=1.0, evaluate_every=1, joins={1: (3,), 3: (1, 2), 5: (3,)}, leaves={3: (3,), 4: (0,)}
    )
    here = [(0, 3), (0, 3), (0, 1, 2), (1, 2), (1, 2, 3), (1, 2, 3)]
    plans = plan(schedule, n=4)
    assert [round_plan.sampled for round_plan in plans[:-1]] == here
    assert [round_plan.evaluated for round_plan in plans[:-1]] == here
    assert [round_plan.joining for round_plan in plans] == [(0, 3), (), (1, 2), (), (3,), (), ()]
    assert plans[-1].evaluated == (1, 2, 3)


def test_a_founder_who_leaves_may_come_back() -> None:
    plans = plan(Schedule(rounds=5, participation=1.0, leaves={2: (2,)}, joins={4: (2,)}), n=3)
    assert [round_plan.sampled for round_plan in plans[:-1]] == [(0, 1, 2), (0, 1), (0, 1), (0, 1, 2), (0, 1, 2)]
    assert plans[0].joining == (0, 1, 2)
    assert plans[3].joining == (2,)


def test_only_those_present_are_sampled() -> None:
    schedule = Schedule(rounds=30, participation=0.4, joins={11: (5, 6)}, leaves={21: (0, 1, 2)})
    for t, round_plan in enumerate(plan(schedule)[:-1]):
        away = {0, 1, 2} if t >= 20 else {5, 6} if t < 10 else set()
        assert not away & set(round_plan.sampled)
        assert len(round_plan.sampled) == round(0.4 * (N - len(away)))


def test_rounds_in_which_nobody_is_there_are_empty() -> None:
    plans = plan(Schedule(rounds=3, participation=0.5, evaluate_every=1, leaves={2: tuple(range(N))}))
    assert plans[1] == RoundPlan(gone=tuple(range(N)))
    assert plans[2] == RoundPlan()
    assert plans[3] == RoundPlan(personal=True)


def test_drifted_clients_are_profiled_anew_if_they_are_there() -> None:
    plans = plan(Schedule(rounds=4, leaves={2: (4,)}, reprofile={1: (1,), 3: (3, 4)}))
    assert plans[0].joining == tuple(range(N)), "founders are profiled once"
    assert plans[2].joining == (3,), "who is away has no data to profile"


def test_without_rounds_everybody_joins_and_is_evaluated() -> None:
    assert plan(Schedule(rounds=0)) == [RoundPlan(joining=tuple(range(N)), evaluated=tuple(range(N)), personal=True)]
    end, after = plan(Schedule(rounds=0, newcomers=2))
    assert {*end.joining, *after.joining} == set(range(N))
    assert end.evaluated == end.joining
    assert after.evaluated == after.joining


@pytest.mark.parametrize(
    "nonsense",
    [
        {"rounds": -1},
        {"participation": 0.0},
        {"participation": 1.1},
        {"participation": float("nan")},
        {"client_dropout": -0.1},
        {"client_dropout": 1.1},
        {"newcomers": -1},
        {"evaluate_every": -1},
        {"personal_every": -1},
        {"fine_tune": 0},
        {"rounds": 2.5},
        {"joins": [3]},
    ],
)
def test_a_schedule_refuses_nonsense(nonsense: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(nonsense))):
        Schedule(**nonsense)  # type: ignore[arg-type]


def test_newcomers_must_leave_somebody_to_federate() -> None:
    with pytest.raises(ValueError, match="leave no client to train"):
        plan(Schedule(newcomers=N))
    with pytest.raises(ValueError, match="6 newcomers of 12 clients, 7 of them named"):
        plan(Schedule(newcomers=6, leaves={2: tuple(range(7))}))


@pytest.mark.parametrize("kind", ["joins", "leaves", "reprofile"])
def test_clients_that_do_not_exist_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="12"):
        plan(Schedule(rounds=3, **{kind: {1: (N,)}}))  # type: ignore[arg-type]


def test_a_round_before_the_first_is_refused() -> None:
    with pytest.raises(ValueError, match=r"joins names client 3 in round 0; .* rounds count from 1"):
        plan(Schedule(rounds=3, joins={0: (3,)}))


def test_nobody_comes_and_goes_in_the_same_round() -> None:
    with pytest.raises(ValueError, match=r"joins and .*leaves both name client 4 in round 3"):
        Schedule(joins={3: (5, 4)}, leaves={3: (4,)})
