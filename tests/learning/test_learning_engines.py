import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from pacfl.errors import ModelError
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.engines import build_engine
from pacfl.learning.model import Model, Vector, as_model
from pacfl.learning.native.engine import Native
from pacfl.learning.nets import NETS


def supported() -> Model:
    return as_model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), 0)


def unsupported() -> Model:
    return as_model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), 0)


SHAPE = (1, 2, 3)


def test_auto_is_native_without_a_warning_if_it_is_supported(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(build_engine("auto", supported(), SHAPE), Native)
    assert not [r for r in caplog.records if r.name == "pacfl"]


def test_auto_falls_back_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(build_engine("auto", unsupported(), SHAPE), Eager)
    (record,) = [r for r in caplog.records if r.name == "pacfl"]
    assert record.levelno == logging.WARNING
    assert "eager" in record.getMessage()
    assert "Tanh" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_native_is_refused_with_the_reason() -> None:
    with pytest.raises(ModelError, match=r"Tanh.*engine = auto"):
        build_engine("native", unsupported(), SHAPE)
    with pytest.raises(ModelError, match="runs on the CPU, not on meta"):
        build_engine("native", supported(), SHAPE, device="meta")


def test_eager_is_eager() -> None:
    assert isinstance(build_engine("eager", supported(), SHAPE), Eager)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ModelError, match="auto, native, eager, got 'fast'"):
        build_engine("fast", supported(), SHAPE)


@pytest.mark.parametrize("method", ["sgd", "gradient", "evaluate"])
def test_an_engine_that_differs_is_not_used(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One part in a thousand is far above rounding."""
    correct = getattr(Native, method)

    def off(*args: Any, **kwargs: Any) -> Any:
        result = correct(*args, **kwargs)
        return (result[0], result[1] * np.float32(1.001)) if isinstance(result, tuple) else result + np.float32(1e-3)

    monkeypatch.setattr(Native, method, off)
    assert isinstance(build_engine("auto", supported(), SHAPE), Eager)
    assert "differs from the eager engine's by" in caplog.text


@pytest.mark.parametrize("without", ["mask", "sample_weight", "inner_step"])
def test_an_engine_that_ignores_an_option_is_not_used(
    without: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    correct = Native.sgd

    def careless(*args: Any) -> Vector:
        *others, terms = args
        return correct(*others, replace(terms, **{without: None}))

    monkeypatch.setattr(Native, "sgd", careless)
    assert isinstance(build_engine("auto", supported(), SHAPE), Eager)
    assert "a training with" in caplog.text


def test_frozen_parameters_are_compiled_and_do_not_move() -> None:
    """As in the eager engine, with weight decay."""

    def build() -> nn.Module:
        module = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
        module.get_submodule("1").requires_grad_(requires_grad=False)
        return module

    model = as_model(build, 0)
    native, eager = (build_engine(name, model, SHAPE) for name in ("native", "eager"))
    rng = np.random.default_rng(0)
    given = Samples(rng.normal(size=(11, *SHAPE)).astype(np.float32), rng.integers(0, 3, 11))
    learning = LocalTraining(batch_size=3, momentum=0.9, weight_decay=0.1)
    order = np.stack([rng.permutation(11) for _ in range(4)])
    one, other = (e.sgd(model.initial, given, order, learning) for e in (native, eager))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    for trained in (one, other):
        assert trained[:35].tobytes() == model.initial[:35].tobytes()
        assert (trained[35:] != model.initial[35:]).all()
    for gradient in (native.gradient(model.initial, given), eager.gradient(model.initial, given)):
        assert not gradient[:35].any()


def test_an_engine_that_returns_nan_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Native, w: Vector, samples: Samples) -> NDArray[np.float32]:  # noqa: ARG001
        return np.full_like(w, np.nan)

    monkeypatch.setattr(Native, "gradient", nothing)
    assert isinstance(build_engine("auto", supported(), SHAPE), Eager)


def test_without_the_compiler_the_warning_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.startswith("pacfl.learning.native")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert isinstance(build_engine("auto", supported(), SHAPE), Eager)
    assert "llvmlite is not installed (pip install 'pacfl[learning]')" in caplog.text


@pytest.mark.parametrize("name", ["mlp", "logistic", "lenet5"])
def test_the_nets_of_the_package_pass_the_comparison(name: str) -> None:
    shape = (1, 28, 28)
    model = as_model(lambda: NETS[name](shape, 10), 0)
    assert isinstance(build_engine("native", model, shape), Native)


@pytest.mark.parametrize("build", [lambda: nn.Linear(20, 4), lambda: nn.Sequential(nn.Linear(20, 4))])
def test_a_layer_alone_is_compiled_and_agrees(build: Callable[[], nn.Module]) -> None:
    model = as_model(build, 0)
    native, eager = (build_engine(name, model, (20,)) for name in ("native", "eager"))
    assert isinstance(native, Native)
    rng = np.random.default_rng(0)
    given = Samples(rng.normal(size=(11, 20)).astype(np.float32), rng.integers(0, 4, 11))
    order = np.stack([rng.permutation(11) for _ in range(4)])
    one, other = (e.sgd(model.initial, given, order, LocalTraining(batch_size=3)) for e in (native, eager))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    assert np.abs(one - model.initial).max() > 1e-2


def test_the_warning_is_printed_without_any_configuration(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from torch import nn\n"
        "from pacfl.learning.engines import build_engine\n"
        "from pacfl.learning.model import as_model\n"
        "build_engine('auto', as_model(lambda: nn.Sequential(nn.Linear(6, 3), nn.Tanh()), 0), (6,))\n"
    )
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True)
    assert len([line for line in done.stderr.splitlines() if "Tanh" in line]) == 1
