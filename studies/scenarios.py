"""Federations split from real data sets, with their true clusters."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.generic]
Federation = tuple[list[Images], NDArray[np.intp]]  # each client's images, and the group it comes from

ANIMALS = (2, 3, 4, 5, 6, 7)  # of CIFAR-10's classes; the others are vehicles
SIZES = {"cifar10": 160, "fmnist": 140, "mnist_m": 130, "usps": 72}  # samples per client where 100 share a set
MIX4M = {"cifar10": 32, "mnist_m": 26, "fmnist": 28, "usps": 14}  # clients of each set


def data_folder() -> Path:
    """Where the data sets are: PACFL_DATA, or a folder shared/data beside the checkout."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    return Path(os.environ.get("PACFL_DATA", beside))


@cache
def load(name: str) -> tuple[Images, NDArray[np.intp]]:
    """Training images and labels of one set."""
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as arrays:
        return arrays["x_train"], arrays["y_train"].astype(np.intp)


def padded(images: Images) -> Images:
    """Grey images padded with zeros to 32 × 32 and repeated to 3 channels; colour images as they are."""
    if images.ndim == 4:
        return images
    margin = (32 - images.shape[1]) // 2
    grey = np.pad(images, ((0, 0), (margin, margin), (margin, margin)))
    return np.repeat(grey[..., None], 3, axis=3)


def normalised(images: Images) -> Images:
    """Every channel with the data set's own mean 0 and standard deviation 1."""
    scaled = images.astype(np.float32) / 255
    return np.asarray((scaled - scaled.mean(axis=(0, 1, 2))) / scaled.std(axis=(0, 1, 2)))


def split_at_random(images: Images, sizes: Sequence[int], rng: np.random.Generator) -> list[Images]:
    """Split images among clients of the given sizes at random, each image at most once."""
    if sum(sizes) > len(images):
        raise ValueError(f"{sum(sizes)} images are wanted, the set has {len(images)}")
    order = rng.permutation(len(images))
    return [images[indices] for indices in np.split(order, np.cumsum(sizes))[: len(sizes)]]


def mixed_sizes(n: int, rng: np.random.Generator) -> list[int]:
    """Client sizes between 40 and 240 samples."""
    return [int(size) for size in rng.integers(40, 241, n)]


def iid(name: str) -> Callable[[np.random.Generator], Federation]:
    """100 clients that share one set evenly: one cluster."""
    return lambda rng: (split_at_random(load(name)[0], [SIZES[name]] * 100, rng), np.zeros(100, dtype=np.intp))


def iid_of_mixed_sizes(name: str) -> Callable[[np.random.Generator], Federation]:
    """80 clients of 40 to 240 samples of one set: one cluster."""
    return lambda rng: (split_at_random(load(name)[0], mixed_sizes(80, rng), rng), np.zeros(80, dtype=np.intp))


def mix4m(
    prepare: Callable[[Images], Images], sizes: Callable[[int, np.random.Generator], list[int]]
) -> Callable[[np.random.Generator], Federation]:
    """MIX-4 with MNIST-M for SVHN: four clusters."""

    def federation(rng: np.random.Generator) -> Federation:
        clients: list[Images] = []
        for name, n in MIX4M.items():
            clients += split_at_random(prepare(padded(load(name)[0])), sizes(n, rng), rng)
        return clients, np.repeat(np.arange(4), list(MIX4M.values()))

    return federation


def rotated(name: str) -> Callable[[np.random.Generator], Federation]:
    """100 clients of one set, 25 each turned by 0, 90, 180 and 270 degrees: four clusters."""

    def federation(rng: np.random.Generator) -> Federation:
        turns = np.repeat(np.arange(4), 25)
        clients = split_at_random(load(name)[0], [SIZES[name]] * 100, rng)
        return [np.rot90(c, int(turn), axes=(1, 2)) for c, turn in zip(clients, turns, strict=True)], turns

    return federation


def unbalanced(many: str, few: str) -> Callable[[np.random.Generator], Federation]:
    """95 clients of one set and 5 of another: two clusters."""

    def federation(rng: np.random.Generator) -> Federation:
        size = SIZES[many]
        clients = split_at_random(padded(load(many)[0]), [size] * 95, rng) + split_at_random(
            padded(load(few)[0]), [size] * 5, rng
        )
        return clients, np.repeat([0, 1], [95, 5])

    return federation


def owned_classes(n_clients: int, n_classes: int, share: float, rng: np.random.Generator) -> list[list[int]]:
    """Classes of each client: i mod n_classes, and others drawn until it has its share of them."""
    n_owned = round(share * n_classes)
    owned = []
    for i in range(n_clients):
        others = [c for c in range(n_classes) if c != i % n_classes]
        owned.append([i % n_classes, *(int(c) for c in rng.permutation(others)[: n_owned - 1])])
    return owned


def label_skew(name: str, share: float) -> Callable[[np.random.Generator], Federation]:
    """100 clients with a share of the classes each; the group is the number of animal classes that a client has."""

    def federation(rng: np.random.Generator) -> Federation:
        images, labels = load(name)
        owned = owned_classes(100, 10, share, rng)
        indices: list[list[NDArray[np.intp]]] = [[] for _ in owned]
        for c in range(10):
            owners = [i for i, classes in enumerate(owned) if c in classes]
            members = rng.permutation(np.flatnonzero(labels == c))
            for i, share_of_class in zip(owners, np.array_split(members, len(owners)), strict=True):
                indices[i].append(share_of_class)
        animals = [sum(c in ANIMALS for c in classes) for classes in owned]
        return [images[np.concatenate(own)] for own in indices], np.asarray(animals, dtype=np.intp)

    return federation


def _raw(images: Images) -> Images:
    return images


def _of_500(n: int, rng: np.random.Generator) -> list[int]:  # noqa: ARG001 - called as mixed_sizes is
    return [500] * n


SCENARIOS: dict[str, tuple[Callable[[np.random.Generator], Federation], str]] = {
    "IID CIFAR-10": (iid("cifar10"), "1"),
    "IID Fashion-MNIST": (iid("fmnist"), "1"),
    "IID CIFAR-10, 40 to 240 samples": (iid_of_mixed_sizes("cifar10"), "1"),
    "IID Fashion-MNIST, 40 to 240 samples": (iid_of_mixed_sizes("fmnist"), "1"),
    "MIX-4m, raw": (mix4m(_raw, _of_500), "4"),
    "MIX-4m, normalised": (mix4m(normalised, _of_500), "4"),
    "MIX-4m, raw, 40 to 240 samples": (mix4m(_raw, mixed_sizes), "4"),
    "MIX-4m, normalised, 40 to 240 samples": (mix4m(normalised, mixed_sizes), "4"),
    "Fashion-MNIST turned four ways": (rotated("fmnist"), "4"),
    "USPS turned four ways": (rotated("usps"), "4"),
    "CIFAR-10 turned four ways": (rotated("cifar10"), "4"),
    "95 Fashion-MNIST, 5 USPS": (unbalanced("fmnist", "usps"), "2"),
    "95 CIFAR-10, 5 MNIST-M": (unbalanced("cifar10", "mnist_m"), "2"),
    "95 MNIST-M, 5 CIFAR-10": (unbalanced("mnist_m", "cifar10"), "2"),
    "CIFAR-10, label skew 20 %": (label_skew("cifar10", 0.2), "2 to 4"),
}
