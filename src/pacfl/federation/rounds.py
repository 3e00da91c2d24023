"""The loop, the same for every algorithm and every way to reach clients."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.message import ClientId, Message, nbytes
from pacfl.federation.schedule import RoundPlan


@dataclass(frozen=True)
class Score:
    """How well one client is served, by one protocol."""

    accuracy: float
    loss: float


Scores = Mapping[str, Mapping[ClientId, Score]]  # protocol: client: score


class Backend(Protocol):
    """A way to reach clients."""

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        """What clients tell of their data. Replies may be missing here too."""

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        """Local trainings. Replies may be missing: lost replies are normal."""

    def evaluate(self, t: int, downloads: Mapping[ClientId, Message], personal: bool, fine_tune: int) -> Scores:
        """Scores by protocol: received, last_trained and, where asked, personal and fine_tuned."""


@dataclass(frozen=True, eq=False)
class Round:
    """What happened."""

    t: int
    plan: RoundPlan
    state: Any
    scores: Scores
    bytes_down: int
    bytes_up: int


def rounds(
    algorithm: Algorithm, backend: Backend, state: Any, events: Iterable[RoundPlan], start: int = 0
) -> Iterator[Round]:
    """Play the events from `start` on, beginning with the server's state before it."""
    for t, round_plan in enumerate(events):
        if t < start:
            continue
        state = algorithm.forget(state, frozenset(round_plan.gone)) if round_plan.gone else state
        # Who was not heard when it joined is asked again before it trains
        unheard = (c for c in round_plan.sampled if c not in state.cluster_of and c not in round_plan.joining)
        asked = (*round_plan.joining, *unheard)
        profiles = backend.profile(t, asked) if asked else {}
        state = algorithm.admit(state, profiles) if profiles else state
        downloads = {c: algorithm.download(state, c) for c in round_plan.sampled if c in state.cluster_of}
        uploads = backend.train(t, downloads, round_plan.lost) if downloads else []
        state = algorithm.aggregate(state, uploads)
        judged = {c: algorithm.download(state, c) for c in round_plan.evaluated if c in state.cluster_of}
        scores = backend.evaluate(t, judged, round_plan.personal, round_plan.fine_tune) if judged else {}
        bytes_down = sum(nbytes(d) for d in downloads.values())
        bytes_up = sum(map(nbytes, profiles.values())) + sum(nbytes(u.content) for u in uploads)
        yield Round(t, round_plan, state, scores, bytes_down, bytes_up)
