"""Which clients join, leave, are sampled or lose their reply in each round, and when all are evaluated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pacfl.errors import ConfigError
from pacfl.federation.message import ClientId
from pacfl.learning.randomness import stream
from pacfl.settings import NonNegativeInt, PositiveInt, PositiveShare, Share, check, later

Clients = tuple[ClientId, ...]


@dataclass(frozen=True)
class RoundPlan:
    """Who does what in one round."""

    gone: Clients = ()  # left for good
    joining: Clients = ()  # or profiled again, if they are known
    sampled: Clients = ()
    lost: frozenset[ClientId] = frozenset()  # sampled clients whose reply never arrives, or arrives too late
    evaluated: Clients = ()
    personal: bool = False  # evaluate also after personalisation, which costs a local training of every client
    fine_tune: int = 0  # evaluate also after this many epochs of plain training from the model as received


@dataclass(frozen=True)
class Schedule:
    """Rounds, counted from 1, and who takes part in them. All randomness is addressed by the seed and the round."""

    rounds: NonNegativeInt = 50
    participation: PositiveShare = 0.1  # of the clients present
    evaluate_every: NonNegativeInt = 0  # rounds between evaluations; 0 evaluates at the end only
    personal_every: NonNegativeInt = 0  # the same for evaluations after personalisation
    newcomers: NonNegativeInt = 0  # clients, drawn by the seed, that join after the last round
    fine_tune: PositiveInt = 5  # epochs for which newcomers fine-tune the model that they receive
    client_dropout: Share = 0.0  # probability that a reply is lost
    joins: Mapping[int, Clients] = field(default_factory=dict)  # round: clients that join, or return
    leaves: Mapping[int, Clients] = field(default_factory=dict)  # round: clients that leave before it
    reprofile: Mapping[int, Clients] = field(default_factory=dict)  # round: clients whose data have drifted
    final_personal: bool = later(True)  # whether the evaluations at the end are also after personalisation

    def __post_init__(self) -> None:
        check(self)
        for t, coming in self.joins.items():
            if both := set(coming) & set(self.leaves.get(t, ())):
                raise ConfigError(f"Schedule.joins and Schedule.leaves both name client {min(both)} in round {t}")


def round_plans(schedule: Schedule, n_clients: int, seed: int) -> Iterator[RoundPlan]:
    """The rounds, one more in which all clients are evaluated, and one for newcomers, if there are any."""
    _check_clients(schedule, n_clients)
    newcomers = _newcomers(schedule, n_clients, seed)
    late = _late(schedule) | set(newcomers)
    founders = [c for c in range(n_clients) if c not in late]
    last_join = {c: t for t in sorted(schedule.joins) for c in schedule.joins[t]}
    present: set[ClientId] = set()
    for t in range(schedule.rounds):
        joins, leaving, drifted = (
            plan.get(t + 1, ()) for plan in (schedule.joins, schedule.leaves, schedule.reprofile)
        )
        came = (*(founders if t == 0 else ()), *joins)
        gone = tuple(c for c in leaving if c in present and last_join.get(c, 0) < t + 1)
        present = (present | set(came)) - set(leaving)
        sampled = _sampled(sorted(present), schedule.participation, seed, t)
        draws = stream(seed, "loss", t).random(n_clients)
        yield RoundPlan(
            gone=gone,
            joining=(*came, *(c for c in drifted if c in present and c not in came)),
            sampled=sampled,
            lost=frozenset(c for c in sampled if draws[c] < schedule.client_dropout),
            evaluated=tuple(sorted(present)) if _due(schedule.evaluate_every, t) else (),
            personal=_due(schedule.personal_every, t),
        )
    if_no_rounds = () if schedule.rounds else tuple(founders)
    everybody = tuple(sorted({*present, *if_no_rounds}))
    yield RoundPlan(joining=if_no_rounds, evaluated=everybody, personal=schedule.final_personal)
    if newcomers:
        yield RoundPlan(
            (), newcomers, evaluated=newcomers, personal=schedule.final_personal, fine_tune=schedule.fine_tune
        )


def _check_clients(schedule: Schedule, n_clients: int) -> None:
    for name in ("joins", "leaves", "reprofile"):
        for t, clients in getattr(schedule, name).items():
            for c in clients:
                if t < 1 or not 0 <= c < n_clients:
                    raise ConfigError(
                        f"Schedule.{name} names client {c} in round {t}; clients are 0 to {n_clients - 1} "
                        f"({n_clients} in all), rounds count from 1"
                    )


def _newcomers(schedule: Schedule, n_clients: int, seed: int) -> Clients:
    """Newcomers, drawn among the clients that the schedule does not name."""
    lists = (schedule.joins, schedule.leaves, schedule.reprofile)
    named = {c for by_round in lists for clients in by_round.values() for c in clients}
    free = [c for c in range(n_clients) if c not in named]
    if schedule.newcomers >= n_clients or schedule.newcomers > len(free):
        raise ConfigError(
            f"{schedule.newcomers} newcomers of {n_clients} clients, {len(named)} of them named by joins, leaves or "
            "reprofile, leave no client to train"
        )
    return tuple(sorted(stream(seed, "newcomers").choice(free, schedule.newcomers, replace=False).tolist()))


def _late(schedule: Schedule) -> set[ClientId]:
    """Clients that join later, unless they leave before they join: those are there from the start."""
    joins, leaves = (
        {c: t for t in sorted(plan, reverse=True) for c in plan[t]} for plan in (schedule.joins, schedule.leaves)
    )
    return {c for c, t in joins.items() if t <= leaves.get(c, t)}


def _sampled(present: list[ClientId], share: float, seed: int, t: int) -> Clients:
    if not present:
        return ()
    n = max(round(share * len(present)), 1)
    return tuple(sorted(stream(seed, "sample", t).choice(present, n, replace=False).tolist()))


def _due(every: int, t: int) -> bool:
    return every > 0 and (t + 1) % every == 0
