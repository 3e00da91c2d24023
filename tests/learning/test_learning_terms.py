"""What algorithms may change in local steps with the eager engine: masks, weights of samples, losses of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from pacfl.errors import ModelError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.federation.local import LocalBackend
from pacfl.federation.message import Message
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.learning.client_context import ClientContext, GradientTerms, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.model import Model, as_model
from pacfl.learning.native.engine import Native

RNG = np.random.default_rng(0)
X = RNG.normal(size=(21, 4)).astype(np.float32)
TRAIN = Samples(X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(np.int64))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


MODEL = as_model(net, 0)
HEAD = np.zeros(len(MODEL.initial), dtype=bool)
HEAD[MODEL.tail(1)] = True
OPTIMISERS = {
    "sgd": LocalTraining(3, 8, 0.1, 0.9, 0.1),
    "adam": LocalTraining(3, 8, 0.01, weight_decay=0.1, optimiser="adam"),
    "adamw": LocalTraining(3, 8, 0.01, weight_decay=0.1, optimiser="adamw"),
}


def context(learning: LocalTraining, model: Model = MODEL, train: Samples = TRAIN) -> ClientContext:
    return ClientContext(model, train, learning, Eager(model), (0, 0, 0), train.x)


def all_terms(model: Model) -> dict[str, Any]:
    anchor, correction = np.random.default_rng(1).normal(size=(2, len(model.initial))).astype(np.float32)
    return {"prox": (0.5, anchor), "gradient_correction": correction, "inner_step": 0.1}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("terms", [{}, all_terms(MODEL)], ids=["plain", "all terms"])
def test_weights_outside_the_mask_stay_to_the_bit(name: str, terms: dict[str, Any]) -> None:
    given = context(OPTIMISERS[name])
    trained, _ = given.sgd(MODEL.initial, mask=HEAD, **terms)
    assert trained[~HEAD].tobytes() == MODEL.initial[~HEAD].tobytes()
    assert np.abs(trained - MODEL.initial)[HEAD].min() > 0
    everything, _ = given.sgd(MODEL.initial, mask=np.ones_like(HEAD), **terms)
    assert everything.tobytes() == given.sgd(MODEL.initial, **terms)[0].tobytes()


def test_training_a_head_is_training_it_on_the_features_of_the_body() -> None:
    """The oracle is a model that has no body."""
    learning = OPTIMISERS["sgd"]
    with torch.no_grad():
        features = MODEL.build()[:2](torch.from_numpy(X)).numpy()  # type: ignore[index]  # a Sequential
    head = as_model(lambda: nn.Linear(8, 2), 0)
    expected, _ = context(learning, head, Samples(features, TRAIN.y)).sgd(MODEL.initial[HEAD])
    np.testing.assert_allclose(context(learning).sgd(MODEL.initial, mask=HEAD)[0][HEAD], expected, atol=1e-6)


def half_frozen() -> nn.Module:
    module = net()
    module.get_parameter("0.weight").requires_grad_(requires_grad=False)
    return module


@pytest.mark.parametrize("name", OPTIMISERS)
def test_frozen_parameters_do_not_move(name: str) -> None:
    model = as_model(half_frozen, 0)
    frozen = np.zeros(len(model.initial), dtype=bool)
    frozen[:32] = True  # the first weights, 4 × 8
    given, terms = context(OPTIMISERS[name], model), all_terms(model)
    trained, _ = given.sgd(model.initial, **terms)
    masked, _ = context(OPTIMISERS[name]).sgd(model.initial, mask=~frozen, **terms)
    assert trained[frozen].tobytes() == model.initial[frozen].tobytes()
    assert trained.tobytes() == masked.tobytes()
    both, _ = given.sgd(model.initial, mask=~HEAD, **terms)
    assert both[frozen | HEAD].tobytes() == model.initial[frozen | HEAD].tobytes()
    assert not given.gradient(model.initial)[frozen].any()


def test_a_model_that_is_all_frozen_is_refused() -> None:
    with pytest.raises(ModelError, match=r"weights to train, .* all frozen"):
        as_model(lambda: net().requires_grad_(requires_grad=False), 0)


def test_weights_of_one_are_no_weights_and_zeros_leave_samples_out() -> None:
    given = context(LocalTraining(1, 21, 0.1, 0.0))
    plain, _ = given.sgd(MODEL.initial)
    ones, _ = given.sgd(MODEL.initial, sample_weight=np.ones(21, dtype=np.float32))
    np.testing.assert_allclose(ones, plain, atol=1e-7)
    chosen = np.arange(21) < 7
    trained, _ = given.sgd(MODEL.initial, sample_weight=chosen.astype(np.float32) * 3)
    alone = context(LocalTraining(1, 7, 0.1, 0.0), train=Samples(X[:7], TRAIN.y[:7]))
    np.testing.assert_allclose(trained, alone.sgd(MODEL.initial)[0], atol=1e-6)
    assert np.abs(trained - plain).max() > 1e-3


@pytest.mark.parametrize("name", ["plain", "all terms"])
def test_the_engines_agree_on_masks_and_weights(name: str) -> None:
    from pacfl.learning.native.reading import read_plan

    terms = {} if name == "plain" else all_terms(MODEL)
    weight = RNG.choice([0, 0.5, 2], 21).astype(np.float32)
    order = np.stack([RNG.permutation(21) for _ in range(2)])
    learning = LocalTraining(2, 8, 0.1, 0.9, 0.1)
    own, theirs = (
        engine.sgd(MODEL.initial, TRAIN, order, learning, GradientTerms(mask=HEAD, sample_weight=weight, **terms))
        for engine in (Eager(MODEL), Native(read_plan(net(), (4,))))
    )
    np.testing.assert_allclose(own, theirs, atol=1e-5)


def test_a_local_step_replaces_the_loss() -> None:
    given = context(OPTIMISERS["sgd"])
    plain, _ = given.sgd(MODEL.initial)
    same, _ = given.sgd(MODEL.initial, local_step=lambda module, x, y: cross_entropy(module(x), y))
    assert same.tobytes() == plain.tobytes()
    twice, _ = given.sgd(MODEL.initial, local_step=lambda module, x, y: 2 * cross_entropy(module(x), y))
    assert np.abs(twice - plain).max() > 1e-3


@pytest.mark.parametrize(
    ("step", "got"),
    [
        (lambda module, x, _: module(x), r"a tensor of shape \(8, 2\)"),
        (lambda *_: 3.0, "a float"),
        (lambda *_: torch.zeros(()), r"a tensor of shape \(\)"),
    ],
)
def test_a_local_step_that_is_no_loss_is_refused(step: Callable[..., Any], got: str) -> None:
    with pytest.raises(ModelError, match=f"must return a scalar tensor that depends on the weights, got {got}"):
        context(OPTIMISERS["sgd"]).sgd(MODEL.initial, local_step=step)


def test_arrays_that_do_not_fit_are_refused() -> None:
    given, weight = context(OPTIMISERS["sgd"]), np.ones(21, dtype=np.float32)
    with pytest.raises(ValueError, match=r"mask must be 58 booleans, .* got bool of shape \(57,\)"):
        given.sgd(MODEL.initial, mask=HEAD[1:])
    with pytest.raises(ValueError, match="got float32"):
        given.sgd(MODEL.initial, mask=HEAD.astype(np.float32))  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match=r"each of 21 samples, got \(20,\)"):
        given.sgd(MODEL.initial, sample_weight=weight[1:])
    with pytest.raises(ValueError, match="sample_weight or local_step, not both"):
        given.sgd(MODEL.initial, sample_weight=weight, local_step=lambda module, x, y: cross_entropy(module(x), y))


# Two methods that need them


@dataclass(frozen=True)
class Rep(Algorithm):
    """FedRep (Collins and others, 2021): the head is trained alone and stays, then the body, which is shared."""

    def init_client(self, model: Model) -> Message:
        return {"head": model.initial[model.tail(1)]}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w = self.receive(context, down, memory)
        head = np.zeros(len(w), dtype=bool)
        head[context.model.tail(1)] = True
        w, _ = context.sgd(w, mask=head, purpose="head")
        w, _ = context.sgd(w, mask=~head)
        return {"w": w}, {"head": w[head]}

    def receive(self, context: ClientContext, down: Message, memory: Message) -> np.ndarray:
        return np.concatenate([down["w"][: context.model.tail(1).start], memory["head"]])


@dataclass(frozen=True)
class Proto(Algorithm):
    """FedProto (Tan and others, 2022), in part: features are pulled to those of their class at the start."""

    pull: float = 1.0

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        prototypes = torch.eye(2, 8)

        def step(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            features = module.get_submodule("1")(module.get_submodule("0")(x))
            classified = cross_entropy(module.get_submodule("2")(features), y)
            return classified + self.pull * mse_loss(features, prototypes[y])

        w, _ = context.sgd(down["w"], local_step=step)
        return {"w": w}, memory


def setup(algorithm: Algorithm, engine: str) -> Setup:
    indices = tuple(ClientIndices(np.arange(i, 21, 3), np.arange(21)) for i in range(3))
    return Setup(algorithm, MODEL, Pool(TRAIN, TRAIN, X, indices), LocalTraining(2, 4, 0.05), 0, engine=engine)


def run(algorithm: Algorithm, engine: str, workers: int = 1) -> list[Round]:
    with LocalBackend(workers).connect(setup(algorithm, engine)) as clients:
        plans = round_plans(Schedule(rounds=3, participation=1.0, evaluate_every=1), 3, 0)
        return list(rounds(algorithm, clients, algorithm.init_server(MODEL), plans))


@pytest.mark.parametrize("engine", ["eager", "native"])
def test_a_method_with_masks_learns(engine: str) -> None:
    rounds_of = run(Rep(), engine)
    loss = [np.mean([s.loss for s in r.scores["received"].values()]) for r in (rounds_of[0], rounds_of[-1])]
    assert loss[1] < loss[0]


def test_a_method_with_a_local_step_trains_eagerly_under_auto(caplog: pytest.LogCaptureFixture) -> None:
    """With any number of workers, and with the native engine for all else."""
    expected = run(Proto(), "eager")[-1].state.models
    for workers in (1, 2):
        assert run(Proto(), "auto", workers)[-1].state.models.tobytes() == expected.tobytes()
    assert "the algorithm has a local step" in caplog.text
    assert np.abs(run(Proto(pull=0.0), "eager")[-1].state.models - expected).max() > 1e-3
    assert isinstance(ClientSide(setup(Proto(), "auto")).engine, Native)


def test_a_local_step_is_refused_where_only_the_native_engine_may_train() -> None:
    with pytest.raises(ModelError, match="no local_step; use engine = eager or auto"):
        run(Proto(), "native")
