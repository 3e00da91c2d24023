"""What the models of an experiment take and what they give, stored beside them so that they can leave without data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from pacfl.data import Dataset, Normalisation, Partition
from pacfl.data.preprocessing import Preprocessing
from pacfl.errors import StoreError
from pacfl.learning.losses import Loss, Targets


@dataclass(frozen=True, eq=False)
class ModelInterface:
    """The preprocessing of the samples of every source, the sources of every client's samples, and the outputs."""

    by_source: Mapping[str, Preprocessing]
    sources_of: tuple[tuple[str, ...], ...]  # by client
    targets: Targets
    outputs: tuple[str, ...]  # names of classes, labels or values

    def sources(self, clients: Iterable[int]) -> list[str]:
        """The sources of the training samples of clients, in the order of the data set."""
        found = {source for client in clients for source in self.sources_of[client]}
        return [source for source in self.by_source if source in found]

    def content(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "by_source": {source: preprocessing.content() for source, preprocessing in self.by_source.items()},
            "sources_of": [list(sources) for sources in self.sources_of],
            "targets": self.targets,
            "outputs": list(self.outputs),
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "ModelInterface":
        """The interface that plain values describe."""
        try:
            by_source = {name: Preprocessing.from_content(one) for name, one in content["by_source"].items()}
            sources_of = tuple(tuple(map(str, sources)) for sources in content["sources_of"])
            targets, outputs = content["targets"], tuple(map(str, content["outputs"]))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise StoreError("what is stored about the models of the run is damaged; run it again (--rerun)") from None
        if targets not in get_args(Targets) or not all(set(sources) <= by_source.keys() for sources in sources_of):
            raise StoreError("what is stored about the models of the run is damaged; run it again (--rerun)")
        return cls(by_source, sources_of, targets, outputs)


def model_interface(
    dataset: Dataset, divided: Partition, normalisation: Iterable[Normalisation], loss: Loss
) -> ModelInterface:
    """The interface of models that are trained on a data set, divided among clients and normalised by source."""
    names = dataset.source_names
    n_outputs = loss.n_outputs(dataset.y_train.shape[1:], dataset.n_classes)
    return ModelInterface(
        {name: Preprocessing.of(dataset, own) for name, own in zip(names, normalisation, strict=True)},
        tuple(tuple(names[i] for i in np.unique(dataset.source_train[rows])) for rows in divided.train_indices),
        loss.targets,
        tuple(map(str, range(n_outputs))),
    )
