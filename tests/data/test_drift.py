"""Clients that change group in mid-run: who swaps data with whom."""

from typing import Any

import numpy as np
import pytest

from pacfl.data import Drift, build_drift, drawn_swap
from pacfl.errors import ConfigError, DataError


@pytest.mark.parametrize("share", [0.01, 0.1, 0.35, 1.0])
@pytest.mark.parametrize("counts", [(10, 10), (3, 9, 9), (5, 5, 5, 5)])
def test_every_client_that_drifts_has_data_of_another_group_and_no_data_are_lost(
    counts: tuple[int, ...], share: float
) -> None:
    group = np.random.default_rng(1).permutation(np.repeat(np.arange(len(counts)), counts))
    n = len(group)
    swap = drawn_swap(Drift(3, share), group, np.random.default_rng(0))
    assert len(swap.clients) == 2 * max(1, round(share * n / 2))
    assert sorted(swap.source.tolist()) == list(range(n))
    for c in range(n):
        assert [swap.source_of(c, t) for t in (1, 2)] == [c, c]
        assert swap.source[swap.source[c]] == c, "in pairs"
        assert (group[swap.source_of(c, 3)] != group[c]) == (c in swap.clients)


def test_about_as_many_clients_of_every_group_drift() -> None:
    group = np.repeat(np.arange(4), (40, 30, 20, 10))
    swap = drawn_swap(Drift(1, 0.2), group, np.random.default_rng(0))
    assert np.bincount(group[list(swap.clients)]).tolist() == [5, 5, 5, 5]
    other = drawn_swap(Drift(1, 0.2), group, np.random.default_rng(1))
    assert other.clients != swap.clients, "at random"


@pytest.mark.parametrize("group", [None, np.zeros(6, np.intp)])
def test_drift_needs_groups(group: Any) -> None:
    with pytest.raises(DataError, match="this scheme has no groups; add groups, or use by-set"):
        drawn_swap(Drift(1, 0.5), group, np.random.default_rng(0))


def test_more_clients_than_the_groups_allow_are_refused() -> None:
    group = np.array([0, 0, 0, 0, 0, 1])
    with pytest.raises(DataError, match="no 6 of 6 clients can swap their data in pairs of different groups"):
        drawn_swap(Drift(1, 1.0), group, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"round": 0, "share": 0.1}, "round must be an integer of at least 1, got 0"),
        ({"round": 1, "share": 0.0}, "share must be a number above 0 and at most 1, got 0.0"),
        ({"round": 1}, "needs share"),
        ({"round": 1, "share": 0.1, "rate": 2}, "no setting 'rate'"),
    ],
)
def test_bad_drift_is_refused(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_drift(table)
