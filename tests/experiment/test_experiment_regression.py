"""Models of numbers and of labels, from the data to the scores."""

import numpy as np
import pytest
from sklearn.metrics import r2_score, roc_auc_score
from torch import nn

from pacfl import FedAvg, LocalOnly, LocalTraining, federate
from pacfl.errors import ConfigError, DivergedError

Client = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
TRAINING = LocalTraining(epochs=3, lr=0.02, loss="squared-error")


def client(i: int, noise: float = 0.1) -> Client:
    """A linear function of three features, another offset for each client."""
    rng = np.random.default_rng(i)
    x = rng.normal(size=(60, 3))
    y = x @ [1.0, -2.0, 0.5] + i + noise * rng.normal(size=60)
    return x[:40], y[:40], x[40:], y[40:]


def linear() -> nn.Module:
    return nn.Linear(3, 1)


def test_a_federated_linear_regression_has_the_errors_that_numpy_computes_from_its_weights() -> None:
    clients = [client(i) for i in range(3)]
    options = {"rounds": 4, "participation": 1.0, "normalise": "none", "metrics": ["r2", "rmse"]}
    result = federate(clients, linear, FedAvg(), TRAINING, **options)  # type: ignore[arg-type]  # of several types
    assert set(result.scores["received"]) == {"mae", "loss", "r2", "rmse"}
    for c, (_, _, x, y) in enumerate(clients):
        weight, bias = (p.detach().numpy() for p in result.module(c).parameters())
        predicted = x.astype(np.float32) @ weight[0] + bias[0]
        own = {name: by[c] for name, by in result.by_client["received"].items()}
        assert own["mae"] == pytest.approx(np.abs(predicted - y).mean(), rel=1e-5)
        assert own["rmse"] == pytest.approx(np.sqrt(((predicted - y) ** 2).mean()), rel=1e-5)
        assert own["loss"] == pytest.approx(own["rmse"] ** 2, rel=1e-5)
        assert own["r2"] == pytest.approx(r2_score(y, predicted), rel=1e-4)
    spread = result.scores["received"]["mae"]
    errors = list(result.by_client["received"]["mae"].values())
    assert (spread.mean, spread.worst_tenth) == pytest.approx((np.mean(errors), max(errors)))


def test_clients_with_other_offsets_have_smaller_errors_on_their_own() -> None:
    clients = [client(3 * i) for i in range(3)]
    together, own = (
        federate(clients, linear, algorithm, TRAINING, rounds=10, participation=1.0).scores["received"]["mae"].mean
        for algorithm in (FedAvg(), LocalOnly())
    )
    assert own < together / 2


def test_targets_that_do_not_vary_at_a_client_leave_it_out_of_r2() -> None:
    clients = [client(0), client(1)]
    clients[1] = (*clients[1][:3], np.full(20, 1.5))
    result = federate(clients, linear, FedAvg(), TRAINING, rounds=1, participation=1.0, metrics=["r2"])
    assert set(result.by_client["received"]["r2"]) == {0}
    assert set(result.by_client["received"]["mae"]) == {0, 1}


def test_a_regression_that_diverges_says_so() -> None:
    with pytest.raises(DivergedError, match="lower the learning rate"):
        federate(
            *([client(0)], linear, FedAvg(), LocalTraining(epochs=5, lr=1e3, loss="squared-error")),
            rounds=5,
            participation=1.0,
        )


def test_several_labels_are_scored_by_the_share_that_is_right() -> None:
    def labelled(i: int) -> Client:
        x, _, x_test, _ = client(i)
        return x, x[:, :2] > 0, x_test, x_test[:, :2] > 0

    clients = [labelled(i) for i in range(3)]
    training = LocalTraining(epochs=5, lr=0.5, loss="binary-cross-entropy")
    options = {"rounds": 3, "participation": 1.0, "normalise": "none", "metrics": ["auroc"]}
    result = federate(clients, lambda: nn.Linear(3, 2), FedAvg(), training, **options)  # type: ignore[arg-type]
    for c, (_, _, x, y) in enumerate(clients):
        weight, bias = (p.detach().numpy() for p in result.module(c).parameters())
        logits = x.astype(np.float32) @ weight.T + bias
        own = {name: by[c] for name, by in result.by_client["received"].items()}
        assert own["accuracy"] == pytest.approx(((logits > 0) == y).mean())
        assert own["auroc"] == pytest.approx(roc_auc_score(y, logits))


def test_a_metric_of_classes_is_refused_for_numbers() -> None:
    with pytest.raises(ConfigError, match="'macro-f1' is for classes or labels, but the loss is for values"):
        federate([client(0)], linear, FedAvg(), TRAINING, metrics=["macro-f1"])
