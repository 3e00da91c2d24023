"""Messages as Flower's records, and back. The size of what came over the network is checked before it is read."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from pacfl.errors import InvalidReplyError
from pacfl.federation.message import Message
from pacfl.federation.rounds import Score

LARGEST_HEADER = 4096  # bytes of numpy's header of an array
METRIC = "metrics."  # before the name of a metric
LARGEST_SCORE = 1e100  # its square, in a standard deviation, is still finite

About = Mapping[str, str | int | bool]


def pack(message: Message, about: About, scores: Mapping[str, Score] | None = None) -> RecordDict:
    """Arrays, a header (`about`), and scores."""
    arrays = {name: Array(np.ascontiguousarray(array)) for name, array in message.items()}
    flat: dict[str, int | float | list[int] | list[float]] = {
        f"{p}.{what}": value for p, s in (scores or {}).items() for what, value in _named(s).items()
    }
    return RecordDict({"arrays": ArrayRecord(arrays), "about": ConfigRecord(dict(about)), "scores": MetricRecord(flat)})


def unpack(content: RecordDict, largest: int) -> Message:
    """The arrays, if they have at most `largest` bytes."""
    arrays = content.array_records.get("arrays")
    if arrays is None:
        raise InvalidReplyError("has no arrays")
    size = sum(len(array.data) for array in arrays.values())
    if size > largest + LARGEST_HEADER * (1 + len(arrays)):
        raise InvalidReplyError(f"has {size:,} bytes of arrays, expected at most {largest:,}")
    try:
        return {str(name): array.numpy() for name, array in arrays.items()}
    except Exception as error:  # numpy's reader raises many types for forged bytes
        raise InvalidReplyError(f"has arrays that cannot be read: {error}") from None


def about(content: RecordDict) -> Mapping[str, object]:
    """The header."""
    return dict(content.config_records.get("about") or {})


def scores(content: RecordDict, metrics: Sequence[str] = ()) -> dict[str, Score]:
    """Scores by protocol, with those of the metrics that are there. False ones mislead only readers of a report."""
    flat: Mapping[str, object] = dict(content.metric_records.get("scores") or {})
    protocols = dict.fromkeys(key.partition(".")[0] for key in flat)

    def number(protocol: str, what: str) -> float:
        return _finite(flat.get(f"{protocol}.{what}"))

    return {
        p: Score(
            number(p, "primary"),
            number(p, "loss"),
            {name: number(p, METRIC + name) for name in metrics if f"{p}.{METRIC}{name}" in flat},
        )
        for p in protocols
    }


def _named(score: Score) -> dict[str, float]:
    """The numbers of a score. Metrics have a prefix: one of a plug-in may be called loss."""
    return {"primary": score.primary, "loss": score.loss, **{METRIC + name: x for name, x in score.metrics.items()}}


def _finite(value: object) -> float:
    if not isinstance(value, int | float) or not abs(value) <= LARGEST_SCORE:
        raise InvalidReplyError(f"has a score of {value!r}")
    return float(value)
