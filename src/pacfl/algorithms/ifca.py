from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean
from pacfl.federation.message import ClientId, Message
from pacfl.learning.model import Model, Vector
from pacfl.learning.plan import stream
from pacfl.learning.task import Task


@final
@dataclass(frozen=True)
class IFCA(Algorithm):
    """Ghosh and others (2020), Algorithm 1: all models go down, a client trains the one of least training loss."""

    k: int = 2
    seed: int = 0

    def init_server(self, model: Model) -> State:
        # By an address of their own: the run's seed, from which the first is drawn, may be any small number
        seeds = [int(stream(self.seed, "ifca", i).integers(2**31)) for i in range(1, self.k)]
        others = [model.fresh(seed) for seed in seeds]
        return State(np.stack([model.initial, *others]))

    def download(self, state: State, client: ClientId) -> Message:  # noqa: ARG002 - everybody gets all
        return {"models": state.models}

    def train(self, task: Task, down: Message, memory: Message) -> tuple[Message, Message]:
        choice = _best(task, down)
        w, _ = task.sgd(down["models"][choice])
        return {"w": w, "choice": np.array([choice])}, memory

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:
        chosen = {u.client: int(u.content["choice"][0]) for u in uploads}
        return cluster_mean(replace(state, cluster_of={**state.cluster_of, **chosen}), uploads) if uploads else state

    def receive(self, task: Task, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        w: Vector = down["models"][_best(task, down)]
        return w


def _best(task: Task, down: Message) -> int:
    if len(down["models"]) == 1:
        return 0
    return int(np.argmin([task.loss(w) for w in down["models"]]))
