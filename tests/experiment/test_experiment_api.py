import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import pacfl
from pacfl.algorithms import FedAvg, Scaffold
from pacfl.data import LabelSkew, digits, partition
from pacfl.errors import ConfigError, DataError, ModelError
from pacfl.experiment.api import federate, from_clients
from pacfl.experiment.config import expand
from pacfl.experiment.run import divide, resume
from pacfl.experiment.store import folder_of
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import LocalTraining
from pacfl.learning.nets import mlp
from pacfl.learning.randomness import stream

README = Path(__file__).parents[2] / "README.md"
SCHEDULE = Schedule(rounds=3, participation=0.5, evaluate_every=1)
LEARNING = LocalTraining(epochs=1, batch_size=8, lr=0.1)


def net() -> nn.Module:
    return mlp((1, 8, 8), 10, hidden=8)


def four(i: int, n: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(i)
    x, y = rng.normal(size=(2 * n, 8, 8)), np.arange(2 * n) % 10
    return x[:n], y[:n], x[n:], y[n:]


def test_the_examples_of_the_readme_run() -> None:
    """As they stand; PACFL is the one that finds the three kinds of parties and serves them best."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    with redirect_stdout(io.StringIO()) as printed:
        for example in examples:
            exec(compile(example, README.name, "exec"), {})
    lines = printed.getvalue().splitlines()
    assert [re.match(r"\w+", line)[0] for line in lines] == ["LocalOnly", "FedAvg", "PACFL"]  # type: ignore[index]
    assert "clusters: 3" in lines[2]
    means = [float(re.findall(r"'mean': ([\d.]+)", line)[0]) for line in lines]
    assert max(means) == means[2] > means[0] > means[1]


def test_an_experiment_from_python_is_that_from_a_file(tmp_path: Path) -> None:
    """To the bit: the same data, divided alike, the same net, algorithm and plan."""
    data = {"clients": 4, "scheme": {"kind": "label-skew", "share": 0.3}}
    plan = {"rounds": 3, "participation": 0.5, "evaluate-every": 1}
    learning = {"epochs": 1, "lr": 0.1}
    (run,) = expand(
        {"seeds": [5], "data": data, "learning": learning, "schedule": plan, "algorithm": {"name": "scaffold"}}
    )
    *expected, stored = resume(run, folder_of(run, tmp_path))
    dataset, parts = divide(run)
    *records, result = federate(
        dataset, parts, lambda: mlp((1, 8, 8), 10), Scaffold(), LocalTraining(epochs=1, lr=0.1), SCHEDULE, seed=5
    )
    assert records == expected
    assert result == {key: value for key, value in stored.items() if key in result}
    assert set(stored) - set(result) == {"hash", "algorithm", "seed", "seconds"}


def test_everybody_keeps_the_arrays_that_it_brought() -> None:
    brought = [four(i, n) for i, n in enumerate((30, 1, 12))]
    data, parts = from_clients(brought)
    for (x, y, x_test, y_test), train, test in zip(brought, parts.train_indices, parts.test_indices, strict=True):
        np.testing.assert_array_equal(data.x_train[train], x.astype(np.float32))
        np.testing.assert_array_equal(data.y_train[train], y)
        np.testing.assert_array_equal(data.x_test[test], x_test.astype(np.float32))
        np.testing.assert_array_equal(data.y_test[test], y_test)


def test_workers_change_nothing_from_python_either() -> None:
    dataset = digits(("upright",))
    parts = partition(dataset, LabelSkew(0.3), 4, stream(0, "partition"))
    alone, together = (list(federate(dataset, parts, net, Scaffold(), LEARNING, SCHEDULE, workers=n)) for n in (1, 2))
    assert alone == together


def test_what_cannot_be_is_refused_before_anything_is_played() -> None:
    data, parts = from_clients([four(i) for i in range(3)])
    with pytest.raises(ModelError, match="function that builds"):
        next(federate(data, parts, net(), FedAvg()))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ModelError, match="10 classes"):
        next(federate(data, parts, lambda: mlp((1, 8, 8), 9), FedAvg()))
    with pytest.raises(ModelError, match=r"\(1, 8, 8\)"):
        next(federate(data, parts, lambda: nn.Linear(7, 10), FedAvg()))
    with pytest.raises(ConfigError, match="client 9"):
        next(federate(data, parts, net, FedAvg(), LEARNING, Schedule(leaves={1: (9,)})))
    with pytest.raises(ModelError, match="nowhere"):
        next(federate(data, parts, net, FedAvg(), LEARNING, SCHEDULE, device="nowhere"))
    x, y, *test = four(0)
    with pytest.raises(DataError, match="y_train"):
        from_clients([(x, y + 0.5, *test)])  # type: ignore[arg-type]  # two more


def test_every_name_that_is_promised_is_there_and_typed() -> None:
    for name in pacfl.__all__:
        assert getattr(pacfl, name) is not None
    stub = Path(pacfl.__file__).with_suffix(".pyi").read_text()
    typed = set(re.findall(r"import \w+ as (\w+)", stub)) | {"__version__"}
    assert typed == set(pacfl.__all__)
    with pytest.raises(AttributeError, match="fedarate"):
        _ = pacfl.fedarate


def test_importing_the_package_imports_nothing_heavy() -> None:
    """And signatures can be had where there is no torch; what needs it says so."""
    program = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import pacfl
assert not {"numpy", "scipy", "torch", "rich"} & set(sys.modules)
sys.meta_path.insert(0, Nothing())
from pacfl import from_arrays, proximity, signature
try:
    from pacfl import federate
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'pacfl[learning]'" in done.stdout
