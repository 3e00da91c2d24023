"""The loop over rounds, the same for every algorithm and every backend."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.label_prior import noted, sent
from pacfl.federation.message import ClientId, Message, nbytes
from pacfl.federation.schedule import RoundPlan
from pacfl.federation.secure_sums import in_cluster
from pacfl.learning.model import Vector


@dataclass(frozen=True)
class Score:
    """How well a model serves one client, by one protocol."""

    primary: float  # the primary metric
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)  # others by name, where they are defined


Scores = Mapping[str, Mapping[ClientId, Score]]  # name: client: score


def score_name(protocol: str, kind: str | None = None) -> str:
    """The name of scores by a protocol on a kind of test samples; None: the primary kind.

    >>> score_name("personal"), score_name("personal", "proportional")
    ('personal', 'personal@proportional')
    """
    return protocol if kind is None else f"{protocol}@{kind}"


class Clients(Protocol):
    """The clients of a federation, wherever they are."""

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        """What clients report about their data when they join. Replies may be missing."""

    def refuse(self, t: int, reasons: Mapping[ClientId, str]) -> None:
        """Some of the profiles do not fit those of other clients: record why these clients cannot join, or raise."""

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        """Local training. Replies may be missing: lost replies are normal."""

    def evaluate(self, t: int, downloads: Mapping[ClientId, Message], personal: bool, fine_tune: int) -> Scores:
        """Scores by protocol: received, last_trained and, where asked, personal and fine_tuned.

        Where clients have several kinds of test samples, also by `score_name` of each protocol on the others.
        """


class SimulatedClients(Clients, Protocol):
    """Clients on this machine, whose memory can be saved and restored."""

    memory: dict[ClientId, Message]
    last_trained: dict[ClientId, Vector]

    def forget(self, clients: Iterable[ClientId]) -> None:
        """Drop the memory of clients that left for good."""


class Backend(Protocol):
    """A way to run simulated clients."""

    def connect(self, setup: Any) -> AbstractContextManager[SimulatedClients]:
        """The clients of a setup, until the block is left."""


@dataclass(frozen=True, eq=False)
class Round:
    """What happened in a round."""

    t: int  # from 0
    plan: RoundPlan
    state: Any
    scores: Scores
    bytes_down: int
    bytes_up: int
    updates: int = 0  # uploads that were aggregated

    def scores_by_kind(self, others: Iterable[str]) -> dict[str | None, Scores]:
        """Scores by kind of test samples, then by protocol: the primary kind (None), and the others that are named."""
        own: dict[str | None, Scores] = {
            kind: {name.removesuffix(f"@{kind}"): by for name, by in self.scores.items() if name.endswith(f"@{kind}")}
            for kind in others
        }
        taken = {score_name(protocol, kind) for kind, found in own.items() for protocol in found}
        return {None: {name: by for name, by in self.scores.items() if name not in taken}, **own}


def rounds(
    algorithm: Algorithm, clients: Clients, state: Any, plans: Iterable[RoundPlan], start: int = 0
) -> Iterator[Round]:
    """Run the planned rounds from `start` on, beginning with the server's state before it."""
    for t, plan in enumerate(plans):
        if t < start:
            continue
        state = algorithm.forget(state, frozenset(plan.gone)) if plan.gone else state
        # A client whose profile was lost is asked again before it trains
        unknown = (c for c in plan.sampled if c not in state.cluster_of and c not in plan.joining)
        asked = (*plan.joining, *unknown)
        profiles = clients.profile(t, asked) if asked else {}
        if refused := algorithm.incompatible(state, profiles):
            clients.refuse(t, refused)
            profiles = {c: profile for c, profile in profiles.items() if c not in refused}
        state = algorithm.admit(state, profiles) if profiles else state
        downloads = {c: sent(algorithm, state, c) for c in plan.sampled if c in state.cluster_of}
        if algorithm.aggregation.secure:
            downloads = in_cluster(downloads, state.cluster_of)
        uploads = clients.train(t, downloads, plan.lost) if downloads else []
        state = algorithm.aggregate(noted(algorithm, state, uploads), uploads)
        evaluated = {c: sent(algorithm, state, c) for c in plan.evaluated if c in state.cluster_of}
        scores = clients.evaluate(t, evaluated, plan.personal, plan.fine_tune) if evaluated else {}
        bytes_down = sum(nbytes(d) for d in downloads.values())
        bytes_up = sum(map(nbytes, profiles.values())) + sum(u.nbytes for u in uploads)
        yield Round(t, plan, state, scores, bytes_down, bytes_up, len(uploads))
