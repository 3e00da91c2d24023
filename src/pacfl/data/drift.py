"""Drift: from a round on, some clients have data of another group."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pacfl.data.dataset import Indices
from pacfl.errors import DataError
from pacfl.settings import PositiveInt, PositiveShare, build, check


@dataclass(frozen=True)
class Drift:
    """Before a round, counted from 1, a share of the clients changes group.

    reprofile: whether these clients notice, and send a new profile in that round.
    """

    round: PositiveInt
    share: PositiveShare
    reprofile: bool = False

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, eq=False)
class DataSwap:
    """Whose data each client has from a round on, counted from 1: clients of different groups swap theirs."""

    round: int
    source: Indices  # (n,): client -> the client whose data it has then
    reprofile: bool = False

    @property
    def clients(self) -> tuple[int, ...]:
        """Those whose data change."""
        return tuple(np.flatnonzero(self.source != np.arange(len(self.source))).tolist())

    def source_of(self, client: int, round_: int) -> int:
        """The client whose data a client has in a round, counted from 1."""
        return int(self.source[client]) if round_ >= self.round else client


def build_drift(description: Mapping[str, object]) -> Drift:
    """The drift that a table describes.

    >>> build_drift({"round": 25, "share": 0.1})
    Drift(round=25, share=0.1, reprofile=False)
    """
    return build(Drift, description, "drift", "[data] drift:")


def drawn_swap(drift: Drift, true_cluster: Indices | None, rng: np.random.Generator) -> DataSwap:
    """Pairs of clients of different groups, drawn at random, that swap all their data, training and test samples.

    No sample is made or lost: one model for all sees the same samples before and after. As many clients drift as the
    share says, rounded to pairs, at least one, and of every group about the same number.
    """
    if true_cluster is None or len(np.unique(true_cluster)) < 2:
        raise DataError("drift changes the group of clients, and this scheme has no groups; add groups, or use by-set")
    n = len(true_cluster)
    half = max(1, round(drift.share * n / 2))
    order = rng.permutation(n)
    groups = true_cluster[order]
    turn = np.array([(groups[:i] == group).sum() for i, group in enumerate(groups)])
    chosen = order[np.argsort(turn, kind="stable")[: 2 * half]]  # the first of every group, then the second, ...
    chosen = chosen[np.argsort(true_cluster[chosen], kind="stable")]
    # In order of their groups, and none of more than half of them: those half the way round are of another group
    partner = np.roll(chosen, -(len(chosen) // 2))
    if len(chosen) < 2 * half or (true_cluster[chosen] == true_cluster[partner]).any():
        raise DataError(
            f"no {2 * half} of {n} clients can swap their data in pairs of different groups; use a smaller share"
        )
    source = np.arange(n)
    source[chosen] = partner
    return DataSwap(drift.round, source, drift.reprofile)
