"""About how long a grid takes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pacfl.benchmark.estimate import Cost, estimates
from pacfl.benchmark.making import make
from pacfl.federation.schedule import Schedule
from tests.benchmark.tiny import request_of, shrink


def test_a_run_costs_what_a_short_one_does_and_the_rounds_that_it_lacks() -> None:
    """3 of 50 rounds and one of ten evaluations are in the 10 seconds: 10 + 47 * 2 + 9 * 1."""
    assert Cost(10.0, 2.0, 1.0).of(Schedule(rounds=50, evaluate_every=5)) == 113
    assert Cost(10.0, 2.0, 1.0).of(Schedule(rounds=20)) == 10 + 17 * 2 - 1, "none on the way"


def ticking() -> Callable[[], float]:
    """A clock by which everything takes a second."""
    now = iter(range(10**6))
    return lambda: float(next(now))


def test_what_is_left_is_what_is_neither_exported_nor_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short run looks at the clock six times, so it takes 5 s; one of its rounds 1 s, and an evaluation none."""
    shrink(monkeypatch, tuning=True)
    both = request_of(tmp_path / "runs", ("fedavg", "fedbn"), ("iid", "rotations"), n_seeds=2)
    fedavg, fedbn = estimates(both, ticking())
    assert (fedavg.method, fedavg.runs, fedavg.trials, fedavg.run_seconds) == ("fedavg", 4, 4, 5 - 1)
    assert fedavg.core_hours == pytest.approx((4 * 4 + 4 * 0.8 * 4) / 3600)
    assert (fedbn.method, fedbn.run_seconds, fedbn.core_hours) == ("fedbn", None, 0.0), "it is refused"
    ended = make(request_of(tmp_path / "runs", ("fedavg",), ("iid",), n_seeds=1))
    for where in (
        request_of(tmp_path / "runs", ("fedavg",), ("iid", "rotations"), n_seeds=2, exported=ended),
        request_of(tmp_path / "elsewhere", ("fedavg",), ("iid", "rotations"), n_seeds=2, exported=ended),
    ):
        (after,) = estimates(where, ticking())
        assert (after.runs, after.trials) == (3, 2)
