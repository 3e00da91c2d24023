"""The data of each client."""

from dataclasses import dataclass

from pacfl.data.dataset import Dataset, Indices, Labels, Pixels
from pacfl.data.partition import Partition
from pacfl.errors import DataError


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's part of a data set: the data set itself, and the positions of the client's samples in it.

    Samples are gathered whenever they are asked for and are not kept: many clients share test samples, and a hundred
    copies of one test set would take more memory than all the training data.
    """

    dataset: Dataset
    train: Indices
    test: Indices

    @property
    def x_train(self) -> Pixels:
        """Training samples (n, ...), gathered anew."""
        return self.dataset.x_train[self.train]

    @property
    def y_train(self) -> Labels:
        """Training labels (n,)."""
        return self.dataset.y_train[self.train]

    @property
    def x_test(self) -> Pixels:
        """Test samples (m, ...), gathered anew."""
        return self.dataset.x_test[self.test]

    @property
    def y_test(self) -> Labels:
        """Test labels (m,)."""
        return self.dataset.y_test[self.test]


def split(dataset: Dataset, partition: Partition) -> list[ClientData]:
    """The data of every client, in order; no sample is copied."""
    for part, shards, n in (
        ("training", partition.train_indices, len(dataset.y_train)),
        ("test", partition.test_indices, len(dataset.y_test)),
    ):
        largest = max((int(shard.max()) for shard in shards if len(shard)), default=-1)
        if largest >= n:
            raise DataError(
                f"the partition uses {part} sample {largest} of a data set with {n}; was it made for another data set?"
            )
    pairs = zip(partition.train_indices, partition.test_indices, strict=True)
    return [ClientData(dataset, train, test) for train, test in pairs]
