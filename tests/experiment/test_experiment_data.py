"""What [data] asks for is what a run trains on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pacfl.algorithms import PACFL
from pacfl.errors import ConfigError
from pacfl.experiment.execution import Experiment
from pacfl.experiment.result import load
from pacfl.experiment.run import build, divide, resume
from pacfl.experiment.store import folder_of
from pacfl.federation.client_side import ClientSide
from pacfl.report.gather import gather
from tests.experiment.tables import only, table

N, N_TEST = 120, 40
RNG = np.random.default_rng(0)


def write(folder: Path, x: NDArray[Any], y: NDArray[Any]) -> None:
    np.savez(folder / "mine.npz", x_train=x[:N], y_train=y[:N], x_test=x[N:], y_test=y[N:])


def built(folder: Path, loss: str = "cross-entropy", **data: Any) -> Experiment:
    learning = {"epochs": 1, "loss": loss}
    own = {"name": "mine", "clients": 4, "scheme": {"kind": "iid"}, **data}
    return build(only(table(data=own, model={"name": "logistic"}, learning=learning)), folder)


X = RNG.normal(size=(N + N_TEST, 3)).astype(np.float32)
TARGETS = {
    "classes": np.arange(N + N_TEST) % 5,
    "labels": RNG.integers(0, 2, (N + N_TEST, 4)),
    "values": X[:, :2] * 3,
}


@pytest.mark.parametrize(
    ("targets", "loss", "n_outputs"),
    [
        ("classes", "cross-entropy", 5),
        ("labels", "binary-cross-entropy", 4),
        ("values", "squared-error", 2),
        ("values", "absolute-error", 2),
    ],
)
def test_a_model_has_as_many_outputs_as_the_targets_need(
    tmp_path: Path, targets: str, loss: str, n_outputs: int
) -> None:
    write(tmp_path, X, TARGETS[targets])
    experiment = built(tmp_path, loss)
    assert experiment.dataset.n_outputs == n_outputs
    assert len(experiment.setup.model.initial) == (3 + 1) * n_outputs
    assert experiment.setup.pool.train.y.dtype == (np.int64 if targets == "classes" else np.float32)


@pytest.mark.parametrize(
    ("targets", "loss", "reason"),
    [
        ("values", "cross-entropy", "mine has values, the loss 'cross-entropy' is for classes; use squared-error or"),
        ("labels", "cross-entropy", "use binary-cross-entropy, or give integers .n,. if they are classes"),
        ("classes", "squared-error", "is for values; use cross-entropy, or give floats if they are values"),
        ("labels", "absolute-error", "mine has labels, the loss 'absolute-error' is for values"),
    ],
)
def test_a_loss_for_other_targets_is_refused(tmp_path: Path, targets: str, loss: str, reason: str) -> None:
    write(tmp_path, X, TARGETS[targets])
    with pytest.raises(ConfigError, match=reason):
        built(tmp_path, loss)


@pytest.mark.parametrize(("targets", "loss"), [("values", "squared-error"), ("labels", "binary-cross-entropy")])
def test_a_signature_per_class_is_refused_without_classes(tmp_path: Path, targets: str, loss: str) -> None:
    write(tmp_path, X, TARGETS[targets])
    setup = built(tmp_path, loss).setup
    with pytest.raises(ConfigError, match="per_class needs one class for each sample"):
        ClientSide(replace(setup, algorithm=PACFL(per_class=True))).profile(0, 0)


def test_two_classes_can_be_labels(tmp_path: Path) -> None:
    write(tmp_path, X, np.arange(N + N_TEST) % 2)
    assert len(built(tmp_path, "binary-cross-entropy").setup.model.initial) == 3 + 1


def test_a_run_normalises_as_its_settings_say_and_says_how(tmp_path: Path) -> None:
    tokens = RNG.integers(0, 30, (N + N_TEST, 6))
    write(tmp_path, tokens, TARGETS["classes"])
    for how in ("auto", "feature"):
        experiment = built(tmp_path, normalise=how)
        (own,) = experiment.normalisation
        assert np.array_equal(own.apply(tokens[:N]), experiment.setup.pool.train.x)
        assert own.mean is not None
        np.testing.assert_allclose(own.mean, tokens[:N].mean(axis=0))
    with pytest.raises(ConfigError, match="normalise must be one of 'auto', 'none', 'feature', 'channel', got 'all'"):
        built(tmp_path, normalise="all")


def test_the_default_of_a_later_setting_is_not_part_of_a_run() -> None:
    plain = only(table())
    assert only(table(data={"normalise": "auto", "test": "owned"})).hash == plain.hash


SKEWED = {"kind": "dirichlet", "alpha": 0.5, "groups": {"rotate": [0, 90], "permute-labels": 2}}


def divided(of_run: int, **data: Any) -> tuple[Any, Any]:
    own = {"clients": 8, "scheme": SKEWED, "samples": 1000, **data}
    return divide(only(table(seeds=[of_run], data=own)))


@pytest.mark.parametrize("settings", [{"test": "proportional"}, {"validation": 0.2}])
def test_everything_about_data_is_drawn_by_their_own_seed_if_it_is_given(settings: dict[str, Any]) -> None:
    (data, clients), (again, same), (other, _) = (
        divided(seed, **settings, seed=own) for seed, own in ((1, 7), (2, 7), (1, 8))
    )
    assert data.digest == again.digest != other.digest
    assert np.array_equal(clients.true_cluster, same.true_cluster)
    for one, two in ((clients.train_indices, same.train_indices), (clients.test_indices, same.test_indices)):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    by_run, by_data = divided(7, **settings), divided(3, **settings, seed=7)
    assert by_run[0].digest == by_data[0].digest, "the seed of the run counts if the data have none"


def test_training_is_still_drawn_by_the_seed_of_the_run() -> None:
    one, two = (build(only(table(seeds=[seed], data={"seed": 7}))).setup for seed in (1, 2))
    assert not np.array_equal(one.model.initial, two.model.initial)
    assert one.seed != two.seed


def test_signatures_see_the_samples_of_a_group_as_transformed() -> None:
    experiment = build(only(table(data={"scheme": SKEWED, "seed": 0})))
    assert experiment.setup.pool.raw is experiment.dataset.x_train
    assert experiment.partition.true_cluster is not None
    assert len(set(experiment.partition.true_cluster.tolist())) == 4


def test_a_choice_of_test_samples_is_refused_where_validation_samples_replace_them() -> None:
    with pytest.raises(ConfigError, match="validation replaces the test samples, got test 'global' with it"):
        only(table(data={"validation": 0.2, "test": "global"}))


def test_natural_clients_have_their_names_in_results_and_report(tmp_path: Path) -> None:
    whose = np.array(["north", "south"])[np.arange(N + N_TEST) % 2]
    np.savez(
        tmp_path / "mine.npz",
        x_train=X[:N],
        y_train=TARGETS["classes"][:N],
        x_test=X[N:],
        y_test=TARGETS["classes"][N:],
        clients_train=whose[:N],
        clients_test=whose[N:],
        groups_train=np.arange(N) // 3,
    )
    data = {"name": "mine", "clients": 2, "scheme": {"kind": "natural"}}
    run = only(table(data=data, model={"name": "logistic"}, schedule={"rounds": 1}))
    folder = folder_of(run, tmp_path / "runs")
    list(resume(run, folder, tmp_path))
    assert [client["name"] for client in (folder.description("clients") or {})["clients"]] == ["north", "south"]
    assert load(folder.path, data=tmp_path).clients == ("north", "south")
    assert gather([str(folder.path)], tmp_path / "runs").runs[0].clients.names == ("north", "south")
    groups = build(run, tmp_path).setup.pool.groups
    assert groups is not None
    assert np.array_equal(groups, np.arange(N) // 3)
