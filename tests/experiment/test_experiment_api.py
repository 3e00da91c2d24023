"""Experiments from Python: the same bits as from a file, whatever form the data have."""

import doctest
import importlib
import inspect
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import MISSING, dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

import pacfl
from pacfl import STOP, Aggregation, Algorithm, EarlyStopping, FedAvg, LocalTraining, Result, RoundRecord, Scaffold
from pacfl.cli.console import app
from pacfl.data import LabelSkew, digits, partition
from pacfl.errors import ConfigError, DataError, ModelError, StoreError
from pacfl.experiment.api import federate, rounds
from pacfl.experiment.config import expand
from pacfl.experiment.own_data import gather
from pacfl.experiment.result import load
from pacfl.experiment.run import divide, load_models, resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.federation.schedule import Schedule
from pacfl.learning.nets import mlp
from pacfl.learning.randomness import stream

README = Path(__file__).parents[2] / "README.md"
TRAINING = LocalTraining(epochs=1, batch_size=8, lr=0.1)
PLAN: dict[str, Any] = {"rounds": 3, "participation": 0.5, "evaluate_every": 1}


def net() -> nn.Module:
    return mlp((1, 8, 8), 10, hidden=8)


def four(i: int, n: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(i)
    x, y = rng.normal(size=(2 * n, 8, 8)), np.arange(2 * n) % 10
    return x[:n], y[:n], x[n:], y[n:]


def fours(n: int = 4) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    return [four(i) for i in range(n)]


def named() -> dict[str, Any]:
    return {f"site-{'abcd'[i]}": part for i, part in enumerate(fours())}


def scores(result: Result) -> Any:
    return [record.by_client for record in result.records]


def test_the_examples_of_the_readme_run() -> None:
    """As they stand, and print what the page says; the one of training has at most 15 lines."""
    text = README.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(examples) == text.count("```python") == 2
    assert len(examples[1][0].splitlines()) <= 15
    for example, output in examples:
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(example, README.name, "exec"), {})
        assert printed.getvalue() == output


@pytest.mark.parametrize("name", ["api", "callbacks", "records", "result"])
def test_the_examples_of_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"pacfl.experiment.{name}")
    done = doctest.testmod(module)
    assert done.attempted > 0
    assert done.failed == 0


def test_every_field_of_a_schedule_is_a_keyword_with_the_same_default() -> None:
    for function in (federate, rounds):
        given = inspect.signature(function).parameters
        for own in fields(Schedule):
            expected = None if own.default is MISSING else own.default
            assert (given[own.name].kind, given[own.name].default) == (inspect.Parameter.KEYWORD_ONLY, expected)
    assert list(inspect.signature(federate).parameters) == list(inspect.signature(rounds).parameters)


# The same run


def test_an_experiment_from_python_is_that_from_a_file(tmp_path: Path) -> None:
    """To the bit: the same data, divided in the same way, the same net, algorithm and plan."""
    data = {"clients": 4, "scheme": {"kind": "label-skew", "share": 0.3}}
    plan = {"rounds": 3, "participation": 0.5, "evaluate-every": 1}
    (run,) = expand(
        {
            "seeds": [5],
            "data": data,
            "learning": {"epochs": 1, "lr": 0.1},
            "schedule": plan,
            "algorithm": {"name": "scaffold"},
        }
    )
    *expected, stored = resume(run, folder_of(run, tmp_path))
    training = LocalTraining(epochs=1, lr=0.1)
    *records, result = rounds(divide(run), lambda: mlp((1, 8, 8), 10), Scaffold(), training, **PLAN, seed=5)
    assert isinstance(result, Result)
    assert result.records == tuple(records)
    for record, own in zip(expected, result.records, strict=True):
        for protocol, by_client in record["by_client"].items():
            of_metric = [[own.by_client[protocol][m][int(c)] for m in ("accuracy", "loss")] for c in by_client]
            assert of_metric == list(by_client.values())
            for metric in ("accuracy", "loss"):
                assert vars(own.scores[protocol][metric]) == record[metric][protocol]
        assert own.sampled == tuple(record["sampled"])
        assert {str(c): k for c, k in own.clusters.items()} == record["cluster_of"]
    assert {p: vars(s) for p, s in result.accuracy.items()} == stored["accuracy"]
    assert (result.bytes_down, result.bytes_up) == (stored["bytes_down"], stored["bytes_up"])


def test_workers_change_nothing_from_python_either() -> None:
    dataset = digits(("upright",))
    parts = partition(dataset, LabelSkew(0.3), 4, stream(0, "partition"))
    alone, together = (federate((dataset, parts), net, Scaffold(), TRAINING, **PLAN, workers=n) for n in (1, 2))
    assert alone.records == together.records


# The clients' data


def test_every_client_has_the_arrays_that_it_brought() -> None:
    brought = [four(i, n) for i, n in enumerate((30, 1, 12))]
    found = gather(brought)
    data, parts = found.dataset, found.partition
    for (x, y, x_test, y_test), train, test in zip(brought, parts.train_indices, parts.test_indices, strict=True):
        np.testing.assert_array_equal(data.x_train[train], x.astype(np.float32))
        np.testing.assert_array_equal(data.y_train[train], y)
        np.testing.assert_array_equal(data.x_test[test], x_test.astype(np.float32))
        np.testing.assert_array_equal(data.y_test[test], y_test)


def test_names_replace_numbers_and_change_nothing_else() -> None:
    by_number, by_name = (federate(clients, net, FedAvg(), TRAINING, **PLAN) for clients in (fours(), named()))
    assert by_number.clients == (0, 1, 2, 3)
    assert by_name.clients == tuple(named())
    assert list(by_name.clusters) == list(named())
    for protocol, metrics in by_number.by_client.items():
        for metric, by_client in metrics.items():
            assert list(by_name.by_client[protocol][metric].values()) == list(by_client.values())


class Drawn(TorchDataset[Any]):
    """Samples and targets one by one, as a user's own data set has them."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return self.x[i], int(self.y[i])


def test_torch_data_sets_are_the_arrays_they_hold() -> None:
    expected = federate(fours(), net, FedAvg(), TRAINING, **PLAN)
    tensors = [tuple(TensorDataset(torch.tensor(p[i]), torch.tensor(p[i + 1])) for i in (0, 2)) for p in fours()]
    drawn = [(Drawn(p[0], p[1]), Drawn(p[2], p[3])) for p in fours()]
    for clients in (tensors, drawn):
        assert federate(clients, net, FedAvg(), TRAINING, **PLAN).records == expected.records  # type: ignore[arg-type]


def test_the_order_of_channels_is_said_and_never_guessed() -> None:
    """Arrays have them last, samples of torch first, unless the call says otherwise."""
    x, y = np.random.default_rng(0).normal(size=(6, 3, 3, 3)).astype(np.float32), np.arange(6) % 2
    last = gather([(x, y)])
    np.testing.assert_array_equal(last.dataset.x_train, x)
    for found in (gather([(x, y)], "first"), gather([Drawn(x, y)])):
        np.testing.assert_array_equal(found.dataset.x_train, x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(gather([Drawn(x, y)], "last").dataset.x_train, x)


def test_a_client_without_test_data_trains_and_is_not_evaluated() -> None:
    whole = federate(fours(), net, FedAvg(), TRAINING, **PLAN)
    clients = [part if i != 2 else part[:2] for i, part in enumerate(fours())]
    result = federate(clients, net, FedAvg(), TRAINING, **PLAN)
    for ours, theirs in zip(result.records, whole.records, strict=True):
        assert ours.sampled == theirs.sampled
        for protocol, metrics in ours.by_client.items():
            expected = {c: score for c, score in theirs.by_client[protocol]["loss"].items() if c != 2}
            assert metrics["loss"] == expected
    nobody = federate([part[:2] for part in fours()], net, FedAvg(), TRAINING, **PLAN)
    assert nobody.scores == {}
    np.testing.assert_array_equal(weights(nobody.module(0)), weights(whole.module(0)))


def weights(module: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from count()


X, Y = np.zeros((4, 3)), np.zeros(4, dtype=int)


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ([], "at least one client"),
        ({1: (X, Y)}, "strings"),
        ([(X, Y, X)], "3 values"),
        ([(X, Y[:3])], "as many targets"),
        ([(X, Y), (X[:, :2], Y)], "client 1: samples"),
        ([(X, Y), (X.astype(np.uint8), Y)], "uint8"),
        ([(X, Y), (X, Y + 0.5)], "client 1: targets"),
        ({"a": (X, Y), "b": (X, Y, X.astype(np.uint8), Y)}, "'b': test samples"),
        ([Endless()], "map-style"),
        ([(Drawn(X, Y), X)], "torch Dataset"),
        ([TensorDataset(torch.zeros(3))], "sample, target"),
        ([Drawn(X[:0], Y[:0])], "no samples"),
        ((digits(("upright",)), [[0], [1]]), "partition"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_data_that_cannot_be_meant_are_refused(clients: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        gather(clients)


# Settings


def test_clients_are_named_in_schedules_too() -> None:
    result = federate(named(), net, FedAvg(), TRAINING, rounds=2, participation=1.0, joins={2: ["site-c"]})
    assert [record.sampled for record in result.records[:2]] == [("site-a", "site-b", "site-d"), tuple(named())]
    with pytest.raises(ConfigError, match=r"joins names client 'site-x'"):
        federate(named(), net, FedAvg(), joins={2: ["site-x"]})


def test_other_metrics_are_scores_too() -> None:
    result = federate(fours(), net, FedAvg(), TRAINING, **PLAN, metrics=["balanced-accuracy"])
    assert set(result.scores["received"]) == {"accuracy", "loss", "balanced-accuracy"}
    assert set(result.by_client["received"]["balanced-accuracy"]) == {0, 1, 2, 3}


def test_what_cannot_be_is_refused_when_the_function_is_called() -> None:
    for refused, said, options in (
        (net(), "function that builds", {}),
        (lambda: mlp((1, 8, 8), 9), "10 classes", {}),
        (lambda: nn.Linear(7, 10), r"\(1, 8, 8\)", {}),
        (net, "nowhere", {"device": "nowhere"}),
    ):
        with pytest.raises(ModelError, match=said):
            rounds(fours(), refused, FedAvg(), **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="participation"):
        rounds(fours(), net, FedAvg(), participation=2.0)
    with pytest.raises(ConfigError, match="evaluate_every"):
        rounds(fours(), net, FedAvg(), callbacks=[EarlyStopping(2)])


# Callbacks


def test_callbacks_see_every_record() -> None:
    seen: list[RoundRecord] = []
    result = federate(fours(), net, FedAvg(), TRAINING, **PLAN, newcomers=1, callbacks=[seen.append])
    assert tuple(seen) == result.records
    assert [(record.round, record.final) for record in seen] == [
        (1, False),
        (2, False),
        (3, False),
        (4, True),
        (5, True),
    ]
    assert result.newcomers == seen[-1].scores
    assert set(result.newcomers) == {"received", "last_trained", "personal", "fine_tuned"}


@pytest.mark.parametrize("after", [1, 3])
def test_a_run_that_is_ended_after_some_rounds_is_the_run_of_so_many_rounds(after: int) -> None:
    """Also where clients join, leave and are newcomers: to the bit, models included."""
    plan: dict[str, Any] = {**PLAN, "newcomers": 1, "leaves": {4: [0]}, "joins": {2: [1]}}
    ended = federate(
        fours(5), net, Scaffold(), TRAINING, **{**plan, "rounds": 6},
        callbacks=[lambda record: STOP if record.round == after else None],
    )  # fmt: skip
    short = federate(fours(5), net, Scaffold(), TRAINING, **{**plan, "rounds": after})
    assert ended.records == short.records
    assert ended.n_rounds == after
    for client in ended.clusters:
        np.testing.assert_array_equal(*(weights(r.module(client, personal=True)) for r in (ended, short)))


def record(t: int, mean: float) -> RoundRecord:
    spread = pacfl.Spread(mean, 0.0, mean)
    return RoundRecord(t, False, (), (), {}, None, 0, 0, {"received": {"accuracy": spread, "loss": spread}})


@pytest.mark.parametrize(
    ("rule", "means", "expected"),
    [
        (EarlyStopping(2), [0.5, 0.6, 0.6, 0.55, 0.7], 4),
        (EarlyStopping(2), [0.5, 0.4, 0.6, 0.5, 0.6], 5),
        (EarlyStopping(1, min_delta=0.2), [0.5, 0.6, 0.7], 2),
        (EarlyStopping(1, metric="loss"), [0.5, 0.4, 0.3, 0.3], 4),
        (EarlyStopping(3), [0.1, 0.2, 0.3, 0.4], None),
    ],
)
def test_early_stopping_by_hand(rule: EarlyStopping, means: list[float], expected: int | None) -> None:
    look = rule.watch()
    said = [look(record(t, mean)) for t, mean in enumerate(means, 1)]
    assert (said.index(STOP) + 1 if STOP in said else None) == expected
    assert rule.watch()(record(1, 0.0)) is None, "a rule may be used for several runs"


def test_early_stopping_by_what_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no accuracy under the protocol personal"):
        federate(fours(), net, FedAvg(), TRAINING, **PLAN, callbacks=[EarlyStopping(2, "personal", "accuracy")])


# Stored runs


def test_a_stored_run_is_returned_and_an_interrupted_one_resumed_to_the_same_bits(tmp_path: Path) -> None:
    plan: dict[str, Any] = {**PLAN, "rounds": 8, "callbacks": [EarlyStopping(2)]}
    whole = federate(named(), net, Scaffold(), TRAINING, **plan)
    assert whole.n_rounds < 8
    steps = rounds(named(), net, Scaffold(), TRAINING, **plan, runs=tmp_path)
    next(steps), next(steps)
    steps.close()  # type: ignore[attr-defined]  # it is a generator
    resumed = federate(named(), net, Scaffold(), TRAINING, **plan, runs=tmp_path, workers=2)
    again = list(rounds(named(), net, Scaffold(), TRAINING, **plan, runs=tmp_path))
    assert len(again) == 1, "nothing is run again"
    for result in (resumed, again[0]):
        assert isinstance(result, Result)
        assert result.records == whole.records
        for personal in (False, True):
            np.testing.assert_array_equal(*(weights(r.module("site-b", personal=personal)) for r in (result, whole)))
    assert [folder.name for folder in tmp_path.iterdir()] == [whole.hash]


class Narrow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.flatten(1))  # type: ignore[no-any-return]


class Doubled(Narrow):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.inner(x.flatten(1))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Mine(Algorithm):
    strength: float = 1.0


def normed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 10))


def test_everything_that_decides_a_result_decides_its_hash() -> None:
    def hash_of(clients: Any = None, module: Any = Narrow, algorithm: Any = None, **options: Any) -> str:
        plan = {"rounds": 1, "participation": 0.5, **options}
        training = plan.pop("training", TRAINING)
        return federate(clients or fours(), module, algorithm or FedAvg(), training, **plan).hash

    other = [four(9), *fours()[1:]]
    moved = [(*(np.concatenate([a, b]) for a, b in zip(four(0), four(1), strict=True)),), *fours()[2:]]
    hashes = [
        hash_of(),
        hash_of(other),
        hash_of(moved),
        hash_of(module=Doubled),
        hash_of(module=net),
        hash_of(algorithm=Scaffold()),
        hash_of(algorithm=FedAvg(aggregation=Aggregation(rule="median"))),
        hash_of(algorithm=Mine()),
        hash_of(algorithm=Mine(2.0)),
        hash_of(seed=1),
        hash_of(engine="eager"),
        hash_of(participation=1.0),
        hash_of(training=LocalTraining(epochs=2)),
        hash_of(metrics=["balanced-accuracy"]),
        hash_of(normalise="feature"),
        hash_of(module=normed),
        hash_of(module=normed, batch_norm="local"),
        hash_of(evaluate_every=1),
        hash_of(evaluate_every=1, callbacks=[EarlyStopping(1)]),
    ]
    assert len(set(hashes)) == len(hashes)
    assert hash_of(workers=2, callbacks=[lambda _: None]) == hash_of(named()) == hashes[0]


def test_a_callback_of_the_users_own_cannot_end_a_stored_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="EarlyStopping"):
        federate(fours(), net, FedAvg(), TRAINING, **PLAN, callbacks=[lambda _: STOP], runs=tmp_path)


def test_code_without_source_is_not_stored(tmp_path: Path) -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("from pacfl import Algorithm\nclass Unknown(Algorithm):\n    pass", scope)
    unknown = scope["Unknown"]()
    assert federate(fours(), net, unknown, TRAINING, rounds=1).n_rounds == 1
    with pytest.raises(ConfigError, match="source of Unknown"):
        federate(fours(), net, unknown, TRAINING, rounds=1, runs=tmp_path)


def test_commands_show_stored_runs_from_python(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    runs = tmp_path / "runs"
    plan: dict[str, Any] = {**PLAN, "rounds": 5, "callbacks": [EarlyStopping(1)], "runs": runs}
    results = [federate(named(), net, algorithm, TRAINING, **plan) for algorithm in (pacfl.PACFL(), pacfl.LocalOnly())]
    for command, said in ((["ls"], results[0].hash), (["show", results[0].hash], '"origin": "python"')):
        shown = CliRunner().invoke(app, [*command, "--runs", str(runs)], catch_exceptions=False)
        assert shown.exit_code == 0, shown.output
        assert said in shown.output
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["report", str(runs), "-o", str(page)], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert "site-a" in page.read_text()


# Results


def test_modules_predict_what_the_run_scored() -> None:
    result = federate(named(), net, pacfl.PACFL(clusters=2), TRAINING, **PLAN)
    pool = result._loaded.setup.pool  # type: ignore[union-attr]
    for number, name in enumerate(named()):
        rows = pool.client_indices[number].test
        for personal, protocol in ((False, "received"), (True, "personal")):
            module = result.module(name, personal=personal)
            assert not module.training
            with torch.no_grad():
                right = module(torch.from_numpy(pool.test.x[rows])).argmax(1).numpy() == pool.test.y[rows]
            assert right.mean() == pytest.approx(result.by_client[protocol]["accuracy"][name])
    with pytest.raises(ModelError, match="site-x"):
        result.module("site-x")


def test_raw_samples_are_preprocessed_as_in_training(tmp_path: Path) -> None:
    """Each channel of images in bytes has its own mean; the loaded result needs no data for it."""
    rng = np.random.default_rng(0)
    brought = [(rng.integers(0, 200 + i, (20, 6, 5, 3)).astype(np.uint8), np.arange(20) % 2) for i in range(2)]
    clients = {name: (x[:12], y[:12], x[12:], y[12:]) for name, (x, y) in zip("ab", brought, strict=True)}
    result = federate(clients, lambda: nn.Sequential(nn.Flatten(), nn.Linear(90, 2)), FedAvg(), rounds=1)
    pool = result._loaded.setup.pool  # type: ignore[union-attr]
    result.save(tmp_path / "study")
    for own in (result, load(tmp_path / "study")):
        found = own.preprocess(brought[1][0][12:], "b")
        assert (found.dtype, found.shape) == (np.float32, (8, 3, 6, 5))
        np.testing.assert_allclose(found, pool.test.x[pool.client_indices[1].test], rtol=0, atol=1e-5)
    with pytest.raises(DataError, match="shape"):
        result.preprocess(brought[1][0][..., 0], "b")
    with pytest.raises(DataError, match="moon"):
        result.preprocess(brought[1][0], "b", "moon")


def test_a_history_has_a_row_for_every_evaluation_protocol_and_metric() -> None:
    pytest.importorskip("pandas")
    result = federate(fours(), net, FedAvg(), TRAINING, rounds=4, evaluate_every=2, participation=1.0)
    frame = result.history
    assert list(frame["round"].unique()) == [2, 4, 5]
    assert len(frame) == (2 * 2 + 3) * 2
    last = frame[frame["final"] & (frame["metric"] == "accuracy") & (frame["protocol"] == "personal")]
    assert last["mean"].tolist() == [result.accuracy["personal"].mean]


def test_without_pandas_a_history_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pacfl\[pandas\]"):
        _ = federate(fours(), net, FedAvg(), TRAINING, rounds=1).history


def test_a_plot_has_a_curve_for_every_protocol() -> None:
    pytest.importorskip("matplotlib")
    result = federate(fours(), net, FedAvg(), TRAINING, **PLAN)
    axes = result.plot()
    curves = {str(line.get_label()): list(line.get_ydata()) for line in axes.get_lines()}  # type: ignore[arg-type]
    assert set(curves) == {"received", "last-trained", "personal"}
    assert curves["received"] == [r.accuracy["received"].mean for r in result.records[:3]]
    with pytest.raises(ConfigError, match="auroc"):
        result.plot("auroc")


def test_results_are_short_to_look_at() -> None:
    result = federate(named(), net, FedAvg(), TRAINING, **PLAN)
    assert repr(result).startswith("Result(fedavg: 4 clients, 3 rounds, 1 cluster, received accuracy 0.")
    assert repr(result.records[0]).startswith("RoundRecord(round 1, 2 trained, 1 cluster, received accuracy 0.")
    assert "<th>received</th>" in result._repr_html_()


@pytest.mark.parametrize("stored", [False, True])
def test_a_saved_result_is_loaded_without_the_data(stored: bool, tmp_path: Path) -> None:
    runs = tmp_path / "runs" if stored else None
    result = federate(named(), Narrow, Scaffold(), TRAINING, **PLAN, runs=runs)
    result.save(tmp_path / "study", personal=True)
    loaded = load(tmp_path / "study", module=Narrow)
    assert loaded.records == result.records
    assert (loaded.clients, loaded.settings, loaded.hash) == (result.clients, result.settings, result.hash)
    for personal in (False, True):
        np.testing.assert_array_equal(*(weights(r.module("site-c", personal=personal)) for r in (loaded, result)))
    loaded.save(tmp_path / "copy")
    np.testing.assert_array_equal(
        *(weights(r.module("site-c")) for r in (load(tmp_path / "copy", module=Narrow), result))
    )
    with pytest.raises(StoreError, match="already"):
        result.save(tmp_path / "study")
    with pytest.raises(ModelError, match="Narrow"):
        load(tmp_path / "study").module("site-a")
    with pytest.raises(ModelError, match="650"):
        load(tmp_path / "study", module=net).module("site-a")


def test_personal_models_of_a_saved_result_need_the_data(tmp_path: Path) -> None:
    federate(named(), Narrow, FedAvg(), TRAINING, **PLAN).save(tmp_path / "study")
    with pytest.raises(StoreError, match="personal=True"):
        load(tmp_path / "study", module=Narrow).module("site-a", personal=True)


def test_a_run_of_an_experiment_file_is_loaded_too(tmp_path: Path) -> None:
    data = {"clients": 4, "scheme": {"kind": "label-skew", "share": 0.3}}
    (run,) = expand({"data": data, "schedule": {"rounds": 2}, "algorithm": {"name": "fedavg"}})
    *_, expected = resume(run, folder_of(run, tmp_path))
    result = load(tmp_path / run.hash)
    assert {p: vars(s) for p, s in result.accuracy.items()} == expected["accuracy"]
    assert result.module(2)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    with pytest.raises(ConfigError, match="experiment file"):
        load(tmp_path / run.hash, module=net).module(0)
    with pytest.raises(StoreError, match="finished"):
        load(tmp_path)


def test_what_is_only_in_python_is_not_rebuilt_from_its_settings(tmp_path: Path) -> None:
    result = federate(named(), Narrow, FedAvg(), TRAINING, rounds=1, runs=tmp_path)
    with pytest.raises(ConfigError, match=r"pacfl\.load"):
        load_models(RunFolder(tmp_path / result.hash))


# The package


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
from pacfl import EarlyStopping, Result, from_arrays, proximity, signature
try:
    from pacfl import federate
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'pacfl[learning]'" in done.stdout
