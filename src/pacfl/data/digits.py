"""Scikit-learn's handwritten digits in several domains: a small heterogeneous data set that needs no download."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Flags, from_arrays
from pacfl.data.mixture import mixture
from pacfl.errors import DataError, library
from pacfl.settings import suggestion

Images = NDArray[np.uint8]

DOMAINS: Final[Mapping[str, Callable[[Images], Images]]] = {
    "upright": lambda images: images,
    "turned": lambda images: np.rot90(images, axes=(1, 2)),
    "negative": lambda images: 255 - images,
    "mirrored": lambda images: images[:, :, ::-1],
}
TEST_EVERY: Final = 5


def digits(domains: Sequence[str] = tuple(DOMAINS), disjoint_labels: bool = False) -> Dataset:
    """Digits 8 × 8 in several domains, each with all of the images transformed; the source is the domain.

    Every fifth image of each class is for testing, in all domains: no test image is in the training data, in any
    form. Labels are the digits 0..9 in every domain, or 10 other labels for each domain with disjoint_labels.
    """
    unknown = next((domain for domain in domains if domain not in DOMAINS), None)
    if unknown is not None or isinstance(domains, str) or not domains:
        raise DataError(f"digits have no domain {unknown or domains!r}{suggestion(unknown or '', DOMAINS)}")
    images, labels = _embedded()
    test = _every_fifth(labels)
    datasets = []
    for domain in domains:
        shown = np.ascontiguousarray(DOMAINS[domain](images))
        dataset = from_arrays(shown[~test], labels[~test], shown[test], labels[test], domain, n_classes=10)
        datasets.append((domain, dataset))
    return mixture(datasets, disjoint_labels, name="digits")


def count_digits() -> tuple[int, int]:
    """Numbers of training and test samples of all domains."""
    n_test = int(_every_fifth(_embedded()[1]).sum())
    return len(DOMAINS) * (len(_embedded()[1]) - n_test), len(DOMAINS) * n_test


def _embedded() -> tuple[Images, NDArray[np.int64]]:
    bunch = library("sklearn.datasets", "the data set digits", "data").load_digits()
    return np.rint(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)


def _every_fifth(labels: NDArray[np.int64]) -> Flags:
    """True for every fifth sample of each class: a split that does not depend on the version of a random generator."""
    test = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return test
