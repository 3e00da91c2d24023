"""Who joins, who leaves, who is sampled, whose reply is lost, and when everybody is judged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pacfl.federation.message import ClientId
from pacfl.learning.plan import stream


@dataclass(frozen=True)
class Event:
    """One round. Everything the server does is decided by it."""

    joining: tuple[ClientId, ...] = ()  # or profiled anew, if they are known
    sampled: tuple[ClientId, ...] = ()
    lost: frozenset[ClientId] = frozenset()  # sampled clients whose reply never comes, or comes too late
    judged: tuple[ClientId, ...] = ()
    personal: bool = False  # judge also after personalisation, which costs a local training of everybody


@dataclass(frozen=True)
class Schedule:
    """A plan of rounds. All randomness is addressed by the seed and the round."""

    rounds: int = 50
    sample: float = 0.1  # share of the clients present
    evaluate_every: int = 0  # rounds between evaluations; 0 evaluates at the end only
    personal_every: int = 0  # the same for evaluations after personalisation; at the end always
    newcomers: int = 0  # the last clients, who come after the last round
    loss: float = 0.0  # probability that a reply is lost
    joins: Mapping[int, tuple[ClientId, ...]] = field(
        default_factory=dict
    )  # round: clients who come (or come back) then
    leaves: Mapping[int, tuple[ClientId, ...]] = field(default_factory=dict)  # round: clients who go before it
    reprofile: Mapping[int, tuple[ClientId, ...]] = field(
        default_factory=dict
    )  # round: clients whose data have drifted

    def __post_init__(self) -> None:
        if self.rounds < 0 or not 0 < self.sample <= 1 or not 0 <= self.loss <= 1 or self.newcomers < 0:
            raise ValueError(f"rounds and newcomers must not be negative, sample in (0, 1], loss in [0, 1]; got {self}")


def events(schedule: Schedule, n_clients: int, seed: int) -> Iterator[Event]:
    """The rounds, and one more event in which newcomers come and everybody is judged."""
    if schedule.newcomers >= n_clients:
        raise ValueError(f"{schedule.newcomers} newcomers of {n_clients} clients leave nobody to federate")
    later = {c for group in schedule.joins.values() for c in group}
    founders = [c for c in range(n_clients - schedule.newcomers) if c not in later]
    present: set[ClientId] = set()
    for t in range(schedule.rounds):
        came = (*founders, *schedule.joins.get(t, ())) if t == 0 else schedule.joins.get(t, ())
        present = (present | set(came)) - set(schedule.leaves.get(t, ()))
        joining = (*came, *(c for c in schedule.reprofile.get(t, ()) if c in present and c not in came))
        sampled = _sampled(sorted(present), schedule.sample, seed, t)
        draws = stream(seed, "loss", t).random(n_clients)
        yield Event(
            joining=joining,
            sampled=sampled,
            lost=frozenset(c for c in sampled if draws[c] < schedule.loss),
            judged=tuple(sorted(present)) if _due(schedule.evaluate_every, t) else (),
            personal=_due(schedule.personal_every, t),
        )
    last = tuple(range(n_clients - schedule.newcomers, n_clients))
    joining = (*(founders if schedule.rounds == 0 else ()), *last)
    everybody = tuple(sorted(present | set(joining)))
    yield Event(joining=joining, judged=last or everybody, personal=True)


def _sampled(present: list[ClientId], share: float, seed: int, t: int) -> tuple[ClientId, ...]:
    if not present:
        return ()
    n = max(round(share * len(present)), 1)
    return tuple(sorted(stream(seed, "sample", t).choice(present, n, replace=False).tolist()))


def _due(every: int, t: int) -> bool:
    return every > 0 and (t + 1) % every == 0
