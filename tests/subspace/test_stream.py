from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import subspace_angles

from pacfl.subspace import RankWarning, SignatureStream, signature

Array = NDArray[np.float64]
KEPT = 16  # rows for each direction asked, as the class promises


def streamed(blocks: Iterable[Array], rank: int) -> Array:
    stream = SignatureStream(rank)
    for block in blocks:
        stream.feed(block)
    return stream.signature()


def in_blocks_of(size: int, x: Array) -> list[Array]:
    return [x[i : i + size] for i in range(0, len(x), size)]


def widest_angle(a: Array, b: Array) -> float:
    return float(np.degrees(subspace_angles(a, b).max()))


def like_images(n: int, features: int, seed: int = 0) -> Array:
    """Positive data whose variance falls with the square of the frequency, as that of natural images does."""
    rng = np.random.default_rng(seed)
    waves = np.linalg.qr(np.random.default_rng(1).standard_normal((features, features)))[0]
    return 2 + rng.standard_normal((n, features)) / np.arange(1, features + 1) @ waves.T


@given(seed=st.integers(0, 2**32), rank=st.integers(1, 3), cuts=st.lists(st.integers(0, 16), max_size=4))
def test_data_no_larger_than_the_summary_give_the_bytes_of_one_shot(seed: int, rank: int, cuts: list[int]) -> None:
    x = np.random.default_rng(seed).standard_normal((KEPT * rank, 10))
    blocks = [block for block in np.split(x, sorted(cuts)) if len(block)]
    assert streamed(blocks, rank).tobytes() == signature(x, rank).tobytes()


@given(seed=st.integers(0, 2**32), rank=st.integers(1, 3), size=st.integers(5, 200))
def test_streaming_data_of_low_rank_equals_one_shot(seed: int, rank: int, size: int) -> None:
    """200 samples of rank 8: the summary of at least 16 rows forgets nothing."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((200, 8)) * np.geomspace(4, 1, 8) @ rng.standard_normal((8, 30))
    assert np.abs(streamed(in_blocks_of(size, x), rank) - signature(x, rank)).max() < 1e-8


@pytest.mark.parametrize("rank", [1, 3, 5])
@pytest.mark.parametrize("size", [20, 37, 100, 2000])
def test_streaming_is_within_one_degree_on_data_like_images(rank: int, size: int) -> None:
    x = like_images(2000, 120)
    assert widest_angle(streamed(in_blocks_of(size, x), rank), signature(x, rank)) < 1


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), size=st.integers(20, 400))
def test_order_of_samples_and_size_of_blocks_hardly_matter(seed: int, size: int) -> None:
    x = like_images(800, 60)
    order = np.random.default_rng(seed).permutation(len(x))
    assert widest_angle(streamed(in_blocks_of(size, x[order]), 3), streamed(in_blocks_of(100, x), 3)) < 1


def test_sorted_samples_hardly_matter() -> None:
    x = like_images(800, 60)
    x = x[np.argsort(x[:, 0])]
    assert widest_angle(streamed(in_blocks_of(50, x), 3), signature(x, 3)) < 1


def test_images_are_flattened() -> None:
    x = like_images(100, 60)
    in_shape = streamed(in_blocks_of(30, x.reshape(100, 4, 5, 3)), 2)
    assert in_shape.tobytes() == streamed(in_blocks_of(30, x), 2).tobytes()


@pytest.mark.parametrize("size", [1, 10, 48, 49, 500])
def test_memory_does_not_grow_with_the_number_of_samples(size: int) -> None:
    features, rank = 40, 3
    stream = SignatureStream(rank)
    held = []
    for block in in_blocks_of(size, like_images(500, features)):
        stream.feed(block)
        lists = [v for v in vars(stream).values() if isinstance(v, list)]
        arrays = [a if a.base is None else a.base for v in lists for a in v]
        held.append(sum(a.nbytes for a in arrays))
    assert 0 < max(held) <= 2 * KEPT * rank * features * 8


def test_samples_are_counted() -> None:
    stream = SignatureStream(2)
    assert stream.n_samples == 0
    assert stream.feed(np.eye(5)).feed(np.eye(5)[:3]).n_samples == 8


def test_asking_does_not_disturb_the_stream() -> None:
    blocks = in_blocks_of(100, like_images(400, 60))
    stream = SignatureStream(2)
    for block in blocks:
        stream.feed(block)
        assert stream.signature().tobytes() == stream.signature().tobytes()
    assert stream.signature().tobytes() == streamed(blocks, 2).tobytes()


def test_what_was_fed_may_be_overwritten() -> None:
    buffer = np.eye(4)[:2] * 3.0
    stream = SignatureStream(1).feed(buffer)
    before = stream.signature()
    buffer[:] = 99.0
    assert stream.signature().tobytes() == before.tobytes()


def test_fewer_directions_than_asked_give_a_warning() -> None:
    with pytest.warns(RankWarning, match="asked for 3 directions, the data have 2"):
        assert streamed([np.eye(6)[:1], np.eye(6)[1:2]], 3).shape == (6, 2)


def test_blocks_of_another_size_are_refused_and_not_counted() -> None:
    stream = SignatureStream(1).feed(np.eye(3))
    with pytest.raises(ValueError, match="a block has 4 features, earlier ones had 3"):
        stream.feed(np.eye(4))
    assert stream.n_samples == 3
    assert stream.signature().shape == (3, 1)


def test_a_signature_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples were fed"):
        SignatureStream(1).signature()


def test_blank_samples_alone_are_refused_but_do_no_harm_among_others() -> None:
    stream = SignatureStream(1).feed(np.zeros((20, 3)))
    with pytest.raises(ValueError, match="got all zeros"):
        stream.signature()
    assert np.array_equal(stream.feed([[0.0, 2.0, 0.0]]).signature(), [[0.0], [1.0], [0.0]])


def test_a_block_is_checked_as_data_are() -> None:
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 2 samples"):
        SignatureStream(1).feed([[1.0, np.nan], [1.0, 2.0]])


@pytest.mark.parametrize("rank", [0, 2.0])
def test_a_rank_that_is_no_positive_whole_number_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank must be an integer of at least 1, got {rank!r}"):
        SignatureStream(rank)
