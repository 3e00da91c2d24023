import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from llvmlite import binding
from torch import nn

from pacfl.learning.client_context import GradientTerms, LocalTraining, Samples, SampleSubset
from pacfl.learning.eager import Eager
from pacfl.learning.model import Model, Vector, as_model
from pacfl.learning.native.compiling import optimised
from pacfl.learning.native.engine import Native
from pacfl.learning.native.program import write_program
from pacfl.learning.native.reading import read_plan
from pacfl.learning.native.target import Target, machine
from pacfl.learning.nets import lenet5, logistic, mlp
from tests.learning.native.alone import AVX2, AVX512, SSE

Build = Callable[[], nn.Module]


def padded() -> nn.Module:
    """Padding, strides, kernels that are not square, no bias, an average, widths that fill no vector."""
    return nn.Sequential(
        nn.Conv2d(2, 5, (3, 5), padding=(1, 2)), nn.MaxPool2d(3, 2), nn.ReLU(),
        nn.Conv2d(5, 9, 3, stride=2, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2, 1),
        nn.Flatten(), nn.Linear(9 * 2 * 2, 11, bias=False), nn.ReLU(), nn.Linear(11, 7),
    )  # fmt: skip


def alone() -> nn.Module:
    """Stages on maps with no convolution before them, and none dense at the end."""
    return nn.Sequential(
        nn.ReLU(), nn.AvgPool2d(2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(2, 6, 3, padding=1), nn.MaxPool2d(2),
        nn.MaxPool2d(2, 1), nn.Conv2d(6, 7, (2, 1), stride=3), nn.Flatten(),
    )  # fmt: skip


NETS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "lenet5-colour": (lambda: lenet5((3, 32, 32), 10), (3, 32, 32)),
    "lenet5-grey": (lambda: lenet5((1, 28, 28), 10), (1, 28, 28)),
    "mlp": (lambda: mlp((1, 28, 28), 10), (1, 28, 28)),
    "logistic": (lambda: logistic((1, 28, 28), 10), (1, 28, 28)),
    "padded": (padded, (2, 14, 11)),
    "alone": (alone, (2, 14, 12)),
    "flat": (lambda: nn.Sequential(nn.Linear(13, 17), nn.ReLU(), nn.Linear(17, 3)), (13,)),
}


@cache
def model(name: str) -> Model:
    return as_model(NETS[name][0], 1)


@cache
def engine(name: str, target: Target | None = None) -> Native:
    return Native(read_plan(model(name).build(), NETS[name][1]), target)


def samples(name: str, n: int, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    shape = NETS[name][1]
    n_classes = 3 if name == "flat" else 7
    return Samples(rng.normal(size=(n, *shape)).astype(np.float32), rng.integers(0, n_classes, n))


def somewhere(name: str, seed: int, scale: float) -> Vector:
    return np.random.default_rng(seed).normal(scale=scale, size=model(name).initial.shape).astype(np.float32)


def terms(name: str) -> dict[str, GradientTerms]:
    anchor, gradient_correction = model(name).initial + somewhere(name, 1, 0.05), somewhere(name, 2, 0.001)
    return {
        "plain": GradientTerms(),
        "prox": GradientTerms(prox=(0.1, anchor)),
        "gradient_correction": GradientTerms(gradient_correction=gradient_correction),
        "inner_step": GradientTerms(inner_step=0.05),
        "all": GradientTerms((0.1, anchor), gradient_correction, 0.05),
    }


@pytest.mark.parametrize("what", ["plain", "prox", "gradient_correction", "inner_step", "all"])
@pytest.mark.parametrize("name", NETS)
def test_fifty_steps_are_those_of_the_eager_engine(name: str, what: str) -> None:
    """18 samples in batches of 4: the last of an epoch has 2.

    Where a ReLU is at its edge or two pixels of a pool are equal, up to rounding, engines may go different ways: of the
    millions of places that are passed in fifty steps, one in some runs. So two trainings of three must agree.
    """
    learning = LocalTraining(batch_size=4, lr=0.01, momentum=0.5, weight_decay=0.001)
    order = np.stack([np.random.default_rng(i).permutation(18) for i in range(10)])
    apart = []
    for seed in range(3):
        arguments = (model(name).initial, samples(name, 18, seed), order, learning)
        ours = engine(name).sgd(*arguments, terms(name)[what])
        theirs = Eager(model(name)).sgd(*arguments, terms(name)[what])
        apart.append(np.abs(ours - theirs).max())
        assert np.abs(ours - model(name).initial).max() > 1e-3
    assert sorted(apart)[1] <= 1e-5


@pytest.mark.parametrize("target", [SSE, AVX2], ids=["sse", "avx2"])
@pytest.mark.parametrize("name", ["lenet5-grey", "padded", "alone", "flat"])
def test_code_for_older_machines_agrees(name: str, target: Target) -> None:
    if target == AVX2 and machine().lanes < AVX2.lanes:
        pytest.skip("this machine has no AVX2")
    given = samples(name, 23)
    order = np.stack([np.random.default_rng(i).permutation(23) for i in range(3)])
    arguments = (model(name).initial, given, order, LocalTraining(batch_size=6, momentum=0.9))
    ours = engine(name, target).sgd(*arguments, terms(name)["all"])
    theirs = Eager(model(name)).sgd(*arguments, terms(name)["all"])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def assembly(text: str, target: Target) -> str:
    """The instructions of the processor."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, jit=True
    )
    return str(machine.emit_assembly(optimised(text, machine)))


@pytest.mark.parametrize(
    ("target", "registers"), [(SSE, "%xmm"), (AVX2, "%ymm"), (AVX512, "%zmm")], ids=["sse", "avx2", "avx512"]
)
def test_code_for_a_target_uses_its_registers_and_no_wider_ones(target: Target, registers: str) -> None:
    """Whether or not this machine has them."""
    if not platform.machine().endswith("64") or "arm" in platform.machine() or "aarch" in platform.machine():
        pytest.skip("these are registers of x86-64")
    text = write_program(read_plan(model("flat").build(), (13,)), target).text
    code = assembly(text, target)
    wider = {"%xmm": ("%ymm", "%zmm"), "%ymm": ("%zmm",), "%zmm": ()}[registers]
    assert registers in code
    assert not any(other in code for other in wider)
    assert ("vfmadd" in code) == (target != SSE), "products are added in one operation where there is one"


@pytest.mark.parametrize("n", [1, 4, 5, 33, 70])
@pytest.mark.parametrize("name", NETS)
def test_gradients_and_losses_are_those_of_the_eager_engine(name: str, n: int) -> None:
    given = samples(name, n, seed=n)
    w = model(name).initial + somewhere(name, 3, 0.01)
    np.testing.assert_allclose(
        engine(name).gradient(w, given), Eager(model(name)).gradient(w, given), rtol=0, atol=1e-6
    )
    outputs, losses = engine(name).evaluate(w, given)
    expected_outputs, expected = Eager(model(name)).evaluate(w, given)
    np.testing.assert_allclose(outputs, expected_outputs, rtol=0, atol=5e-6)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("name", ["lenet5-grey", "padded"])
def test_the_loss_of_a_sample_does_not_depend_on_the_batch(name: str) -> None:
    given = samples(name, 70)
    _, together = engine(name).evaluate(model(name).initial, given)
    for rows in (slice(0, 1), slice(3, 7), slice(3, 8), slice(11, 70), slice(69, 70)):
        _, apart = engine(name).evaluate(model(name).initial, Samples(given.x[rows], given.y[rows]))
        assert apart.tobytes() == together[rows].tobytes()


def test_threads_that_share_an_engine_compute_what_each_would_alone() -> None:
    name = "lenet5-grey"
    given = [samples(name, 20 + i, seed=i) for i in range(8)]
    learning = LocalTraining(batch_size=7, momentum=0.9)

    def trained(s: Samples) -> bytes:
        order = np.stack([np.arange(len(s.y))] * 4)
        return engine(name).sgd(model(name).initial, s, order, learning).tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(trained, given)) == [trained(s) for s in given]


def test_an_engine_has_no_state_even_after_nan() -> None:
    name = "padded"
    native, w = engine(name), model(name).initial
    given, order = samples(name, 13), np.arange(13)[None]
    before = native.sgd(w, given, order, LocalTraining(batch_size=5))
    poisoned = Samples(np.full_like(given.x, np.nan), given.y)
    spoilt = native.sgd(
        w, poisoned, order, LocalTraining(batch_size=5), GradientTerms((1.0, w * np.nan), w * np.nan, 0.1)
    )
    assert np.isnan(spoilt).all()
    assert np.isnan(native.gradient(w, poisoned)).any()
    assert np.isnan(native.evaluate(w, poisoned)[1]).all()
    assert native.sgd(w, given, order, LocalTraining(batch_size=5)).tobytes() == before.tobytes()


@pytest.mark.parametrize("name", ["lenet5-grey", "padded", "alone", "mlp", "logistic"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_nan_is_not_hidden(name: str, bad: float) -> None:
    """Neither ReLU nor pooling removes it."""
    given = samples(name, 8)
    x = given.x.copy()
    x[5].flat[x[5].size // 2] = bad
    learning = LocalTraining(batch_size=4, epochs=1)
    trained = engine(name).sgd(model(name).initial, Samples(x, given.y), np.arange(8)[None], learning)
    assert not np.isfinite(trained).all()


def test_wrong_arguments_are_refused_before_compiled_code_reads_them() -> None:
    native, w, given = engine("flat"), model("flat").initial, samples("flat", 6)
    order = np.arange(6)[None]
    nothing = (LocalTraining(),)
    with pytest.raises(ValueError, match=r"shape \(13,\)"):
        native.evaluate(w, Samples(given.x[:, :12], given.y))
    with pytest.raises(ValueError, match="5 of them and 6 labels"):
        native.evaluate(w, Samples(given.x[:5], given.y))
    with pytest.raises(ValueError, match="labels must be from 0 to 2"):
        native.gradient(w, Samples(given.x, given.y + 1))
    with pytest.raises(ValueError, match=r"order must be \(epochs, 6\)"):
        native.sgd(w, given, order + 1, *nothing)
    with pytest.raises(ValueError, match=r"order must be \(epochs, 6\)"):
        native.sgd(w, given, order[:, :5], *nothing)
    with pytest.raises(ValueError, match=f"{len(w)} weights, got shape"):
        native.sgd(w[1:], given, order, *nothing)
    with pytest.raises(ValueError, match=f"{len(w)} weights, got shape"):
        native.sgd(w, given, order, LocalTraining(), GradientTerms((0.1, w[1:])))
    with pytest.raises(ValueError, match="indices of samples must be from 0 to 5, got 3 to 6"):
        native.evaluate(w, SampleSubset(given, np.array([3, 6])))


def test_a_subset_of_samples_is_used_as_a_copy_of_them() -> None:
    """In any order, and some of them twice."""
    name = "padded"
    given, w = samples(name, 12), model(name).initial
    rows = np.array([7, 2, 2, 11, 0])
    one, other = SampleSubset(given, rows), Samples(given.x[rows], given.y[rows])
    native, order = engine(name), np.array([[4, 1, 3, 0, 2]])
    assert native.gradient(w, one).tobytes() == native.gradient(w, other).tobytes()
    assert native.evaluate(w, one)[1].tobytes() == native.evaluate(w, other)[1].tobytes()
    trained = [native.sgd(w, s, order, LocalTraining(batch_size=2)).tobytes() for s in (one, other)]
    assert trained[0] == trained[1]
    assert Eager(model(name)).gradient(w, one).tobytes() == Eager(model(name)).gradient(w, other).tobytes()


def test_training_does_not_change_its_arguments() -> None:
    name = "flat"
    given, (w, anchor, gradient_correction) = samples(name, 6), (somewhere(name, i, 1.0) for i in range(3))
    for array in (w, anchor, gradient_correction, given.x, given.y):
        array.flags.writeable = False
    before = w.tobytes(), given.x.tobytes()
    changed = GradientTerms((0.1, anchor), gradient_correction, 0.1)
    trained = engine(name).sgd(w, given, np.arange(6)[None], LocalTraining(), changed)
    assert (w.tobytes(), given.x.tobytes()) == before
    before = trained.tobytes()
    engine(name).gradient(w, given)
    assert trained.tobytes() == before


def test_zero_epochs_change_nothing() -> None:
    w = model("flat").initial
    trained = engine("flat").sgd(w, samples("flat", 6), np.empty((0, 6), dtype=np.int64), LocalTraining())
    assert trained.tobytes() == w.tobytes()
