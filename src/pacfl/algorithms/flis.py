from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import mode

from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.checks import ArraySpec, ArraySpecs
from pacfl.federation.founding import (
    Array,
    FoundedState,
    cut_into,
    joined,
    local_model,
    with_models,
)
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping, require_classes
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.model import Model
from pacfl.learning.randomness import stream
from pacfl.settings import PositiveInt, Share
from pacfl.subspace.hierarchy import Labels


@final
@dataclass(frozen=True)
class FLIS(Algorithm):
    """Morafah and others (2022), FLIS-HC: clusters of clients whose local models infer the same classes, found once.

    A_ij = <B_i, B_j> / (|B_i| |B_j|), B_i (inputs, classes) with a 1 at the class that client i's model infers for
    each public input: A_ij is the share of inputs on which i and j agree. The dendrogram of 1 - A is cut.
    The public inputs are standard normal noise that all draw by themselves, since the server has no data here.
    """

    clusters: PositiveInt = 2
    threshold: Share | None = None  # cut at this share of disagreement instead
    inputs: PositiveInt = 2500

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "what its local model infers")

    def no_secure(self) -> str:
        return "FLIS compares what the models of single clients infer, which is sent as it is"

    def check_training(self, learning: LocalTraining) -> None:
        require_classes(self, "compares inferred classes", learning)

    def init_server(self, model: Model) -> FoundedState:
        return FoundedState(model.initial[None])

    def profile(self, context: ClientContext) -> Message:
        x = context.train.x
        if x.dtype.kind != "f":
            raise ConfigError(
                f"FLIS draws real numbers as inputs, and the samples are {x.dtype}; use another algorithm"
            )
        noise = stream(0, "flis").standard_normal((self.inputs, *x.shape[1:]), dtype=np.float32)
        public = Samples(noise, np.zeros(self.inputs, dtype=np.int64))
        outputs, _ = context.engine.evaluate(local_model(context), public)
        return {"inferred": outputs.argmax(axis=1).astype(np.int32)}

    def profile_specs(self, model: Model) -> ArraySpecs:  # noqa: ARG002 - the same for every model
        return {"inferred": ArraySpec((self.inputs,), "i")}

    def admit(self, state: FoundedState, profiles: Mapping[ClientId, Message]) -> FoundedState:
        inferred = {c: profile["inferred"] for c, profile in profiles.items()}
        return with_models(joined(state, inferred, self._cluster, _by_agreement, _most_inferred))

    def _cluster(self, classes: Array) -> Labels:
        return cut_into(squareform(pdist(classes, "hamming")), self.clusters, self.threshold)


def _most_inferred(classes: Array) -> Array:
    """For every input, the class that most founders of a cluster infer: (n, inputs) -> (inputs,)."""
    most: Array = mode(classes, axis=0).mode
    return most


def _by_agreement(classes: Array, centres: Array) -> Labels:
    rows: Labels = cdist(classes, centres, "hamming").argmin(axis=1)
    return rows
