"""The study of the smallest difference that is found."""

import numpy as np
import pytest

from pacfl.subspace import null

power = pytest.importorskip("studies.power", reason="the studies are not part of a source distribution")


@pytest.mark.parametrize("wanted", [None, 1, 3, 5])
def test_bisection_gives_the_smallest_difference_that_is_found(
    wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = (1, 2, 3, 4, 5)
    found = {size: 1.0 if wanted is not None and size >= wanted else 0.85 for size in grid}
    monkeypatch.setattr(power, "pool", lambda _difference, _n, size, _group: size)
    monkeypatch.setattr(power, "share_found", lambda _difference, groups, _clients, _limits: found[groups[1]])
    difference = power.Difference("any", "inputs", power.turned, grid, "")
    assert power.smallest_found(difference, 20, {}, 2) == wanted


def test_large_differences_are_found_and_none_is_found_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null, "SIMULATIONS", 50)
    monkeypatch.setattr(power, "POOL", 6)
    monkeypatch.setattr(power, "FEDERATIONS", 3)
    for difference in power.DIFFERENCES:
        same = power.pool(difference, 60, 0.0, 0), power.pool(difference, 60, 0.0, 1)
        other = same[0], power.pool(difference, 60, difference.grid[-1], 1)
        assert power.share_found(difference, same, 4, {}) == 0
        assert power.share_found(difference, other, 4, {}) == 1


def test_relabelled_classes_have_the_same_inputs_and_other_names() -> None:
    (x, labels), (same, others) = (power.relabelled(np.random.default_rng(0), 20, k) for k in (0, 3))
    assert (x == same).all()
    assert {(int(a), int(b)) for a, b in zip(labels, others, strict=True) if a != b} == {(0, 2), (1, 0), (2, 1)}
