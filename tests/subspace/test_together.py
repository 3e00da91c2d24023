"""Laws of comparisons class by class: who should learn together."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

from pacfl.subspace import (
    ClientSignature,
    adjusted_rand_index,
    assign,
    class_null,
    class_signatures,
    cluster_clients,
    evidence_of,
    signature,
)
from pacfl.subspace import split_half_angles as halves_of
from pacfl.subspace.class_clustering import cluster_classes
from pacfl.subspace.class_null import _heights, _null_sums
from pacfl.subspace.classes import SPLITS, as_messages, from_messages
from pacfl.subspace.null import highest, noise_spectrum
from pacfl.subspace.pairs import ClassNoise, ClassPairs, class_noise, compare_classes
from pacfl.subspace.weighted import merge_contrasts, reassign, weighted_merges

FEATURES, CLASSES = 20, 4
MEANS = 3 * np.random.default_rng(7).standard_normal((CLASSES, FEATURES))


def samples(rng, counts, means=MEANS):
    """Samples of classes with these means, and their labels."""
    y = np.repeat(np.arange(len(counts)), counts)
    return means[y] + rng.standard_normal((len(y), FEATURES)), y


def client(x, y=None):
    own = halves_of(x, 3, measures=["smallest"])["smallest"]
    return ClientSignature(signature(x, 3), own, None if y is None else class_signatures(x, y))


def federation(n, counts, seed=0, relabel=None, means=None):
    """n clients, client i with labels relabel[i % len] and class means means[i % len]."""
    rng = np.random.default_rng(seed)
    clients = []
    for i in range(n):
        x, y = samples(rng, counts(rng, i), MEANS if means is None else means[i % len(means)])
        clients.append(client(x, y if relabel is None else relabel[i % len(relabel)][y]))
    return clients


def equal(_rng, _i):
    return [30] * CLASSES


def skewed(_rng, i):
    """Two neighbouring classes each: every client shares a class with some others."""
    counts = [0] * CLASSES
    counts[i % CLASSES] = counts[(i + 1) % CLASSES] = 40
    return counts


IDENTITY, SHIFTED = np.arange(CLASSES), (np.arange(CLASSES) + 1) % CLASSES


def test_clients_of_one_distribution_are_one_cluster():
    found = cluster_clients(federation(20, equal))
    assert found.evidence["finding"] == "homogeneous"
    assert found.labels.tolist() == [0] * 20


def test_label_skew_alone_separates_nobody():
    """p(x) differs by p(y) only: inputs see clusters, classes do not."""
    clients = federation(24, skewed)
    assert cluster_clients(clients, compare="inputs").labels.max() > 0
    found = cluster_clients(clients)
    assert found.labels.max() == 0
    assert found.evidence["pairs"]["none"] > 0


def test_other_labels_for_the_same_inputs_are_separated():
    clients = federation(20, equal, relabel=[IDENTITY, SHIFTED])
    assert cluster_clients(clients, compare="inputs").labels.max() == 0
    assert adjusted_rand_index(cluster_clients(clients).labels, np.arange(20) % 2) == 1


def test_clients_without_evidence_join_nobody():
    """The last client has two samples of each class: too few to compare."""
    rng = np.random.default_rng(1)
    clients = [*federation(12, equal), client(*samples(rng, [2] * CLASSES))]
    found = cluster_clients(clients)
    assert found.labels.tolist() == [0] * 12 + [-1]
    assert "4 samples" in found.evidence["not_judged"]["12"]


def test_a_single_client_with_other_labels_is_found():
    labels = [IDENTITY] * 7 + [SHIFTED]
    found = cluster_clients(federation(8, equal, relabel=labels))
    assert found.labels.tolist() == [0] * 7 + [1]


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_few_parties_are_judged(n):
    same = cluster_clients(federation(n, equal))
    other = cluster_clients(federation(n, equal, relabel=[IDENTITY, SHIFTED]))
    assert same.labels.max() == 0
    assert adjusted_rand_index(other.labels, np.arange(n) % 2) == 1
    assert other.evidence["reproducibility"] is None
    assert "too few clients to see whether halves" in other.evidence["reasons"]


def test_disjoint_labels_leave_the_decision_to_inputs():
    """Two groups without a common class: apart where inputs differ, together where they do not."""
    moved = MEANS + 4 * np.eye(CLASSES, FEATURES, 5)
    names = [IDENTITY, IDENTITY + 10]
    apart = cluster_clients(federation(20, equal, relabel=names, means=[MEANS, moved]))
    joined = cluster_clients(federation(20, equal, relabel=names))
    assert adjusted_rand_index(apart.labels, np.arange(20) % 2) == 1
    assert joined.labels.max() == 0
    assert apart.evidence["compare"] == joined.evidence["compare"] == "both"
    assert apart.evidence["pairs"] == {"classes": 90, "inputs": 100, "none": 0}


def test_clients_without_labels_go_by_inputs_or_say_that_they_cannot():
    moved = MEANS + 4 * np.eye(CLASSES, FEATURES, 5)
    by_inputs = federation(20, equal, means=[MEANS, moved])
    by_labels = federation(20, equal, relabel=[IDENTITY, SHIFTED])
    for clients, wanted in ((by_inputs, [0, 1]), (by_labels, [-1, -1])):
        unlabelled = [ClientSignature(c.basis, c.split_half_angles) for c in clients[18:]]
        found = cluster_clients([*clients[:18], *unlabelled])
        assert found.labels[18:].tolist() == wanted
        known = cluster_clients(clients[:18])
        joined, _ = assign(known, clients[:18], unlabelled)
        assert joined.labels[18:].tolist() == wanted
        np.testing.assert_array_equal(joined.labels[:18], known.labels)


def test_newcomers_join_their_cluster_or_open_one():
    third = (np.arange(CLASSES) + 2) % CLASSES
    clients = federation(22, equal, relabel=[IDENTITY, SHIFTED])
    odd = federation(2, equal, seed=5, relabel=[third])
    known = cluster_clients(clients[:20])
    joined, _ = assign(known, clients[:20], [*clients[20:], *odd])
    assert joined.labels[20:].tolist() == [0, 1, 2, 2]
    assert joined.proximity.shape == joined.distances().shape == (24, 24)


def test_a_threshold_or_another_linkage_compares_inputs():
    clients = federation(10, equal, relabel=[IDENTITY, SHIFTED])
    assert cluster_clients(clients, threshold=5.0).classes is None
    assert cluster_clients(clients, linkage="complete").classes is None
    with pytest.raises(ValueError, match="average linkage"):
        cluster_clients(clients, compare="classes", threshold=5.0)
    with pytest.raises(ValueError, match="needs the labels"):
        cluster_clients([ClientSignature(c.basis, c.split_half_angles) for c in clients], compare="classes")


def test_a_number_of_clusters_is_given():
    clients = federation(20, equal, relabel=[IDENTITY, SHIFTED])
    found = cluster_clients(clients, n_clusters=2)
    assert adjusted_rand_index(found.labels, np.arange(20) % 2) == 1
    assert found.evidence["finding"] == "given"


def test_a_number_of_clusters_without_a_chain_of_shared_classes_is_cut_by_inputs():
    """No dendrogram of classes connects the two groups; a client without a class is no group."""
    clients = federation(8, equal, relabel=[IDENTITY, IDENTITY + 10])
    found = cluster_clients(clients, n_clusters=2)
    assert (found.classes, found.labels.max()) == (None, 1)
    small = client(*samples(np.random.default_rng(1), [2] * CLASSES))
    assert cluster_clients([*clients[::2], small], n_clusters=2).classes is not None


def test_pairs_are_counted_as_they_were_compared():
    """A labelled client without evidence is compared with nobody; compare = "classes" never asks inputs."""
    small = client(*samples(np.random.default_rng(1), [2] * CLASSES))
    found = cluster_clients([*federation(6, equal), small])
    assert found.evidence["pairs"] == {"classes": 15, "inputs": 0, "none": 6}
    assert "no class in common" not in found.evidence["reasons"]
    apart = cluster_clients(federation(6, equal, relabel=[IDENTITY, IDENTITY + 10]), compare="classes")
    assert apart.evidence["pairs"] == {"classes": 6, "inputs": 0, "none": 9}
    assert apart.evidence["compare"] == "classes"


@pytest.mark.parametrize("how", [{"compare": "classes"}, {"n_clusters": 2}], ids=str)
def test_newcomers_join_where_some_were_not_comparable_and_inputs_decide_nothing(how):
    small = client(*samples(np.random.default_rng(1), [2] * CLASSES))
    clients = [*federation(8, equal, relabel=[IDENTITY, SHIFTED]), small]
    known = cluster_clients(clients, **how)
    joined, _ = assign(known, clients, federation(2, equal, seed=5, relabel=[SHIFTED]))
    assert joined.labels[8:].tolist() == [-1, known.labels[1], known.labels[1]]
    assert evidence_of(joined).compare == "classes"


def test_names_of_classes_and_order_of_clients_do_not_matter():
    clients = federation(12, skewed, relabel=[IDENTITY, SHIFTED])
    order = np.random.default_rng(3).permutation(12)
    plain, shuffled = cluster_clients(clients), cluster_clients([clients[i] for i in order])
    assert adjusted_rand_index(plain.labels[order], shuffled.labels) == 1


CLAIMS = {
    "huge noise": lambda own: replace(own, split_half_angles=np.full_like(own.split_half_angles, 59.0)),
    "no noise": lambda own: replace(own, split_half_angles=np.zeros_like(own.split_half_angles)),
    "noise of 0 or 90 degrees": lambda own: replace(
        own, split_half_angles=np.where(np.arange(SPLITS) % 2, 90.0, np.zeros_like(own.split_half_angles))
    ),
    "many samples": lambda own: replace(own, counts=np.full_like(own.counts, 10**9)),
    "few samples": lambda own: replace(own, counts=np.full_like(own.counts, 4)),
    "all the same direction": lambda own: replace(own, directions=np.tile(own.directions[:, :, :1], CLASSES)),
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("relabel", [[IDENTITY, SHIFTED], [IDENTITY]], ids=["two clusters", "one"])
def test_whatever_one_client_claims_others_have_the_same_clusters(claim, relabel):
    clients = [c.classes for c in federation(11, equal, relabel=relabel)]
    found = cluster_classes([CLAIMS[claim](clients[0]), *clients[1:]], 0.001)
    assert adjusted_rand_index(found.labels[1:], np.arange(1, 11) % len(relabel)) == 1


def test_weighted_linkage_with_equal_weights_is_average_linkage_of_squares():
    rng = np.random.default_rng(0)
    for n in (2, 3, 10, 40):
        squares = rng.random((n, n)) + 0.5
        squares = np.triu(squares, 1) + np.triu(squares, 1).T
        weights = 1.0 - np.eye(n)
        tree = weighted_merges(ClassPairs(squares, weights, weights))
        oracle = linkage(squares[np.triu_indices(n, 1)], "average")
        np.testing.assert_allclose(tree[:, 2] ** 2, oracle[:, 2])
        np.testing.assert_array_equal(tree[:, [0, 1, 3]], oracle[:, [0, 1, 3]])


def test_pairs_without_evidence_do_not_change_the_dendrogram():
    """Clients 0 and 1 are at 1 and 2 of client 2; what would be said of the pair 0, 1 has no weight.

    Merges: 0 with 2 at 1, then 1 with both at the distance of its only known pair, 2.
    """
    squares = np.array([[0, 99, 1], [99, 0, 4], [1, 4, 0]], dtype=float)
    weights = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=float)
    tree = weighted_merges(ClassPairs(squares * (weights > 0), weights, weights))
    np.testing.assert_array_equal(tree, [[0, 2, 1, 2], [1, 3, 2, 3]])


def test_simulated_federations_are_merged_as_real_ones():
    variances = np.random.default_rng(1).random((24, 3, 1)).astype(np.float32) + 0.5
    variances[0, 1:] = np.inf
    squares, weights = _null_sums(variances, np.full((3, 1), 5.0), 4, np.random.default_rng(2))
    off = np.where(np.eye(24, dtype=bool), 0.0, 1.0)
    highest_merges, highest_contrasts = _heights(squares.copy(), weights)
    for one in range(4):
        pairs = ClassPairs(squares[one] * off, weights * off, weights * off)
        tree = weighted_merges(pairs)
        np.testing.assert_allclose(highest_merges[one], highest(tree, 24), rtol=1e-4)
        assert highest_contrasts[one, 0] == pytest.approx(merge_contrasts(pairs, tree).max(), rel=1e-4)
    assert highest_contrasts.any()


def test_a_contrast_is_the_height_over_the_distances_inside_both_groups():
    """Four clients at distance 1 and four at distance 2 from each other, 3 between the groups.

    Inside, Σ squares is 12 · 1 + 12 · 4 = 60 over 24 ordered pairs, so the mean is 2.5 and the contrast 3 / √2.5.
    """
    group = np.arange(8) // 4
    squares = np.where(np.equal.outer(group, group), np.array([1.0, 4.0])[group][:, None], 9.0)
    np.fill_diagonal(squares, 0.0)
    ones = 1.0 - np.eye(8)
    found = merge_contrasts(pairs := ClassPairs(squares, ones, ones), weighted_merges(pairs))
    np.testing.assert_allclose(found, [0, 0, 0, 0, 0, 0, 3 / np.sqrt(2.5)])
    fewer = pairs.subset(np.arange(7))
    assert not merge_contrasts(fewer, weighted_merges(fewer)).any()  # three clients are no group


@pytest.mark.parametrize("seed", range(8))
def test_groups_without_evidence_inside_have_no_contrast(seed):
    """Two groups whose members are compared only with the other group, by unequal evidence: sums round."""
    apart = np.not_equal.outer(np.arange(40) % 2, np.arange(40) % 2)
    weights = apart * (drawn := np.random.default_rng(seed).random((40, 40)) + 0.5) * drawn.T
    pairs = ClassPairs(3 * weights, weights, weights)
    tree = weighted_merges(ClassPairs(1.0 * apart, np.ones((40, 40)), np.ones((40, 40))))  # even and odd clients
    assert not merge_contrasts(pairs, tree).any()


def test_large_groups_are_found_by_their_contrast_where_noise_is_overstated():
    other = MEANS + 0.25 * np.random.default_rng(9).standard_normal(MEANS.shape)
    clients = [c.classes for c in federation(40, equal, means=[MEANS, other])]
    overstated = [replace(own, split_half_angles=1.3 * own.split_half_angles) for own in clients]
    found = cluster_classes(overstated, 0.001)
    assert found.heights[0] * np.sqrt(found.calibration) < found.limits.min()  # as measured with that noise
    assert adjusted_rand_index(found.labels, np.arange(40) % 2) == 1


def test_classes_that_are_noisy_are_not_hidden_by_others():
    """The first two classes are swapped; the others have a hundredth of their variance, and so all the evidence."""
    swapped = np.array([1, 0, *range(2, CLASSES)])
    clients = []
    for i in range(8):
        x, y = samples(np.random.default_rng(i), [30] * CLASSES)
        x = MEANS[y] + (x - MEANS[y]) * np.where(y < 2, 3.0, 0.1)[:, None]
        clients.append(client(x, y if i % 2 else swapped[y]).classes)
    noise = class_noise(clients)
    by_evidence, equally = (compare_classes(clients, own).ratios()[0, 1] for own in (noise, noise.equally()))
    assert equally > 2 * by_evidence
    assert adjusted_rand_index(cluster_classes(clients, 0.001).labels, np.arange(8) % 2) == 1


@pytest.mark.parametrize("factor", [0.5, 2.0, 8.0])
def test_contrasts_do_not_depend_on_how_well_the_noise_is_known(factor):
    clients = [c.classes for c in federation(20, equal, relabel=[IDENTITY, SHIFTED])]
    noise = class_noise(clients)
    pairs = compare_classes(clients, noise)
    tree, other = weighted_merges(pairs), weighted_merges(pairs.rescaled(factor))
    np.testing.assert_allclose(merge_contrasts(pairs.rescaled(factor), other), merge_contrasts(pairs, tree))


@pytest.mark.parametrize("seed", range(6))
def test_a_class_whose_noise_has_one_dimension_separates_nobody(seed: int) -> None:
    """As that of handwritten ones, which vary in their slant: chance pulls clients apart further than in many."""
    rng = np.random.default_rng(seed)
    means, slant = rng.normal(size=(8, 60)), rng.normal(size=60)
    clients = []
    for i in range(40):
        classes = rng.choice(8, 2, replace=False) if i % 3 else np.array([0, rng.integers(1, 8)])
        noise = [
            0.3 * slant * rng.normal(size=(24, 1)) + 0.05 * rng.normal(size=(24, 60))
            if c == 0
            else 2 * rng.normal(size=(24, 60))
            for c in classes
        ]
        x = np.concatenate([means[c] + own for c, own in zip(classes, noise, strict=True)])
        clients.append(class_signatures(x, np.repeat(classes, 24)))
    assert cluster_classes(clients, 0.001).labels.max() == 0


def test_limits_from_a_panel_of_clients_are_not_lower_than_those_of_all(monkeypatch):
    variances = np.exp(np.random.default_rng(0).uniform(-1, 1, (60, 1, 1))) * np.ones((60, 3, 1))
    noise = ClassNoise(
        names=("a", "b", "c"),
        variances=np.concatenate([variances, np.full_like(variances, np.inf)], axis=2),
        typical=np.ones((3, 2)),
        excess=np.ones((3, 2)),
        reference=np.ones((3, 2)),
        spread=np.tile([6.0, 1.0], (3, 1)),
    )
    of_all, _ = class_null.class_limits(noise, 0.001, np.random.default_rng(1))
    monkeypatch.setattr(class_null, "PANEL", 20)
    of_panel, _ = class_null.class_limits(noise, 0.001, np.random.default_rng(1))
    assert (of_panel.heights >= 0.98 * of_all.heights).all()  # 200 simulations know a limit to about two per cent
    assert of_panel.heights[0] < 1.1 * of_all.heights[0]
    assert (of_panel.contrasts >= 0.98 * of_all.contrasts).all()


def test_the_sum_of_very_many_classes_is_simulated_with_its_mean_and_spread(monkeypatch):
    """60 classes one by one, and as 24 and a normal sum: the same weights, means and standard deviations."""
    variances = np.random.default_rng(1).random((6, 60, 1)).astype(np.float32) + 0.5
    variances[0, 20:] = np.inf
    made = {}
    for classes in (24, 60):
        monkeypatch.setattr(class_null, "CLASSES", classes)
        squares, weights = _null_sums(variances, np.full((60, 1), 12.0), 4000, np.random.default_rng(2))
        made[classes] = weights, squares.mean(axis=0), squares.std(axis=0)
    upper = np.triu_indices(6, 1)
    for few, all_of_them, within in zip(made[24], made[60], (1e-5, 0.01, 0.06), strict=True):
        np.testing.assert_allclose(few[upper], all_of_them[upper], rtol=within)


def test_distances_within_one_distribution_are_noise():
    """T has mean 1: over federations of one distribution and unequal sizes, within five per cent."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(5):
        made = [class_signatures(*samples(rng, rng.integers(8, 60, CLASSES))) for _ in range(20)]
        pairs = compare_classes(made, class_noise(made))
        found.append(pairs.squares.sum() / pairs.weights.sum())
    assert np.mean(found) == pytest.approx(1, abs=0.05)


def degenerate(rng, n, sizes, turned=False):
    """Clients of ten classes whose second direction is any of three equally strong ones; turned: or one of two."""
    plane = np.linalg.qr(np.random.default_rng(1).standard_normal((FEATURES, 3)))[0]
    means = 3 * np.random.default_rng(2).standard_normal((10, FEATURES))
    made = []
    for i in range(n):
        y = np.repeat(np.arange(10), sizes[i])
        strength = (4.0, 2.0, 2.0) if i % 2 else (2.0, 4.0, 2.0)
        own = rng.standard_normal((len(y), 3)) * (strength if turned else (3.0, 3.0, 3.0))
        made.append(class_signatures(means[y] + own @ plane.T + 0.7 * rng.standard_normal((len(y), FEATURES)), y))
    return made


def test_directions_that_samples_do_not_determine_separate_nobody():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        assert cluster_classes(degenerate(rng, 30, rng.integers(15, 150, 30)), 0.001).labels.max() == 0


def test_weakly_determined_directions_are_compared_between_many_clients():
    """Halves of twelve samples differ by more than 45 degrees; in eight clients nothing says how noisy that is."""
    many, few = (degenerate(np.random.default_rng(0), n, [12] * n, turned=True) for n in (40, 8))
    assert np.isinf(class_noise(few).variances[:, :, 1]).all()
    assert np.isfinite(class_noise(many).variances[:, :, 1]).mean() > 0.5
    found = cluster_classes(many, 0.001)
    assert found.weakly
    assert adjusted_rand_index(found.labels, np.arange(40) % 2) == 1


def test_one_extreme_sample_is_not_the_direction_of_its_class():
    x, y = samples(np.random.default_rng(0), [20])
    plain = class_signatures(x, y).directions[0, :, 0]
    x[0] = 1e6 * np.eye(FEATURES)[0]
    assert abs(plain @ class_signatures(x, y).directions[0, :, 0]) > 0.97


def test_the_error_rate_is_guaranteed_but_for_stated_doubts():
    same = cluster_clients(federation(12, equal))
    assert same.evidence["guaranteed"] is True
    assert same.evidence["not_guaranteed_because"] is None
    assert "not guaranteed" not in same.evidence["reasons"]
    apart = cluster_clients(federation(6, equal, relabel=[IDENTITY, IDENTITY + 10]), compare="classes")
    assert "2 groups of clients, which have no class in common" in apart.evidence["not_guaranteed_because"]
    assert apart.evidence["finding"] == "undetermined"
    clients = federation(12, equal)
    for i, one in enumerate(clients):  # everybody claims a fifth of its noise
        claimed = replace(one.classes, split_half_angles=one.classes.split_half_angles / 5)
        clients[i] = replace(one, classes=claimed)
    noisy = cluster_clients(clients)
    assert noisy.labels.max() > 0 or "times the noise, which may be too low" in noisy.evidence["not_guaranteed_because"]


def test_groups_that_only_noise_separates_are_not_split():
    """Three of five clients share a class; the two others share another one, and the third class is noise for all."""
    rng, noise = np.random.default_rng(0), np.random.default_rng(1).standard_normal
    clients = []
    for i in range(5):
        x, y = samples(rng, [30 if i < 3 else 0, 0 if i < 3 else 30])
        clients.append(client(np.vstack([x, noise((20, FEATURES))]), np.concatenate([y, np.full(20, 2)])))
    found = cluster_clients(clients, "classes")
    assert found.labels.tolist() == [0, 0, 0, -1, -1]
    assert "too noisy" in found.evidence["not_judged"]["3"]
    assert cluster_clients(clients).evidence["pairs"] == {"classes": 4, "inputs": 6, "none": 0}


def test_nobody_who_can_be_compared_is_undetermined():
    found = cluster_clients([client(*samples(np.random.default_rng(i), [3] * CLASSES)) for i in range(3)], "classes")
    assert found.labels.tolist() == [-1] * 3
    assert found.evidence["finding"] == "undetermined"


def test_the_spectrum_of_noise_has_the_dimensions_asked_for():
    for dimensions in (2.0, 13.0, 60.0):
        shares = noise_spectrum(dimensions)
        assert shares.sum() ** 2 / (shares**2).sum() == pytest.approx(dimensions, rel=0.05)


def test_reassigning_finds_the_clusters_of_misplaced_clients():
    clients = [c.classes for c in federation(20, equal, relabel=[IDENTITY, SHIFTED])]
    found = cluster_classes(clients, 0.001)
    wrong = found.labels.copy()
    wrong[:3] = 1 - wrong[:3]
    np.testing.assert_array_equal(reassign(found.pairs, wrong), found.labels)


def test_signatures_of_classes_survive_the_wire():
    made = class_signatures(*samples(np.random.default_rng(0), [5, 0, 9, 4]))
    sent = from_messages(as_messages(made, made.directions.shape[1]))
    assert sent is not None
    assert sent.names == made.names == ("0", "2", "3")
    np.testing.assert_allclose(sent.directions, made.directions, atol=1e-3)
    assert sent.split_half_angles.shape == (2, 3, SPLITS)


def test_blank_classes_and_constant_samples_are_no_error():
    x = np.vstack([np.zeros((5, 6)), np.ones((5, 6)), np.random.default_rng(0).random((5, 6))])
    made = class_signatures(x, np.repeat([0, 1, 2], 5))
    assert made.names == ("1", "2")
    assert np.isfinite(made.split_half_angles).all()
    assert made.split_half_angles[0, 0].max() < 1e-3
