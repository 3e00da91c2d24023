"""Granularity decided by learning: a finer division of a group's clients is used if their held-out samples gain.

Groups are the clusters that must learn apart. Within a group, nested cuts of the dendrogram are tried in turn, coarse
to fine. In a trial every sampled client trains either the model that it has used so far or that of its part, drawn at
random; both start from the same weights. In the last rounds of a trial clients receive both models, and report how
well each serves their held-out samples. A division that loses is dropped at once. One that gains no more than noise,
but seems to gain, is tried for longer. Nothing is tried in a group whose clients have the same distribution as far as
their classes show: no division of it can gain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from pacfl.federation.message import ClientId
from pacfl.federation.server_optimiser import Moments
from pacfl.subspace.hierarchy import Linkage, dendrogram

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Members = tuple[int, ...]

HELD_OUT: Final = 5  # one training sample in so many is not trained on until all is decided
LEAST_ROUNDS: Final = 20  # planned: with fewer, nothing is tried
LEAST_CLIENTS: Final = 5  # of a part
LEAST_SCORED: Final = 8  # clients behind a decision
LEAST_SCORED_ROUNDS: Final = 2  # a single one does not show how much gains vary between rounds
STAGES: Final = ((20, 35), (35, 50))  # trials, in percent of the planned rounds
SCORED: Final = 8  # of them at the end of each trial: with two models down, so that all sends 8 % more than FedAvg
PARTS: Final = (4, 8)  # of the division that is tried first, and of the one that is tried if that is used
GAIN_ERROR: Final = 0.01  # error rates of the one-sided tests of a gain, and of a loss: a division must prove itself
LOSS_ERROR: Final = 0.05
PROTOCOLS: Final = ("received", "personal")


@dataclass(frozen=True)
class Gain:
    """What held-out samples gain from a division, by one protocol: the mean of paired differences."""

    mean: float
    standard_error: float
    noise: float  # a gain above it is not noise
    least: float  # a loss below it is not noise


@dataclass(frozen=True)
class Decision:
    """A division that was tried, and whether it is used."""

    group: int
    parts_before: int
    parts: int
    clients: int  # whose held-out samples were scored
    received: Gain | None  # None: too few clients were scored
    personal: Gain | None
    used: bool
    lost: bool  # by either protocol
    open: bool  # whether more rounds may show a gain
    reasons: str


@dataclass(frozen=True, eq=False)
class Trial:
    """A division that is being tried in a group."""

    group: int
    part_of: Mapping[ClientId, int]
    models: NDArray[np.float32]  # (parts, d)
    parents: tuple[int, ...]  # the row of models that each part started from
    gains: tuple[tuple[int, ClientId, float, float], ...] = ()  # round, client, as received, as personal
    class_shares: Array | None = None  # (parts, classes) of the samples that models were last trained on
    moments: Moments | None = None  # of the server optimiser, if there is one


@dataclass(frozen=True, eq=False)
class Levels:
    """What was tried so far; the evidence of the clustering says what was decided."""

    address: int  # of everything that is drawn
    planned: int = 0  # rounds
    rounds: int = 0  # with replies, so far
    stage: int = 0  # trials that were begun
    trials: tuple[Trial, ...] = ()  # now, at most one in each group
    rows: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # of models, of the parts of a divided group
    closed: tuple[int, ...] = ()  # groups in which a division lost: no other is tried
    equal: tuple[int, ...] = ()  # groups whose classes and class shares agree: none is tried


class Stage(NamedTuple):
    """Rounds of a trial."""

    start: int
    scored: int  # the first round with scores
    end: int


def stages(planned: int) -> tuple[Stage, ...]:
    """When trials start, are scored and end.

    >>> stages(50)
    (Stage(start=10, scored=13, end=17), Stage(start=17, scored=21, end=25))
    """
    if planned < LEAST_ROUNDS:
        return ()
    scored = SCORED * planned // 100
    ends = ((start * planned // 100, end * planned // 100) for start, end in STAGES)
    return tuple(Stage(start, end - scored, end) for start, end in ends)


# Divisions


def divide(distances: Array, parts: Sequence[Members], n_parts: int, linkage: Linkage) -> tuple[Members, ...]:
    """Parts divided further, the highest merge of a dendrogram first, until there are n_parts or none can be divided.

    distances (n, n); parts and the result: positions of clients. No part has fewer than LEAST_CLIENTS.
    """
    result = list(parts)
    halves = {part: _halves(distances, part, linkage) for part in parts}
    while len(result) < n_parts:
        divisible = {part: found for part in result if (found := halves[part]) is not None}
        if not divisible:
            break
        part = max(divisible, key=lambda p: divisible[p][0])
        _, *both = divisible[part]
        result = [p for p in result if p != part] + both
        halves |= {half: _halves(distances, half, linkage) for half in both}
    return tuple(result)


def _halves(distances: Array, part: Members, linkage: Linkage) -> tuple[float, Members, Members] | None:
    """The highest merge of two sides that are large enough, and these; who is on neither joins the nearer one."""
    if len(part) < 2 * LEAST_CLIENTS:
        return None
    n, square = len(part), distances[np.ix_(part, part)]
    tree = dendrogram(square, linkage)
    node = 2 * n - 2
    while node >= n:
        sides = sorted((_leaves(tree, int(k)), int(k)) for k in tree[node - n, :2])
        (small, _), (large, below) = sorted(sides, key=lambda side: len(side[0]))
        if len(small) >= LEAST_CLIENTS:
            nearer = square[:, small].mean(axis=1) < square[:, large].mean(axis=1)
            nearer[small], nearer[large] = True, False
            first, second = (tuple(part[i] for i in np.flatnonzero(side)) for side in (nearer, ~nearer))
            return float(tree[node - n, 2]), min(first, second), max(first, second)
        node = below
    return None


def _leaves(tree: Array, node: int) -> list[int]:
    """The clients below a node of a dendrogram in scipy's form."""
    n, found, todo = len(tree) + 1, [], [node]
    while todo:
        k = todo.pop()
        if k < n:
            found.append(k)
        else:
            todo.extend(int(side) for side in tree[k - n, :2])
    return sorted(found)


# Decisions


def decide(trial: Trial) -> Decision:
    """Whether a division is used: better by more than noise by one protocol, and worse by none.

    Noise: one-sided tests of the mean gain, with error rates of GAIN_ERROR and LOSS_ERROR.
    """
    rounds, clients = (np.array([gain[i] for gain in trial.gains], dtype=np.int64) for i in range(2))
    n, before, parts = len(set(clients.tolist())), len(set(trial.parents)), len(trial.parents)
    about = f"Dividing cluster {trial.group} into {parts} parts" + (f" instead of {before}" if before > 1 else "")
    n_rounds = len(set(rounds.tolist()))
    if n < LEAST_SCORED or n_rounds < LEAST_SCORED_ROUNDS:
        why = (
            f"{about} was not decided: {n} clients in {n_rounds} rounds measured its gain, at least {LEAST_SCORED} in "
            f"{LEAST_SCORED_ROUNDS} are needed."
        )
        return Decision(trial.group, before, parts, n, None, None, False, False, True, why)
    by_protocol = (np.array([gain[i] for gain in trial.gains]) for i in (2, 3))
    received, personal = gains = [mean_gain(values, rounds, clients) for values in by_protocol]
    lost = any(gain.mean < gain.least for gain in gains)
    used = any(gain.mean > gain.noise for gain in gains) and not lost
    promising = not used and not lost and any(gain.mean > gain.standard_error for gain in gains)
    measured = " and ".join(
        f"{gain.mean:+.3f} ± {gain.standard_error:.3f} as {protocol}"
        for gain, protocol in zip(gains, PROTOCOLS, strict=True)
    )
    verdict = "is used" if used else "is not used, it loses" if lost else "is not used, it gains no more than noise"
    why = f"{about} {verdict}: {n} clients measured {measured} on held-out samples (gain ± standard error)."
    return Decision(trial.group, before, parts, n, received, personal, used, lost, promising, why)


def mean_gain(gains: Array, rounds: Integers, clients: Integers) -> Gain:
    """The mean over clients, each with the mean of its gains, and what noise alone may show; all (m,).

    Clients of a round compare the same two models, so that their gains vary together: a model that has just been
    trained by others serves all of them badly. The variance of this is estimated from the means of rounds, beyond what
    the clients in them explain, and added to that of clients (a random effect; degrees of freedom by Satterthwaite).
    """
    by_client = np.array([gains[clients == c].mean() for c in np.unique(clients)])
    of_round = [gains[rounds == r] for r in np.unique(rounds)]
    means, n, n_rounds = np.array([own.mean() for own in of_round]), len(by_client), len(of_round)
    of_clients = by_client.var(ddof=1) / n
    within = sum(((own - own.mean()) ** 2).sum() for own in of_round) / max(len(gains) - n_rounds, 1)
    of_rounds = max(means.var(ddof=1) - within * np.mean([1 / len(own) for own in of_round]), 0.0) / n_rounds
    mean, variance = float(by_client.mean()), of_clients + of_rounds
    if not variance:
        return Gain(mean, 0.0, 0.0, 0.0)
    freedom = variance**2 / (of_clients**2 / (n - 1) + of_rounds**2 / (n_rounds - 1))
    error = float(np.sqrt(variance))
    above, below = (float(student.ppf(1 - rate, freedom)) * error for rate in (GAIN_ERROR, LOSS_ERROR))
    return Gain(mean, error, above, -below)
