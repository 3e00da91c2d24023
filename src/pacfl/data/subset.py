"""Subsets of a data set: fewer samples for a quick look, and validation samples to choose settings by."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np

from pacfl.data.dataset import Dataset, Flags, Indices
from pacfl.data.partition import Partition
from pacfl.data.targets import TargetArray
from pacfl.errors import ConfigError
from pacfl.settings import PositiveInt, Within, check_value


def subset(dataset: Dataset, train: Indices, test: Indices) -> Dataset:
    """The data set with these samples only."""
    return replace(
        dataset,
        x_train=dataset.x_train[train],
        y_train=dataset.y_train[train],
        source_train=dataset.source_train[train],
        attributes_train=attribute_rows(dataset.attributes_train, train),
        x_test=dataset.x_test[test],
        y_test=dataset.y_test[test],
        source_test=dataset.source_test[test],
        attributes_test=attribute_rows(dataset.attributes_test, test),
        natural=None if dataset.natural is None else dataset.natural.rows(train, test),
    )


def subsample(dataset: Dataset, n_train: int, rng: np.random.Generator) -> Dataset:
    """About n_train training samples, the same number of every class, and test samples in the same proportion.

    All samples of a class are used if it has fewer. Without classes, the samples are drawn at random.
    """
    check_value("the number of training samples", n_train, PositiveInt)
    if n_train >= len(dataset.y_train):
        return dataset
    if dataset.targets != "classes":
        n_test = max(1, round(n_train * len(dataset.y_test) / len(dataset.y_train)))
        sizes = (len(dataset.y_train), n_train), (len(dataset.y_test), n_test)
        return subset(dataset, *(np.sort(rng.permutation(n)[:size]) for n, size in sizes))
    per_class = n_train / len(np.unique(dataset.y_train))
    per_class_test = per_class * len(dataset.y_test) / len(dataset.y_train)
    return subset(dataset, _drawn(dataset.y_train, per_class, rng), _drawn(dataset.y_test, per_class_test, rng))


def validation_split(
    dataset: Dataset, clients: Partition, share: float, rng: np.random.Generator
) -> tuple[Dataset, Partition]:
    """The same clients with a share of their training samples in place of their test samples.

    Settings can then be chosen without the test samples, which are removed. Every client has at least one training
    sample left, and at least one validation sample if it has two in all. Samples that depend on each other stay
    together, if the data set has groups of them.
    """
    check_value("the share of samples for validation", share, Annotated[float, Within(0, 1, above=True, below=True)])
    if clients.other_tests:
        raise ConfigError(
            f"validation samples replace the test samples, got {' and '.join(clients.tests)} test samples; use one kind"
        )
    groups = None if dataset.natural is None else dataset.natural.groups
    shuffled = [_shuffled(indices, groups, rng) for indices in clients.train_indices]
    counts = [_n_held_out(indices, groups, share) for indices in shuffled]
    train = tuple(np.sort(indices[n:]) for indices, n in zip(shuffled, counts, strict=True))
    validation = np.concatenate([np.sort(indices[:n]) for indices, n in zip(shuffled, counts, strict=True)])
    ends = np.cumsum(counts)
    tests = tuple(np.arange(end - n, end) for end, n in zip(ends, counts, strict=True))
    changed = replace(
        dataset,
        x_test=dataset.x_train[validation],
        y_test=dataset.y_train[validation],
        source_test=dataset.source_train[validation],
        attributes_test=attribute_rows(dataset.attributes_train, validation),
        natural=None if (own := dataset.natural) is None else replace(own, test=own.train[validation]),
    )
    return changed, replace(clients, train_indices=train, test_indices=tests)


def _shuffled(indices: Indices, groups: Indices | None, rng: np.random.Generator) -> Indices:
    """The samples of a client in random order, those of a group one after the other."""
    if groups is None:
        return rng.permutation(indices)
    names, group = np.unique(groups[indices], return_inverse=True)
    return indices[np.argsort(rng.permutation(len(names))[group], kind="stable")]


def _n_held_out(shuffled: Indices, groups: Indices | None, share: float) -> int:
    """How many of the first samples are for validation: about their share, in whole groups, not all of them."""
    if groups is None:
        return min(max(1, round(share * len(shuffled))), len(shuffled) - 1)
    ends = np.flatnonzero(np.diff(groups[shuffled])) + 1  # of all groups but the last
    return int(ends[np.argmin(np.abs(ends - share * len(shuffled)))]) if len(ends) else 0


def _drawn(labels: TargetArray, per_class: float, rng: np.random.Generator) -> Indices:
    """Indices of so many samples of every class, at least one, in ascending order."""
    classes = (np.flatnonzero(labels == c) for c in np.unique(labels))
    return np.sort(np.concatenate([rng.permutation(c)[: max(1, round(per_class))] for c in classes]))


def attribute_rows(attributes: Mapping[str, Flags], rows: Indices) -> dict[str, Flags]:
    """The attributes of some samples."""
    return {name: flags[rows] for name, flags in attributes.items()}
