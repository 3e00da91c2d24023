"""Clusters of clients that no chain of shared classes connects: only their inputs can say whether they are one."""

import numpy as np

from pacfl.subspace.hierarchy import Labels, in_order_of_appearance


def without_small_groups(labels: Labels, connected: Labels, groups: Labels) -> Labels:
    """Of clients with common classes that noise hides, only the largest group is in clusters: (n,), -1 for others."""
    left = labels.copy()
    for chain in np.unique(connected):
        members = np.flatnonzero((connected == chain) & (labels >= 0))
        if len(members):
            left[members[groups[members] != np.bincount(groups[members]).argmax()]] = -1
    left[left >= 0] = in_order_of_appearance(left[left >= 0]) if (left >= 0).any() else left[left >= 0]
    return left


def across(labels: Labels, groups: Labels, by_inputs: Labels) -> Labels:
    """Clusters of different groups joined where their inputs are in one cluster, and clients without labels assigned.

    labels: by classes, -1 without evidence. A cluster stays alone where two clusters of one group have its inputs: they
    differ in their labels, and inputs cannot say to which it belongs.
    """
    joined = labels.copy()
    homes = _homes(labels, groups, by_inputs)
    for home in set(homes.values()):
        same = [k for k, other in homes.items() if other == home]
        of_groups = [int(groups[labels == k][0]) for k in same]
        if len(set(of_groups)) == len(of_groups):
            joined[np.isin(labels, same)] = same[0]
    unlabelled = np.flatnonzero(groups < 0)
    fresh = int(labels.max(initial=-1)) + 1
    for i in unlabelled[by_inputs[unlabelled] >= 0]:
        near = sorted({int(joined[labels == k][0]) for k, home in homes.items() if home == by_inputs[i]})
        joined[i] = fresh + int(by_inputs[i]) if not near else near[0] if len(near) == 1 else -1
    placed = joined >= 0
    joined[placed] = in_order_of_appearance(joined[placed])
    return joined


def placed_across(labels: Labels, groups: Labels, by_inputs: Labels, n_old: int) -> Labels:
    """Newcomers that no class connects to others, by the inputs of those that were there before."""
    homes = _homes(labels[:n_old], groups[:n_old], by_inputs[:n_old])
    placed = labels.copy()
    opened: dict[int, int] = {}
    for i in range(n_old, len(labels)):
        alone = labels[i] < 0 and (groups[i] < 0 or groups[i] not in groups[:n_old])
        if not alone or by_inputs[i] < 0:
            continue
        home = int(by_inputs[i])
        near = [k for k, other in homes.items() if other == home]
        if not near:
            opened.setdefault(home, int(placed.max()) + 1)
            near = [opened[home]]
        placed[i] = near[0] if len(near) == 1 else -1
    return placed


def _homes(labels: Labels, groups: Labels, by_inputs: Labels) -> dict[int, int]:
    """The cluster of inputs in which most of each labelled cluster's clients are."""
    return {
        int(k): int(np.bincount(by_inputs[(labels == k) & (by_inputs >= 0)]).argmax())
        for k in np.unique(labels[(labels >= 0) & (groups >= 0) & (by_inputs >= 0)])
    }
