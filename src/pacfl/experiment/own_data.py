"""Clients that bring their own data: arrays or torch data sets -> one data set, divided among named clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset

from pacfl.data import Dataset, Given, Partition, from_arrays, partition
from pacfl.errors import ConfigError, DataError
from pacfl.experiment.records import Client
from pacfl.federation.message import ClientId
from pacfl.settings import suggestion

Torch = TorchDataset[Any]
Arrays = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
Part = Arrays | Torch | tuple[Torch, Torch]  # what one client brings
Clients = Mapping[str, Part] | Sequence[Part] | tuple[Dataset, Partition]
Channels = Literal["first", "last"]
Four = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]  # for training, and for testing


@dataclass(frozen=True, eq=False)
class NamedClients:
    """Data divided among clients, and what the user calls them."""

    dataset: Dataset
    partition: Partition
    names: tuple[Client, ...]

    def numbers(self, setting: str, by_round: Mapping[int, Sequence[Client]]) -> dict[int, tuple[ClientId, ...]]:
        """The clients that a setting names in each round, as numbers."""
        number = {name: c for c, name in enumerate(self.names)}
        for t, clients in by_round.items():
            for client in clients:
                if client not in number:
                    raise ConfigError(
                        f"{setting} names client {client!r} in round {t}{suggestion(str(client), map(str, self.names))}"
                    )
        return {t: tuple(number[client] for client in clients) for t, clients in by_round.items()}


def gather(clients: Clients, channels: Channels | None = None) -> NamedClients:
    """The data of all clients as one data set, and what is whose.

    channels: where images of (n, h, w, channels) or (n, channels, h, w) have them; None: "last" in arrays, and "first"
    in the samples of a torch data set.
    """
    if isinstance(clients, tuple) and len(clients) == 2 and isinstance(clients[0], Dataset):
        if not isinstance(clients[1], Partition):
            raise DataError(f"a data set comes with a partition, got {type(clients[1]).__name__}; use pacfl.partition")
        return NamedClients(clients[0], clients[1], clients[1].names or tuple(range(clients[1].n_clients)))
    parts = cast("Mapping[str, Part] | Sequence[Part]", clients)
    names: tuple[Client, ...] = tuple(parts) if isinstance(parts, Mapping) else tuple(range(len(parts)))
    for name in names:
        if isinstance(parts, Mapping) and (not isinstance(name, str) or not name):
            raise DataError(f"clients are named by strings, got {name!r}; give a list for clients without names")
    if not names:
        raise DataError("there must be at least one client, got none")
    brought = parts.values() if isinstance(parts, Mapping) else parts
    fours = {name: _four(name, part, channels) for name, part in zip(names, brought, strict=True)}
    _check_same(fours)
    dataset, divided = _together(list(fours.values()))
    return NamedClients(dataset, divided, names)


def _together(fours: Sequence[Four]) -> tuple[Dataset, Partition]:
    train = [(x, y) for x, y, _, _ in fours]
    # A data set has a test sample; where no client brings one, it is the first for training, and nobody's
    test = [(x, y) for _, _, x, y in fours if x is not None and y is not None and len(y)]
    used = test or [(train[0][0][:1], train[0][1][:1])]
    arrays = [np.concatenate(parts) for parts in (*zip(*train, strict=True), *zip(*used, strict=True))]
    dataset = from_arrays(arrays[0], arrays[1], arrays[2], arrays[3])
    n_train, n_test = [len(y) for _, y, _, _ in fours], [0 if y is None else len(y) for *_, y in fours]
    given = Given(_ranges(n_train), _ranges(n_test))
    return dataset, partition(dataset, given, len(fours), np.random.default_rng(0))  # which draws nothing


def _ranges(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(tuple(range(end - n, end)) for end, n in zip(ends, sizes, strict=True))


def _four(name: Client, part: Part, channels: Channels | None) -> Four:
    """What a client brings, as arrays with channels last."""
    given = (part,) if isinstance(part, TorchDataset) else tuple(part) if isinstance(part, tuple | list) else ()
    datasets = [one for one in given if isinstance(one, TorchDataset)]
    if datasets and len(datasets) == len(given) <= 2:
        pairs = [_from_torch(name, one, channels or "first") for one in datasets]
    elif len(given) in (2, 4) and not datasets:
        arrays = [np.asarray(one) for one in given]
        pairs = [(_channels_last(arrays[i], channels or "last"), arrays[i + 1]) for i in range(0, len(arrays), 2)]
    else:
        raise DataError(
            f"client {name!r}: expected (x_train, y_train, x_test, y_test), (x, y), a torch Dataset or two of them, "
            f"got {_described(part)}"
        )
    for x, y in pairs:
        if not x.ndim or not y.ndim or len(x) != len(y):
            raise DataError(f"client {name!r}: samples of shape {x.shape} need as many targets, got {y.shape}")
    (x, y), (x_test, y_test) = pairs[0], pairs[1] if len(pairs) == 2 else (None, None)
    return x, y, x_test, y_test


def _from_torch(name: Client, dataset: Torch, channels: Channels) -> tuple[NDArray[Any], NDArray[Any]]:
    """All samples of a map-style data set, each read once."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise DataError(f"client {name!r}: {type(dataset).__name__} has no length; use a map-style torch Dataset")
    pairs = [dataset[i] for i in range(len(dataset))]
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"client {name!r}: a torch Dataset must return (sample, target), got {_described(pair)}")
    if not pairs:
        raise DataError(f"client {name!r}: its torch Dataset has no samples; leave the client out")
    try:
        x, y = (np.stack([np.asarray(pair[i]) for pair in pairs]) for i in range(2))
    except ValueError:
        raise DataError(f"client {name!r}: the samples of its torch Dataset differ in shape; resize them") from None
    return _channels_last(x, channels), y


def _channels_last(x: NDArray[Any], channels: Channels) -> NDArray[Any]:
    return np.moveaxis(x, 1, -1) if x.ndim == 4 and channels == "first" else x


def _check_same(fours: Mapping[Client, Four]) -> None:
    """Refuse clients whose samples or targets are of another kind: joined in one array, they would be converted."""
    (first, of_first), *_ = fours.items()
    for i, what in enumerate(("samples", "targets", "test samples", "test targets")):
        expected = cast("NDArray[Any]", of_first[i % 2])
        for name, four in fours.items():
            array = four[i]
            if array is not None and (array.shape[1:] != expected.shape[1:] or _kind(array) != _kind(expected)):
                raise DataError(
                    f"client {name!r}: {what} of shape {array.shape} and {array.dtype} do not match those of client "
                    f"{first!r}, {expected.shape} and {expected.dtype}; convert one of them"
                )


def _kind(array: NDArray[Any]) -> str:
    return "bytes" if array.dtype == np.uint8 else {"i": "integers", "u": "integers"}.get(array.dtype.kind, "numbers")


def _described(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"{len(value)} values ({', '.join(type(one).__name__ for one in value[:5])})"
    return type(value).__name__
