"""Parts that are not pacfl's own: named in TOML, run as any other, and part of the content of a run by their code."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from pacfl import algorithms, plugins
from pacfl.errors import ConfigError, ModelError
from pacfl.experiment.config import expand, read
from pacfl.experiment.run import build, load_models, resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.federation.local import LocalBackend
from pacfl.learning.nets import architecture, mlp
from tests.experiment.tables import only, table

CODE = """
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import nn

from pacfl.federation.algorithm import Algorithm, State, cluster_mean


@dataclass(frozen=True, eq=False, kw_only=True)
class Counting(State):
    rounds: int = 0


@dataclass(frozen=True)
class Damped(Algorithm):
    eta: float = 0.5
    word: Literal["a", "b"] = "a"

    def init_server(self, model):
        return Counting(model.initial[None])

    def aggregate(self, state, uploads):
        if not uploads:
            return state
        moved = np.float32(self.eta) * (cluster_mean(state, uploads, self.aggregation).models - state.models)
        return replace(state, models=state.models + moved, rounds=state.rounds + 1)


class Undecorated(Algorithm):
    eta: float = 0.5


class Fixed(nn.Sequential):
    def __init__(self, width: int = 4) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, 10))


def shaped(shape, n_outputs, *, depth: int, bias=True):
    wide = [nn.Linear(64, 64, bias=bias) for _ in range(depth)]
    return nn.Sequential(nn.Flatten(), *wide, nn.Linear(64, n_outputs))


def no_net():
    return 3


def one(shape):
    return None
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an experiment, and its own code beside it."""
    (tmp_path / "own_parts.py").write_text(CODE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    plugins.search_in(tmp_path)
    plugins.source_digest.cache_clear()
    yield tmp_path
    sys.modules.pop("own_parts", None)
    plugins.source_digest.cache_clear()


EXPERIMENT = """
[data]
clients = 4
[model]
name = "own_parts:Fixed"
width = [5, 6]
[learning]
epochs = 1
[schedule]
rounds = 2
participation = 1.0
[[algorithm]]
name = "own_parts:Damped"
eta = 0.25
"""


def test_an_experiment_uses_the_code_beside_it_in_any_number_of_workers(folder: Path) -> None:
    (folder / "experiment.toml").write_text(EXPERIMENT)
    sys.path.remove(str(folder))  # reading the file finds it
    first, second = read(folder / "experiment.toml")
    assert first.content()["model"] == {"name": "own_parts:Fixed", "width": 5}
    assert set(first.content()["plugins"]) == {"own_parts"}
    assert len(build(second).setup.model.initial) == 64 * 6 + 6 + 6 * 10 + 10
    losses = []
    for workers in (1, 2):
        stored = RunFolder(folder / str(workers))
        stored.path.mkdir()
        *records, result = resume(first, stored, backend=LocalBackend(workers))
        losses.append(result["loss"])
        assert result["algorithm"] == "own_parts:Damped(eta=0.25)"
        assert len(records) == 3
    assert losses[0] == losses[1]


@pytest.mark.usefixtures("folder")
def test_a_run_is_resumed_with_a_state_of_the_plug_in(tmp_path: Path) -> None:
    run = only(table(algorithm={"name": "own_parts:Damped"}))
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    for stored in (whole, cut):
        stored.path.mkdir()
    *_, expected = resume(run, whole)
    records = resume(run, cut)
    next(records)
    next(records)
    records.close()
    assert cut.load_checkpoint()["state"].rounds == 2  # type: ignore[index]
    *_, result = resume(run, cut)
    assert result["loss"] == expected["loss"]


def test_an_encoder_of_pacfl_runs_and_is_part_of_the_hash_with_its_files(folder: Path) -> None:
    code = (
        "import numpy as np\n\n\ndef sums(x):\n    return np.stack([x.sum(axis=1).ravel()[: len(x)], x[:, 0, 0]], 1)\n"
    )
    (folder / "encoder_of_runs.py").write_text(code + f"\n\nsums.files = [{str(folder / 'weights')!r}]\n")
    hashes = []
    for weights in ("1", "2"):
        (folder / "weights").write_text(weights)
        run = only(table(algorithm={"name": "pacfl", "encoder": "encoder_of_runs:sums", "rank": 1}))
        hashes.append(run.hash)
    assert hashes[0] != hashes[1]
    stored = RunFolder(folder / "run")
    stored.path.mkdir()
    *_, result = resume(run, stored)
    assert "encoder_of_runs:sums" in result["algorithm"]


def test_the_hash_changes_with_the_code_and_with_nothing_else(folder: Path) -> None:
    asked = table(algorithm={"name": "own_parts:Damped"})
    before = only(asked).hash
    (folder / "note.txt").write_text("")
    plugins.source_digest.cache_clear()
    assert only(asked).hash == before
    (folder / "own_parts.py").write_text(CODE + "\n# changed\n")
    plugins.source_digest.cache_clear()
    assert only(asked).hash != before


def test_models_of_a_run_are_not_rebuilt_with_other_code(folder: Path, tmp_path: Path) -> None:
    run = only(table(algorithm={"name": "own_parts:Damped"}))
    stored = folder_of(run, tmp_path / "runs")
    list(resume(run, stored))
    assert load_models(stored)[1].clients
    (folder / "own_parts.py").write_text(CODE + "\n# changed\n")
    plugins.source_digest.cache_clear()
    with pytest.raises(ConfigError, match="own_parts is not as it was"):
        load_models(stored)


def test_a_run_of_own_parts_has_no_plug_ins() -> None:
    content = only(table(model={"name": "mlp"})).content()
    assert "plugins" not in content
    assert content["model"] == {"name": "mlp"}


@pytest.mark.usefixtures("folder")
def test_an_entry_point_is_known_by_its_name_and_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("damped", "own_parts:Damped", "pacfl.algorithms")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == entry.group else [])
    run = only(table(algorithm={"name": "damped", "eta": 0.1}))
    assert run.label() == "damped(eta=0.1)"
    assert run.content()["plugins"] == plugins.digests(["own_parts:Damped"])
    with pytest.raises(ConfigError, match="did you mean 'damped'"):
        algorithms.build("dampedd")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "own_parts:Damped", "eta": "half"}, "eta must be a number, got 'half'"),
        ({"name": "own_parts:Damped", "etta": 1}, "no setting 'etta'.*did you mean 'eta'"),
        ({"name": "own_parts:Damped", "word": "c"}, "word must be one of 'a', 'b'"),
        ({"name": "own_parts:Undecorated"}, "decorated with @dataclass"),
        ({"name": "own_parts:shaped"}, "expected a class that inherits from pacfl.Algorithm"),
        ({"name": "own_parts:Other"}, "cannot be imported"),
    ],
    ids=str,
)
def test_a_plug_in_is_checked_as_our_own(entry: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(table(algorithm=entry))


def test_a_module_that_fails_on_import_is_named(folder: Path) -> None:
    (folder / "broken_parts.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match="'broken_parts:A' fails on import: ZeroDivisionError"):
        algorithms.build("broken_parts:A")


# Models


def test_the_settings_of_a_net_are_its_keyword_arguments() -> None:
    run = only(table(model={"name": "mlp", "hidden": 7}))
    assert run.content()["model"] == {"name": "mlp", "hidden": 7}
    expected = mlp((1, 8, 8), 10, hidden=7)
    assert len(build(run).setup.model.initial) == sum(p.numel() for p in expected.parameters())
    assert run.hash != only(table()).hash


@pytest.mark.usefixtures("folder")
def test_a_net_gets_the_shape_and_the_outputs_if_it_takes_them() -> None:
    shaped = architecture("own_parts:shaped", {"depth": 2})((1, 8, 8), 3)
    assert [p.shape[0] for p in shaped.parameters()] == [64, 64, 64, 64, 3, 3]
    fixed = architecture("own_parts:Fixed", {})((1, 8, 8), 3)
    assert [p.shape[0] for p in fixed.parameters()] == [4, 4, 10, 10]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "mlp", "hiden": 3}, r"mlp has no setting 'hiden' \(did you mean 'hidden'"),
        ({"name": "mlp", "hidden": 0}, "hidden must be an integer of at least 1, got 0"),
        ({"name": "logistic", "hidden": 3}, "no setting 'hidden'; there is name"),
        ({"name": "mpl"}, "no model 'mpl'.*did you mean 'mlp'"),
        ({"name": 3}, "name must be a string"),
        ({"name": "own_parts:shaped"}, "needs depth"),
        ({"name": "own_parts:shaped", "depth": "two"}, "depth must be an integer"),
        ({"name": "own_parts:one"}, "needs shape"),
        ({"name": "own_parts:CODE"}, "cannot be imported"),
        ({"name": "own_parts:__name__"}, "expected a class or a function"),
    ],
    ids=str,
)
def test_settings_that_no_net_takes_are_refused(model: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(table(model=model))


@pytest.mark.usefixtures("folder")
def test_what_is_no_net_is_refused() -> None:
    with pytest.raises(ModelError, match="returned int, expected a torch module"):
        architecture("own_parts:no_net", {})((1, 8, 8), 3)


# Spelling


def test_hyphens_and_underscores_are_the_same_everywhere() -> None:
    def asked(join: str) -> dict[str, object]:
        return table(
            data={"disjoint" + join + "labels": True},
            learning={"batch" + join + "size": 7},
            schedule={"client" + join + "dropout": 0.1},
            algorithm={"name": "lg-fedavg", "shared" + join + "layers": 1},
        )

    assert only(asked("-")).hash == only(asked("_")).hash


def test_a_setting_in_both_spellings_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        expand(table(data={"disjoint-labels": True, "disjoint_labels": True}))


def test_an_override_replaces_either_spelling(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[schedule]\nclient-dropout = [0.0, 0.5]\n[[algorithm]]\nname = "fedavg"\n')
    (run,) = read(tmp_path / "x.toml", ("schedule.client_dropout=0.25",))
    assert np.isclose(run.schedule.client_dropout, 0.25)
