"""All pairs of signatures -> angles in degrees, in blocks of bounded memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.singular import singular_values

Array = NDArray[np.float64]
Floats = NDArray[Any]  # float64, or float32 where the work is large
Signatures = Sequence[ArrayLike] | NDArray[Any]
Measure = Literal["smallest", "sum", "trace", "entrywise"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)

# Overlaps held at once: enough for the matrix product to run at full speed, little enough for any laptop.
BLOCK_BYTES: Final = 32 * 2**20

# Up to this many multiplications (about 2,500 clients of 3,072 features and rank 3, two seconds) products are taken in
# float64 and angles are good to 1e-5 degrees. Beyond it float32, in which signatures travel, is twice as fast and good
# to 0.002 degrees between 1 and 89 degrees and to 0.1 degrees outside (arccos of 1 less a few roundings).
EXACT_MULTIPLICATIONS: Final = 1e11

# Old signatures that are converted at once to be compared with new ones.
OLD_AT_ONCE: Final = 500

# A basis further from orthonormal than this is refused.
ORTHONORMAL_WITHIN: Final = 1e-3


def proximity(
    signatures: Signatures, measure: Measure = "smallest", on_rows: Callable[[int], object] | None = None
) -> Array:
    """Angle between every two signatures, in degrees.

    signatures n × (features, p), orthonormal, p may differ  ->  (n, n), symmetric, zero diagonal.

    p may differ where data have fewer directions or classes than others. Signatures that were asked for different
    ranks are not comparable: one with more directions is nearer to all others.

    `smallest`: smallest principal angle (Eq. 2 of the paper). `sum`: sum of the principal angles.
    `trace`: sum of the angles between vectors of equal order (Eq. 3, signs ignored). `entrywise`: smallest angle
    between any two basis vectors, which depends on the basis; for comparison with published numbers only.

    on_rows is called with the number of rows done since the last call, to show progress.

    >>> proximity([[[1.0], [0.0]], [[1.0], [0.0]], [[0.0], [1.0]]])
    array([[ 0.,  0., 90.],
           [ 0.,  0., 90.],
           [90., 90.,  0.]])
    """
    return _all_pairs(*stack(signatures), measure, on_rows)


def _all_pairs(
    bases: Floats, ranks: NDArray[np.intp], measure: Measure, on_rows: Callable[[int], object] | None = None
) -> Array:
    n = bases.shape[1]
    angles = np.zeros((n, n))
    for rows, columns, block in _blocks(bases, bases, ranks, ranks, measure, triangle=True):
        angles[rows, columns] = block
        angles[columns, rows] = block.T
        # Rounding may differ between (i, j) and (j, i): the upper triangle is used for both
        own = np.triu(angles[rows, rows], 1)
        angles[rows, rows] = own + own.T
        if on_rows is not None:
            on_rows(rows.stop - rows.start)
    return angles


def extend(known: ArrayLike, old: Signatures, new: Signatures, measure: Measure = "smallest") -> Array:
    """Proximity of old and new signatures, computing only rows of the new.

    known (n, n), old n × (features, p), new m × (features, q)  ->  (n + m, n + m), degrees.
    """
    known = np.asarray(known, dtype=np.float64)
    n = len(old)
    if known.shape != (n, n):
        raise ValueError(f"known must be ({n}, {n}) for {n} old signatures, got {known.shape}")
    rows = newcomer_rows(old, new, measure)
    angles = _enlarged(known, n + len(rows))
    angles[n:] = rows
    angles[:n, n:] = rows[:, :n].T
    return angles


def newcomer_rows(old: Signatures, new: Signatures, measure: Measure = "smallest") -> Array:
    """Angles from each new signature to all old ones and then to all new ones, in degrees.

    old n × (features, p), new m × (features, q)  ->  (m, n + m), the last rows of the proximity of all.
    """
    n = len(old)
    bases, ranks = stack(new)
    rows = np.empty((len(ranks), n + len(ranks)))
    rows[:, n:] = _all_pairs(bases, ranks, measure)
    exact = _is_exact(n, bases.shape[2], len(bases))
    bases = bases.astype(np.float64 if exact else np.float32, copy=False)
    for start in range(0, n, OLD_AT_ONCE):
        part = slice(start, min(start + OLD_AT_ONCE, n))
        old_bases, old_ranks = _padded(old[part], exact, first=start)
        if old_bases.shape[2] != bases.shape[2]:
            raise ValueError(
                f"old signatures have {old_bases.shape[2]} features and new ones {bases.shape[2]}; "
                "were they taken from data of the same shape?"
            )
        if exact:
            # Very many are not checked again: they were when they came, and a check takes as long as the angles
            old_bases = _orthonormal(old_bases, old_ranks, first=start)
        for new_part, _, block in _blocks(bases, old_bases, ranks, old_ranks, measure, triangle=False):
            rows[new_part, part] = block
    return rows


def angles_between(
    left: Floats, right: Floats, left_ranks: NDArray[np.intp], right_ranks: NDArray[np.intp], measure: Measure
) -> Floats:
    """Angles between every two of (p, m, features) and (q, n, features), which were checked before: (m, n), degrees.

    Bases with fewer directions than p or q, `left_ranks` (m,) and `right_ranks` (n,), end in zero vectors.
    """
    angles = np.empty((left.shape[1], right.shape[1]), dtype=np.result_type(left, right))
    for rows, columns, block in _blocks(left, right, left_ranks, right_ranks, measure, triangle=False):
        angles[rows, columns] = block
    return angles


def _enlarged(square: Array, n: int) -> Array:
    """A copy in the corner of an (n, n) matrix. By threads: most of the time goes into the first use of memory."""
    enlarged = np.empty((n, n))

    def copy(rows: slice) -> None:
        enlarged[: len(square), : len(square)][rows] = square[rows]

    with ThreadPoolExecutor() as pool:
        list(pool.map(copy, (slice(i, i + OLD_AT_ONCE) for i in range(0, len(square), OLD_AT_ONCE))))
    return enlarged


def stack(signatures: Signatures) -> tuple[Floats, NDArray[np.intp]]:
    """Signatures, checked, as one array (largest p, n, features) whose shorter ones end in zero vectors, and each p.

    float64, or float32 where all pairs would be too many multiplications for it.
    """
    bases, ranks = _padded(signatures)
    return _orthonormal(bases, ranks), ranks


def _orthonormal(bases: Floats, ranks: NDArray[np.intp], first: int = 0) -> Floats:
    """The bases, refused if they are not orthonormal; in float64, without the rounding of float32."""
    gram = np.einsum("anf,bnf->nab", bases, bases, optimize=True).astype(np.float64)
    wanted = (np.arange(len(bases)) < ranks[:, None])[:, :, None] * np.eye(len(bases))
    off = np.abs(gram - wanted).max(axis=(1, 2))
    if not (off <= ORTHONORMAL_WITHIN).all():
        worst = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
        raise ValueError(
            f"signature {first + worst} is not an orthonormal basis (its columns are off by {off[worst]:.2g}); "
            "make signatures with pacfl.subspace.signature"
        )
    if bases.dtype == np.float64 and off.max() > 1e-14:
        # One Newton step towards the nearest orthonormal basis: the rounding of float32 would show as an angle
        bases = np.einsum("nab,anf->bnf", 1.5 * np.eye(len(bases)) - 0.5 * gram, bases, optimize=True)
    return np.ascontiguousarray(bases)


def component_angles(overlap: Floats, measure: Measure) -> Floats:
    """The angles, in radians, whose sum is the measure.

    overlap UᵀV (p, rows, q, columns)  ->  (1 or min(p, q), rows, columns).
    """
    if measure not in _COMPONENTS:
        raise ValueError(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}")
    return np.arccos(np.minimum(_COMPONENTS[measure](overlap), 1.0))


def _blocks(
    left: Floats,
    right: Floats,
    left_ranks: NDArray[np.intp],
    right_ranks: NDArray[np.intp],
    measure: Measure,
    *,
    triangle: bool,
) -> Iterator[tuple[slice, slice, Floats]]:
    n = left.shape[1]
    step = max(1, BLOCK_BYTES // (left.itemsize * len(left) * len(right) * right.shape[1]))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        columns = slice(start if triangle else 0, right.shape[1])
        counts = np.minimum(left_ranks[rows, None], right_ranks[None, columns])
        angles = component_angles(_overlap(left[:, rows], right[:, columns]), measure)
        yield rows, columns, _total_degrees(angles, counts)


def _overlap(left: Floats, right: Floats) -> Floats:
    """Uᵢᵀ Vⱼ for all pairs: (p, m, features), (q, n, features) -> (p, m, q, n)."""
    overlap = np.empty((*left.shape[:2], *right.shape[:2]), dtype=np.result_type(left, right))
    for a, us in enumerate(left):
        for b, vs in enumerate(right):
            np.matmul(us, vs.T, out=overlap[a, :, b, :])
    return overlap


def _in_equal_order(overlap: Floats) -> Floats:
    return np.stack([np.abs(overlap[a, :, a, :]) for a in range(min(overlap.shape[0], overlap.shape[2]))])


_COMPONENTS: Final[Mapping[Measure, Callable[[Floats], Floats]]] = {
    "smallest": lambda overlap: singular_values(overlap)[:1],
    "sum": singular_values,
    "trace": _in_equal_order,
    "entrywise": lambda overlap: np.abs(overlap).max(axis=(0, 2))[None],
}


def _total_degrees(angles: Floats, counts: NDArray[np.intp]) -> Floats:
    """Sum over the first axis of the angles that exist: padding with zero vectors makes false right angles."""
    if counts.min() < len(angles):
        angles = np.where(np.arange(len(angles))[:, None, None] < counts, angles, 0.0)
    total: Floats = np.degrees(angles.sum(axis=0))
    return total


def _padded(signatures: Signatures, exact: bool | None = None, first: int = 0) -> tuple[Floats, NDArray[np.intp]]:
    """One array (largest p, n, features), and each signature's number of directions: (n,).

    exact: in float64 (default: if there are few). first: the number of the first one, for messages.
    """
    if isinstance(signatures, np.ndarray) and signatures.ndim == 3 and 0 not in signatures.shape:
        n, features, rank = signatures.shape
        dtype = _dtype(n, features, rank, exact)
        return signatures.transpose(2, 0, 1).astype(dtype, order="C"), np.full(n, rank)
    arrays = [np.asarray(u) for u in signatures]
    if not arrays:
        raise ValueError("got no signatures; give at least one")
    for i, u in enumerate(arrays, first):
        if u.ndim != 2 or 0 in u.shape or u.shape[1] > u.shape[0]:
            raise ValueError(f"signature {i} must be (features, directions), got shape {u.shape}")
    rows = {len(u) for u in arrays}
    if len(rows) > 1:
        raise ValueError(
            f"signatures must have equal rows, got {sorted(rows)}; were they taken from data of the same shape?"
        )
    n, features, rank = len(arrays), rows.pop(), max(u.shape[1] for u in arrays)
    bases = np.zeros((rank, n, features), dtype=_dtype(n, features, rank, exact))
    for i, u in enumerate(arrays):
        bases[: u.shape[1], i] = u.T
    return bases, np.array([u.shape[1] for u in arrays])


def _dtype(n: int, features: int, rank: int, exact: bool | None) -> type[np.floating]:
    return np.float64 if (_is_exact(n, features, rank) if exact is None else exact) else np.float32


def _is_exact(n: int, features: int, rank: int) -> bool:
    return 0.5 * features * (n * rank) ** 2 <= EXACT_MULTIPLICATIONS
