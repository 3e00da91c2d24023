"""Forged records over the network."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import damaged, examples, refused_or_read

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from pacfl.algorithms import PACFL
from pacfl.errors import InvalidReplyError
from pacfl.flower import wire
from pacfl.flower.reply_checks import check_size
from tests.small_federation import model

often = examples(80)

BASIS = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0].astype(np.float32)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def record(name: str, data: bytes) -> RecordDict:
    """A record of a hostile client: its header may not match its bytes."""
    honest = Array(np.ones(2, dtype=np.float32))
    forged = Array(dtype="float32", shape=(6, 2), stype="numpy.ndarray", data=data)
    return RecordDict({"arrays": ArrayRecord({name: forged, "split_half_angles": honest})})


@often
@given(data=damaged(npy(BASIS)), name=st.sampled_from(["basis", "w", ""]))
def test_a_forged_array_is_refused_or_a_profile(data: bytes, name: str) -> None:
    def read() -> None:
        PACFL().check_profile(model(), wire.unpack(record(name, data), 10_000))

    refused_or_read(read, InvalidReplyError)


@pytest.mark.parametrize("header", [b"{'descr': '<f4', 'shape': (3, 4(, }", b"\x00" * 20, b"(((((("])
def test_an_array_with_an_invalid_header_is_refused(header: bytes) -> None:
    """Found by fuzzing: numpy's parser raises types of its own, which ended the server."""
    padded = header.ljust(117) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(96)
    with pytest.raises(InvalidReplyError, match="cannot be read"):
        wire.unpack(record("basis", data), 10_000)


def test_pickles_are_refused() -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidReplyError, match="pickle"):
        wire.unpack(record("basis", buffer.getvalue()), 10_000)


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats()


@often
@given(
    scores=st.dictionaries(st.text(max_size=12) | st.just("received.primary"), NUMBERS, max_size=4),
    about=st.dictionaries(st.sampled_from(["round", "size", "client", "x"]), NUMBERS | st.text() | st.booleans()),
)
def test_forged_scores_and_sizes_are_refused_or_finite(scores: dict[str, float], about: dict[str, object]) -> None:
    content = RecordDict({"scores": MetricRecord(scores), "about": ConfigRecord(about)})  # type: ignore[arg-type]
    read = refused_or_read(lambda: wire.scores(content), InvalidReplyError)
    assert read is None or all(np.isfinite([s.primary, s.loss]).all() for s in read.values())
    size = refused_or_read(lambda: check_size(wire.about(content).get("size")), InvalidReplyError)
    assert size is None or size >= 1
