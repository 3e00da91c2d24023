"""Strategies that damage valid inputs, and what readers may do with them."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)


def examples(n: int) -> settings:
    """n damaged inputs in `make test`, and twenty times as many in a random search."""
    times = 20 if settings.get_current_profile_name() == "random" else 1
    return settings(max_examples=times * n, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes with some flipped, overwritten, cut off, dropped, repeated or inserted; rarely random bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(content)))
        match draw(st.sampled_from(["flip", "overwrite", "cut", "drop", "double", "insert"])):
            case "flip" if start < len(content):
                content[start] ^= 1 << draw(st.integers(0, 7))
            case "overwrite":
                piece = draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8, b"9" * 9]))
                content[start : start + len(piece)] = piece
            case "cut":
                del content[start:]
            case "drop":
                del content[start : start + draw(st.integers(1, 16))]
            case "double":
                content[start:start] = content[start : start + draw(st.integers(1, 64))]
            case "insert":
                content[start:start] = draw(st.binary(max_size=16))
    return bytes(content)


@st.composite
def rewritten(draw: st.DrawFn, tree: Any) -> Any:
    """A tree of plain values with one part replaced, renamed or dropped."""
    if isinstance(tree, dict) and tree and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(tree)))
        match draw(st.sampled_from(["inside", "inside", "inside", "drop", "rename"])):
            case "inside":
                return {**tree, key: draw(rewritten(tree[key]))}
            case "drop":
                return {k: v for k, v in tree.items() if k != key}
            case "rename":
                return {draw(st.text(max_size=8)) if k == key else k: v for k, v in tree.items()}
    if isinstance(tree, list) and tree and draw(st.booleans()):
        at = draw(st.integers(0, len(tree) - 1))
        return [*tree[:at], draw(rewritten(tree[at])), *tree[at + 1 :]]
    return draw(JSON)


@contextmanager
def within(megabytes: int) -> Iterator[None]:
    """Fails if more memory is allocated at any time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < megabytes << 20, f"{peak >> 20} MB were allocated"


def refused_or_read(read: Callable[[], Any], errors: type[Exception] | tuple[type[Exception], ...]) -> Any:
    """The value read, or None if it is refused with a documented error."""
    with within(64):
        try:
            return read()
        except errors:
            return None
