from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError, InvalidReplyError
from pacfl.federation.aggregation import SUMMED
from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.founding import independent
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping
from pacfl.federation.soft import sample_losses
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.settings import NonNegative, PositiveInt, PositiveShare


@final
@dataclass(frozen=True)
class FedSoft(Algorithm):
    """Ruan and Joe-Wong (2022), Algorithm 1: each client trains one model near all centres, and is a part of each.

    Importance: u_is = max(sigma, share of the samples of client i whose loss is least under centre c_s).
    The client's own model w_i: min F_i(w) + lam / 2 Σ_s u_is |w - c_s|². The server: c_s = Σ_i v_is w_i with
    v_is = u_is n_i / Σ_j u_js n_j.
    """

    clusters: PositiveInt = 2
    lam: NonNegative = 0.1
    sigma: PositiveShare = 1e-4

    shared = "models"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "the importance of each centre for its data")
        if self.aggregation.rule not in SUMMED:
            raise ConfigError(
                f"FedSoft weighs the uploads for every centre, and rule = {self.aggregation.rule!r} knows no weights; "
                "use mean or uniform"
            )

    def no_label_prior(self) -> str:
        return "a client of FedSoft trains a model of its own, and all centres are parts of it"

    def no_secure(self) -> str:
        return "FedSoft weighs single clients by the importance of each centre for them, which is sent as it is"

    def init_server(self, model: Model) -> State:
        return State(independent(model, self.clusters, "fedsoft"))

    def download(self, state: State, client: ClientId) -> Message:  # noqa: ARG002 - every client gets all
        return {"models": state.models}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        u = self._importance(context, down)
        centre = _between(down, u)
        # Σ u_s |w - c_s|² has the gradient of Σ u_s |w - mean of c_s by u_s|²
        w, _ = context.sgd(_start(context, down, memory, centre), prox=(self.lam * float(u.sum()), centre))
        return {"w": w, "importance": u}, {"w": w}

    def check_upload(self, model: Model, down: Message, up: Message) -> None:
        super().check_upload(model, down, up)
        if not ((u := up["importance"]).min() > 0 and u.max() <= 1 and u.sum() > 1 - 1e-3):
            raise InvalidReplyError(f"has the importance {u.tolist()}, expected shares above 0 with a sum of 1 or more")

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:
        if not uploads:
            return state
        sizes = np.array([u.size if self.aggregation.rule == "mean" else 1 for u in uploads], dtype=np.float64)
        v = sizes[:, None] * np.stack([u.content["importance"] for u in uploads])
        models = (v / v.sum(axis=0)).T @ np.stack([u.content["w"] for u in uploads])
        most = {u.client: int(u.content["importance"].argmax()) for u in uploads}
        return replace(state, models=models.astype(np.float32), cluster_of={**state.cluster_of, **most})

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        return _between(down, self._importance(context, down))

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:
        if "w" not in memory:  # it has not trained yet
            _, memory = self.train(context, down, memory)
        return memory["w"]

    def _importance(self, context: ClientContext, down: Message) -> NDArray[np.float32]:
        best = sample_losses(context, down["models"]).argmin(axis=1)
        shares = np.bincount(best, minlength=len(down["models"])) / len(best)
        return np.maximum(shares, self.sigma).astype(np.float32)


def _between(down: Message, u: NDArray[np.float32]) -> Vector:
    """The mean of the centres, weighted by their importance."""
    w: Vector = (u / u.sum()) @ down["models"]
    return w


def _start(context: ClientContext, down: Message, memory: Message, centre: Vector) -> Vector:
    """The client's own model; at first the initial one, as for all, or the mean of centres that were trained."""
    untrained = np.array_equal(down["models"][0], context.model.initial)
    return memory.get("w", context.model.initial if untrained else centre)
