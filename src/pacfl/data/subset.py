"""Parts of a data set: fewer samples for a quick look, and training samples held out to choose settings by."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pacfl.data.dataset import Dataset, Flags, Indices, Labels
from pacfl.data.partition import Partition
from pacfl.data.schemes import check_whole
from pacfl.errors import DataError


def subset(dataset: Dataset, train: Indices, test: Indices) -> Dataset:
    """The data set with these samples only."""
    return replace(
        dataset,
        x_train=dataset.x_train[train],
        y_train=dataset.y_train[train],
        source_train=dataset.source_train[train],
        attributes_train=_rows(dataset.attributes_train, train),
        x_test=dataset.x_test[test],
        y_test=dataset.y_test[test],
        source_test=dataset.source_test[test],
        attributes_test=_rows(dataset.attributes_test, test),
    )


def subsample(dataset: Dataset, n_train: int, rng: np.random.Generator) -> Dataset:
    """About n_train training samples, as many of every class as it has, and test samples in the same proportion."""
    check_whole("the number of training samples", n_train)
    if n_train >= len(dataset.y_train):
        return dataset
    of_class = n_train / len(np.unique(dataset.y_train))
    of_class_in_test = of_class * len(dataset.y_test) / len(dataset.y_train)
    return subset(dataset, _thinned(dataset.y_train, of_class, rng), _thinned(dataset.y_test, of_class_in_test, rng))


def held_out(dataset: Dataset, parts: Partition, share: float, rng: np.random.Generator) -> tuple[Dataset, Partition]:
    """The same clients without a part of their training samples, which takes the place of their test samples.

    So settings can be chosen by what clients have themselves: the test samples are gone. Every client keeps one
    sample to learn from at least, and holds one out if it has two.
    """
    if not 0 < share < 1:
        raise DataError(f"the part held out for validation must lie between 0 and 1, got {share}")
    shuffled = [rng.permutation(shard) for shard in parts.train_indices]
    counts = [min(max(1, round(share * len(shard))), len(shard) - 1) for shard in shuffled]
    kept = tuple(np.sort(shard[n:]) for shard, n in zip(shuffled, counts, strict=True))
    held = np.concatenate([np.sort(shard[:n]) for shard, n in zip(shuffled, counts, strict=True)])
    ends = np.cumsum(counts)
    tests = tuple(np.arange(end - n, end) for end, n in zip(ends, counts, strict=True))
    judged = replace(
        dataset,
        x_test=dataset.x_train[held],
        y_test=dataset.y_train[held],
        source_test=dataset.source_train[held],
        attributes_test=_rows(dataset.attributes_train, held),
    )
    return judged, replace(parts, train_indices=kept, test_indices=tests)


def _thinned(labels: Labels, of_class: float, rng: np.random.Generator) -> Indices:
    """Positions of so many of every class, one of each at least, in ascending order."""
    classes = (np.flatnonzero(labels == c) for c in np.unique(labels))
    return np.sort(np.concatenate([rng.permutation(c)[: max(1, round(of_class))] for c in classes]))


def _rows(attributes: Mapping[str, Flags], rows: Indices) -> dict[str, Flags]:
    return {name: flags[rows] for name, flags in attributes.items()}
