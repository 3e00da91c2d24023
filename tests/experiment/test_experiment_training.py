"""Settings of training from an experiment file to the models of a run."""

from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import ConfigError, ModelError
from pacfl.experiment.run import build, resume
from pacfl.experiment.store import RunFolder
from pacfl.federation.local_layers import OWN
from tests.experiment.tables import Table, only, table

NET = """
from torch import nn

def normed(shape, n_outputs, width=8):
    c, h, w = shape
    return nn.Sequential(
        nn.Flatten(), nn.Linear(c * h * w, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, n_outputs)
    )
"""


@pytest.fixture(autouse=True)
def _plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "normed_nets.py").write_text(NET)
    monkeypatch.syspath_prepend(str(tmp_path))


def asked(**model: str) -> Table:
    return table(
        data={"samples": 300, "clients": 4},
        model={"name": "normed_nets:normed", "width": 6, **model},
        learning={"optimiser": "adamw", "lr-schedule": {"kind": "cosine", "rounds": 3}, "lr": 0.01},
        schedule={"rounds": 3, "participation": 1.0},
    )


@pytest.mark.parametrize("batch_norm", ["averaged", "local"])
def test_a_run_with_batch_normalisation_and_adamw_resumes_to_the_same_bits(batch_norm: str, tmp_path: Path) -> None:
    run = only(asked(**{"batch-norm": batch_norm}))
    whole = list(resume(run, RunFolder(tmp_path / "whole")))[-1]
    parts = RunFolder(tmp_path / "parts")
    interrupted = resume(run, parts)
    next(interrupted)
    interrupted.close()
    again = list(resume(run, parts))[-1]
    assert {**again, "seconds": 0} == {**whole, "seconds": 0}
    assert whole["loss"]["received"]["mean"] < np.log(10)


def test_where_normalisation_is_done_is_part_of_a_run() -> None:
    averaged, local, plain = (
        only(asked(**given)) for given in ({"batch-norm": "averaged"}, {"batch_norm": "local"}, {})
    )
    assert averaged.hash == plain.hash != local.hash
    assert local.content()["model"] == {"name": "normed_nets:normed", "width": 6, "batch_norm": "local"}
    assert build(local).setup.model.local.sum() == 4 * 6
    assert not build(plain).setup.model.local.any()
    assert OWN not in build(local).setup.algorithm.init_client(build(local).setup.model)


def test_wrong_settings_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"\[model\] batch_norm must be one of 'averaged', 'local', got 'shared'"):
        only(asked(**{"batch-norm": "shared"}))
    with pytest.raises(ModelError, match="batch-norm = local is for models with normalisation layers"):
        build(only(table(model={"name": "mlp", "batch-norm": "local"})))
