"""The leading directions of every class of a client, with their sampling noise: what `compare = "classes"` compares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.signature import as_labels, blank, leading, of_unit_size, rows_of
from pacfl.subspace.sparse import inner_products, is_sparse, lengths_of_sparse, scaled
from pacfl.subspace.stored import StoredRows
from pacfl.subspace.units import Groups, Units, as_groups, effective_count, is_enough

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

FEWEST: Final = 4  # samples of a class that is compared: noise is measured from halves of at least two
SPLITS: Final = (
    16  # of each class into halves: the noise of a class is shrunk towards that of others, so few are enough
)
MOST_SAMPLES: Final = 128  # of a class that are split, as for whole data
CONDENSED: Final = 8  # rows per direction to which a large group is condensed at least
ITERATIONS: Final = 40  # of the power method, for the halves of one class together
CONVERGED: Final = 1e-4  # change of a direction in one iteration

# Directions of each class. The first is close to its mean, the second is that in which its samples vary most: digits on
# photographs, for instance, have all their shape in the second. A direction that samples hardly determine has little
# weight, so a second one does no harm.
RANK: Final = 2

NO_LABELS, PLAIN, PRIVATE = 0, 1, 2  # whether a client of an experiment has labels, and hides its samples


@dataclass(frozen=True, eq=False)
class ClassSignatures:
    """One client's classes that have enough samples to be compared; none if all are too small."""

    names: tuple[str, ...]  # sorted
    counts: Counts  # (classes,) samples of each; where these come in groups, how many groups of equal size are worth it
    directions: Array  # (rank, features, classes) of length 1, strongest first; 0 where a class has fewer
    split_half_angles: Array  # (rank, classes, splits) degrees, as for two samples as large as the class
    private: bool = False  # counts have noise, and classes that it hides are missing: nothing is known of class shares

    def __len__(self) -> int:
        return len(self.names)


def class_signatures(
    x: ArrayLike, labels: ArrayLike, fewest: int = FEWEST, groups: ArrayLike | None = None
) -> ClassSignatures:
    """The leading directions and their split-half angles for every class of at least `fewest` samples, of length 1.

    x (n, ...), labels (n,) of any kind that sorts and prints. groups (n,) of any kind: samples of one group depend on
    each other, no split separates them, and each group counts as one sample.

    >>> made = class_signatures([[2.0, 0.0]] * 4 + [[0.0, 3.0]] * 5, ["a"] * 4 + ["b"] * 5)
    >>> made.names, made.directions[0].tolist()
    (('a', 'b'), [[1.0, 0.0], [0.0, 1.0]])
    """
    if fewest < FEWEST:
        raise ValueError(f"classes need at least {FEWEST} samples to measure their noise, got fewest = {fewest}")
    rows = of_length_one(rows_of(x))
    named = as_labels(labels, rows.shape[0])
    units = None if groups is None else as_groups(groups, rows.shape[0])
    found, counts = np.unique(named, return_counts=True)
    made: list[tuple[str, int, Array, Array]] = []
    for name in sorted(found[counts >= fewest].tolist(), key=str):
        chosen = named == name
        own, group = rows[chosen], int(chosen.sum()) if units is None else as_groups(units[chosen])
        if not blank(own) and is_enough(group, fewest):
            made.append((str(name), effective_count(group), leading(own, RANK), _of_halves(own, group)))
    directions = np.zeros((RANK, rows.shape[1], len(made)))
    angles = np.full((RANK, len(made), SPLITS), 90.0)
    for k, (_, _, basis, of_halves) in enumerate(made):
        directions[: basis.shape[1], :, k] = basis.T
        angles[:, k] = of_halves
    sizes = np.array([size for _, size, _, _ in made], dtype=np.int64)
    return ClassSignatures(tuple(name for name, *_ in made), sizes, directions, angles)


def of_length_one(rows: Any) -> Any:
    """Every sample with length 1, blank ones with 0: one of extreme length would be the direction of its class."""
    if isinstance(rows, StoredRows):
        return rows.mapped(of_length_one)
    rows = of_unit_size(rows)
    if is_sparse(rows):
        sizes = lengths_of_sparse(rows)
        return scaled(rows, 1 / np.where(sizes > 0, sizes, 1.0))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def _of_halves(rows: Any, groups: Groups | int) -> Array:
    """Degrees between the directions of random halves, scaled to the whole class: (rank, splits).

    90 where a half has no such direction: nothing is known of it.
    """
    units = Units(groups, MOST_SAMPLES)
    chosen, places = units.gathered(rows, CONDENSED * RANK)
    halves, share = units.halves(places, SPLITS)
    masks = np.zeros((chosen.shape[0], 2, SPLITS))
    for split, pair in enumerate(halves):
        for half, members in enumerate(pair):
            masks[members, half, split] = 1.0
    products = inner_products(chosen)
    weights = _leading_weights(products, masks.reshape(len(products), -1))
    angles = np.full((RANK, SPLITS), 90.0)
    for k, of_all in enumerate(weights):
        first, second = np.moveaxis(of_all.reshape(masks.shape), 1, 0)
        cosines = np.abs((first * (products @ second)).sum(axis=0)).clip(max=1.0)
        tangents = np.sqrt(1 - cosines**2) / np.maximum(cosines, 1e-12) * np.sqrt(share)
        angles[k] = np.where(cosines > 0, np.degrees(np.arctan(tangents)), 90.0)
    return angles


def _leading_weights(products: Array, masks: Array) -> list[Array]:
    """Weights of samples that add up to each leading direction of each masked half: (m, m), (m, k) -> rank × (m, k).

    The power method, for all halves at once: directions that are worth comparing stand out, and few steps are needed.
    Where they do not, what is left is a mixture of equally strong ones, and as uncertain as these. 0 where a half has
    no further direction.
    """
    found: list[Array] = []
    start = masks * np.sqrt(np.diag(products))[:, None]
    for _ in range(RANK):
        weights = _of_length_one(_without(start, found, products), products)
        for _ in range(ITERATIONS):
            before = weights
            weights = _of_length_one(_without(masks * (products @ weights), found, products), products)
            if np.abs(weights - before).max() <= CONVERGED * np.abs(weights).max():
                break
        found.append(weights)
        start = masks * np.cos(np.arange(len(masks)))[:, None]  # any start that is not special
    return found


def _without(weights: Array, found: list[Array], products: Array) -> Array:
    """Weights less their parts along directions that were found before."""
    for other in found:
        weights = weights - other * (other * (products @ weights)).sum(axis=0)
    return weights


def _of_length_one(weights: Array, products: Array) -> Array:
    """Weights of a direction of length 1; 0 where they cancel but for rounding."""
    squares = (weights * (products @ weights)).sum(axis=0)
    size = (weights**2).sum(axis=0) * np.trace(products)
    present = squares > 1e-12 * size
    return np.where(present, weights / np.sqrt(np.where(present, squares, 1.0)), 0.0)


def no_classes(features: int) -> ClassSignatures:
    """Of a client without labels, or with too few samples in every class."""
    return ClassSignatures((), np.empty(0, np.int64), np.empty((RANK, features, 0)), np.empty((RANK, 0, SPLITS)))


def as_messages(classes: ClassSignatures | None, features: int) -> dict[str, NDArray[Any]]:
    """The arrays that a client of an experiment sends; its classes are integers. None: it has no labels."""
    made = no_classes(features) if classes is None else classes
    return {
        "labelled": np.array([NO_LABELS if classes is None else PRIVATE if made.private else PLAIN]),
        "classes": np.array([int(name) for name in made.names], dtype=np.int64),
        "class_counts": made.counts,
        "class_directions": made.directions.astype(np.float16),
        "class_angles": made.split_half_angles.astype(np.float32),
    }


def from_messages(arrays: Mapping[str, NDArray[Any]]) -> ClassSignatures | None:
    """What `as_messages` sent."""
    if int(arrays["labelled"][0]) == NO_LABELS:
        return None
    directions = arrays["class_directions"].astype(np.float64)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    return ClassSignatures(
        tuple(str(name) for name in arrays["classes"]),
        arrays["class_counts"],
        directions / np.where(lengths > 0, lengths, 1.0),  # float16 has changed them a little
        arrays["class_angles"].astype(np.float64),
        private=int(arrays["labelled"][0]) == PRIVATE,
    )
