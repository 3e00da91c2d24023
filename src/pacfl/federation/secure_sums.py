"""Uploads as words that can be summed under masks, and a sum as one upload of many clients.

What is summed are changes from what was downloaded, times the client's samples by the rule `mean`. The last word is the
weight. The server divides one sum by the other, and the algorithm aggregates what comes out as one upload.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError, DivergedError, InvalidReplyError
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.checks import CLASS_COUNTS, class_count_specs
from pacfl.federation.message import ClientId, Message
from pacfl.learning.model import Model
from pacfl.learning.randomness import stream
from pacfl.privacy import secret, seeded
from pacfl.privacy.limits import FEWEST, threshold
from pacfl.secure.quantisation import INTEGER, LARGEST, PLAIN, WEIGHTED, from_words, to_words

if TYPE_CHECKING:
    from pacfl.federation.client_side import ClientSide

CLUSTER: Final = "cluster"  # in a download: clients of other clusters are in other sums, whatever their models
LEAST_NOISE: Final = 2.0**10  # standard deviation of a client's noise, in steps of words: its sums are as good as exact

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Part:
    """Where an uploaded array is in the words."""

    name: str
    shape: tuple[int, ...]
    fraction: int  # bits behind the point
    weighted: bool  # whether it is multiplied by the client's samples
    averaged: bool  # whether the sum is divided by that of the weights

    @property
    def size(self) -> int:
        """How many words."""
        return prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """All arrays of an upload, in the order of their names; one word more is the weight."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, algorithm: Algorithm, model: Model, down: Message) -> "Layout":
        """That of uploads in reply to a download."""
        specs = dict(algorithm.upload_specs(model, down))
        if unknown := specs.keys() - algorithm.sums.keys():
            raise ConfigError(
                f"secure = true: {type(algorithm).__name__} uploads {sorted(unknown)} and does not declare by `sums` "
                "whether the server needs their mean or their sum"
            )
        by_size = algorithm.aggregation.rule == "mean"
        parts = []
        for name in sorted(specs):
            averaged = algorithm.sums[name] == "mean"
            weighted = averaged and by_size
            parts.append(Part(name, specs[name].shape, WEIGHTED if weighted else PLAIN, weighted, averaged))
        if algorithm.label_prior:
            shape = class_count_specs(model)[CLASS_COUNTS].shape
            parts.append(Part(CLASS_COUNTS, shape, INTEGER if by_size else PLAIN, weighted=False, averaged=False))
        return cls(tuple(parts))

    @property
    def n_words(self) -> int:
        """How many words."""
        return 1 + sum(part.size for part in self.parts)


def words_of(
    algorithm: Algorithm,
    layout: Layout,
    down: Message,
    up: Message,
    samples: int,
    n_clients: int,
    key: tuple[int, int, ClientId],
) -> Words:
    """A client's part of a sum of up to n clients: (words,). key: seed, round and client, for seeded noise."""
    aggregation, start = algorithm.aggregation, algorithm.upload_start(down)
    weight = samples if aggregation.rule == "mean" else 1
    changes = {part.name: _change(part, up, start, aggregation) for part in layout.parts}
    hidden = [p for p in layout.parts if p.name not in (*algorithm.public_uploads, CLASS_COUNTS)]
    noise = np.zeros(0, dtype=np.uint64)
    if aggregation.clip_norm is not None:
        _clip(changes, [p.name for p in hidden], aggregation.clip_norm)
        noise = _noise(aggregation, sum(p.size for p in hidden), n_clients, key)
    words = []
    for part in layout.parts:
        own = _words(part, changes[part.name] * (weight if part.weighted else 1))
        if part in hidden and len(noise):
            added, noise = noise[: part.size], noise[part.size :]
            own = own + added
        words.append(own)
    return np.concatenate([*words, np.array([weight], dtype=np.uint64)])


def upload_of(
    algorithm: Algorithm, layout: Layout, down: Message, words: Words, client: ClientId, n_clients: int
) -> Upload:
    """The sum of the words of n clients, one of whom is `client`, as one upload of all of them."""
    start, total = algorithm.upload_start(down), int(words[-1])
    content: dict[str, NDArray[Any]] = {}
    ends = np.cumsum([part.size for part in layout.parts])
    for part, own in zip(layout.parts, np.split(words[:-1], ends[:-1]), strict=True):
        sums = from_words(own, part.fraction).reshape(part.shape)
        if part.name == CLASS_COUNTS:
            content[part.name] = np.rint(sums).astype(np.int64) if part.fraction == INTEGER else sums
        elif part.averaged:
            content[part.name] = start.get(part.name, 0.0) + sums / max(total, 1)
        else:
            content[part.name] = start.get(part.name, 0.0) * n_clients + sums
    return Upload(client, total, content, n_clients, n_clients * words.nbytes)


def check_sum(algorithm: Algorithm, model: Model, down: Message, upload: Upload) -> None:
    """Refuse a sum that no valid uploads have. What a single client has added to it nobody can check."""
    arrays = {name: array for name, array in upload.content.items() if name != CLASS_COUNTS}
    replace(algorithm, label_prior=False).check_upload(model, down, arrays)
    counts = upload.content.get(CLASS_COUNTS)
    if counts is not None and not (counts.min() >= 0 and counts.sum() > 0):
        raise InvalidReplyError(f"{CLASS_COUNTS!r} sum up to {counts.tolist()}")


def in_cluster(downloads: Mapping[ClientId, Message], cluster_of: Mapping[ClientId, int]) -> dict[ClientId, Message]:
    """Downloads that say which sum a client is in: models of different clusters may be equal."""
    return {c: {**down, CLUSTER: np.array([cluster_of[c]])} for c, down in downloads.items()}


def by_cluster(downloads: Mapping[ClientId, Message]) -> list[list[ClientId]]:
    """Clients that are in one sum."""
    clusters: dict[int, list[ClientId]] = {}
    for client, down in downloads.items():
        clusters.setdefault(int(down[CLUSTER][0]), []).append(client)
    return list(clusters.values())


def summed(
    side: "ClientSide", t: int, downloads: Mapping[ClientId, Message], uploads: Sequence[Upload]
) -> list[Upload]:
    """What a server gets instead of uploads: one for each cluster of which enough clients have replied."""
    content, sums = {u.client: u.content for u in uploads}, []
    for members in by_cluster(downloads):
        if len(members) < FEWEST:
            raise ConfigError(f"round {t + 1}: {too_few(downloads[members[0]], len(members))}")
        replied = [c for c in members if c in content]
        if len(replied) < threshold(len(members)):
            continue
        words = [side.words(t, c, downloads[c], content[c], len(members)) for c in replied]
        down = downloads[replied[0]]
        layout = Layout.of(side.algorithm, side.model, down)
        total: Words = np.sum(words, axis=0, dtype=np.uint64)
        sums.append(upload_of(side.algorithm, layout, down, total, replied[0], len(replied)))
    return sums


def too_few(down: Message, n_clients: int) -> str:
    """Why a cluster has no sum."""
    return (
        f"cluster {int(down[CLUSTER][0])} has {n_clients} participating clients, and a sum of fewer than {FEWEST} is "
        "no secret; raise schedule.participation, ask for fewer clusters, or leave out secure"
    )


def _change(part: Part, up: Message, start: Message, aggregation: Aggregation) -> Array:
    """What is summed of an array, before its weight: (n,)."""
    array = np.ravel(up[part.name]).astype(np.float64)
    if part.name != CLASS_COUNTS:
        return array - np.ravel(np.asarray(start.get(part.name, 0.0), dtype=np.float64))
    return array if aggregation.rule == "mean" else array / array.sum()  # a client has one vote by other rules


def _clip(changes: dict[str, Array], hidden: Sequence[str], clip: float) -> None:
    """Shorten changes to the clip norm together, on the grid of words: rounded towards zero, so that none is longer."""
    length = float(np.linalg.norm(np.concatenate([changes[name] for name in hidden])))
    scale = min(1.0, clip / length) if length > 0 else 1.0
    for name in hidden:
        changes[name] = np.ldexp(np.trunc(np.ldexp(changes[name] * scale, PLAIN)), -PLAIN)


def _noise(aggregation: Aggregation, count: int, n_clients: int, key: tuple[int, int, ClientId]) -> Words:
    """A client's part of the noise of a sum, in integers: of n clients at least t stay, each with a t-th of it."""
    assert aggregation.clip_norm is not None
    if not aggregation.noise_multiplier:
        return np.zeros(0, dtype=np.uint64)
    deviation = np.ldexp(aggregation.noise_multiplier * aggregation.clip_norm, PLAIN) / threshold(n_clients) ** 0.5
    if not LEAST_NOISE <= deviation <= LARGEST / 64:
        raise ConfigError(
            f"noise-multiplier x clip-norm = {aggregation.noise_multiplier * aggregation.clip_norm:g} is too "
            f"{'small' if deviation < LEAST_NOISE else 'large'} for the words of secure aggregation"
        )
    seed, *address = key
    draw = secret if aggregation.noise == "secret" else seeded(stream(seed, "update", *address))
    return draw(ceil(deviation**2), count).view(np.uint64)


def _words(part: Part, numbers: Array) -> Words:
    try:
        return to_words(numbers, part.fraction)
    except ValueError as error:
        raise DivergedError(
            f"the uploaded {part.name!r} does not fit into secure aggregation: {error}; lower the learning rate"
        ) from None
