from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.federation.requirements import require_sgd
from pacfl.learning.client_context import ClientContext, LocalTraining
from pacfl.learning.model import Vector
from pacfl.settings import Share


@final
@dataclass(frozen=True)
class APFL(Algorithm):
    """Deng, Kamani and Mahdavi (2020), Algorithm 1: each client mixes a model of its own with the global one.

    mixed = α v_i + (1 - α) w_i. In every step w_i <- w_i - lr ∇F_i(w_i) and v_i <- v_i - lr α ∇F_i(mixed), on the same
    batch. Adaptive: in the first step of a round α <- α - lr <v_i - w_i, ∇F_i(mixed)>, from 0 to 1. Only w_i is sent.
    """

    alpha: Share = 0.5
    adaptive: bool = True

    def check_training(self, learning: LocalTraining) -> None:
        require_sgd(self, learning)

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, v, alpha = down["w"], memory.get("v", down["w"]), self._alpha(memory)
        of_w = of_mixed = np.zeros_like(w)  # velocities
        for i, batch in enumerate(context.batches()):
            mixed, old = _mixed(alpha, v, w), v - w
            w_moved, of_w = _step(batch, w, of_w, f"w {i}")
            moved, of_mixed = _step(batch, mixed, of_mixed, f"mixed {i}")
            w, v = w + w_moved, v + alpha * moved
            if self.adaptive and i == 0:
                alpha = np.clip(alpha - np.float32(context.learning.lr) * (old * of_mixed).sum(), 0, 1)
        return {"w": w}, {"v": v, "alpha": np.array([alpha])}

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:
        if "v" not in memory:  # it has not trained yet
            _, memory = self.train(context, down, memory)
        return _mixed(self._alpha(memory), memory["v"], down["w"])

    def _alpha(self, memory: Message) -> np.float32:
        return np.float32(memory["alpha"][0] if "alpha" in memory else self.alpha)


def _mixed(alpha: np.float32, v: Vector, w: Vector) -> Vector:
    return alpha * v + (1 - alpha) * w


def _step(batch: ClientContext, w: Vector, velocity: Vector, purpose: str) -> tuple[Vector, Vector]:
    """How a step with momentum moves w, and the velocity after it: u <- rho u + ∇F(w), without running statistics."""
    learning = batch.learning
    after, _ = batch.sgd(w, epochs=1, gradient_correction=np.float32(learning.momentum) * velocity, purpose=purpose)
    moved = after - w
    return moved, np.where(batch.model.statistics, np.float32(0), -moved / np.float32(learning.lr))
