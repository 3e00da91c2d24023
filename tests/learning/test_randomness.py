import numpy as np
import pytest

from pacfl.learning.randomness import batch_order, count_steps, stream
from pacfl.learning.settings import LocalTraining


def test_a_stream_depends_on_its_key_alone() -> None:
    first = stream(0, "batches", 3, 7).random(5)
    stream(0, "batches", 3, 8).random(1000)
    assert stream(0, "batches", 3, 7).random(5).tolist() == first.tolist()


def test_different_keys_give_different_streams() -> None:
    keys = [
        (0, "batches", 3, 7),
        (1, "batches", 3, 7),
        (0, "sample", 3, 7),
        (0, "batches", 7, 3),
        (0, "batches", 3),
        (0, "batches", 37),
        (0, "batches", "3", 7),
        (0, "batches", 3, 7, 0),
    ]
    draws = {stream(*key).bytes(16) for key in keys}  # type: ignore[arg-type]
    assert len(draws) == len(keys)


@pytest.mark.parametrize(("n", "epochs"), [(1, 3), (7, 1), (30, 4)])
def test_every_epoch_has_every_sample_once(n: int, epochs: int) -> None:
    order = batch_order(n, epochs, stream(0, "batches", 0, 0))
    assert order.shape == (epochs, n)
    assert np.sort(order, axis=1).tolist() == [list(range(n))] * epochs


def test_epochs_clients_and_rounds_have_different_orders() -> None:
    order = batch_order(30, 2, stream(0, "batches", 0, 0))
    orders = [order[0], order[1], *(batch_order(30, 1, stream(0, "batches", *key))[0] for key in ((0, 1), (1, 0)))]
    assert len({tuple(o.tolist()) for o in orders}) == 4


def test_zero_epochs_have_an_empty_order() -> None:
    assert batch_order(5, 0, stream(0)).shape == (0, 5)


@pytest.mark.parametrize(
    ("n", "epochs", "batch", "steps"),
    [(10, 1, 10, 1), (11, 1, 10, 2), (9, 1, 10, 1), (21, 3, 10, 9), (5, 0, 10, 0), (5, 2, 1, 10)],
)
def test_the_last_batch_of_an_epoch_counts_as_a_step(n: int, epochs: int, batch: int, steps: int) -> None:
    assert count_steps(n, epochs, batch) == steps


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": -1},
        {"epochs": 1.5},
        {"epochs": True},
        {"batch_size": 0},
        {"batch_size": "10"},
        {"lr": 0.0},
        {"lr": -0.1},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"momentum": float("nan")},
        {"weight_decay": -1e-4},
        {"weight_decay": float("nan")},
        {"weight_decay": float("inf")},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        LocalTraining(**settings)  # type: ignore[arg-type]


def test_settings_at_the_limits_are_accepted() -> None:
    assert LocalTraining(epochs=0, batch_size=1, lr=1e-9, momentum=0.0, weight_decay=0.0).epochs == 0
