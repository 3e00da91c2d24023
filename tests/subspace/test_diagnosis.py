"""Laws of the diagnosis: which kind of difference there is, and what carries it."""

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from pacfl.subspace import ClientSignature, class_signatures, cluster_clients, signature
from pacfl.subspace import split_half_angles as halves_of
from pacfl.subspace.classes import FEWEST
from pacfl.subspace.diagnosis import KINDS, diagnose
from pacfl.subspace.explanation import explain
from pacfl.subspace.pairs import class_noise
from pacfl.subspace.pooled import match_classes, mean_direction, pool
from pacfl.subspace.shares import count_limits, share_spread, size_spread

FEATURES, CLASSES = 12, 4
MEANS = 3 * np.random.default_rng(7).standard_normal((CLASSES, FEATURES))
SHIFTED = (np.arange(CLASSES) + 1) % CLASSES
SWAPPED = np.array([1, 0, 2, 3])
NAMES = [f"column {j}" for j in range(FEATURES - 1)] + ["creatinine"]


def federation(n=10, counts=None, relabel=None, change=None, seed=0):
    """n clients; those of odd number with other labels, or their inputs changed."""
    rng = np.random.default_rng(seed)
    clients = []
    for i in range(n):
        y = np.repeat(np.arange(CLASSES), [30] * CLASSES if counts is None else counts(i))
        x = MEANS[y] + rng.standard_normal((len(y), FEATURES))
        if i % 2:
            x = x if change is None else change(x)
            y = y if relabel is None else relabel[y]
        angles = halves_of(x, 3, measures=["smallest"])["smallest"]
        clients.append(ClientSignature(signature(x, 3), angles, class_signatures(x, y)))
    return clients


def in_milligrams(x):
    return x * np.where(np.arange(FEATURES) == FEATURES - 1, 20.0, 1.0)


def turned(x):
    return x[:, ::-1]


def skewed(i):
    counts = [2] * CLASSES
    counts[i % CLASSES] = counts[(i + 1) % CLASSES] = 50
    return counts


def unequal(i):
    return [10 if i % 2 else 100] * CLASSES


def diagnosed(clients, **settings):
    return diagnose(clients, cluster_clients(clients, **settings))


CASES = {
    "none": ({}, "together"),
    "inputs": ({"change": turned}, "apart"),
    "labels": ({"counts": skewed}, "label-prior"),
    "concept": ({"relabel": SHIFTED}, "apart"),
    "quantity": ({"counts": unequal}, "together"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_named_and_has_its_recommendation(kind):
    made, recommendation = CASES[kind]
    found = diagnosed(federation(**made))
    assert (found.kind, found.recommendation) == (kind, recommendation)
    assert found.differences[0].kind == kind
    assert (found.size > 1) == (kind != "none")
    assert json.loads(json.dumps(asdict(found)))["kind"] == kind


def test_a_swap_of_two_classes_is_a_concept_and_names_them_alone():
    found = diagnosed(federation(relabel=SWAPPED))
    assert found.kind == "concept"
    (pair,) = found.pairs
    assert sorted((one.a, one.b) for one in pair.relabelled) == [("0", "1"), ("1", "0")]
    assert all(one.left < 2 < one.size for one in pair.relabelled)
    assert "hat cluster 0 labels 0, cluster 1 labels 1" in pair.differences[0].words


def test_all_differences_are_listed_beside_the_main_one():
    """Other labels, other class shares and unequal sizes at once."""
    found = diagnosed(
        federation(24, counts=lambda i: [c * (1 if i % 3 else 9) for c in skewed(i // 2)], relabel=SHIFTED)
    )
    assert [one.kind for one in found.differences] == ["concept", "labels", "quantity"]
    assert found.within_clusters == "label-prior"


def test_names_of_classes_and_order_of_clients_do_not_matter():
    clients = federation(relabel=SWAPPED)
    other = {"0": "zebra", "1": "ant", "2": "cow", "3": "bee"}
    renamed = [rename(client, other) for client in clients]
    plain, changed = diagnosed(clients), diagnosed(renamed[::-1])
    assert plain.kind == changed.kind
    assert changed.size == pytest.approx(plain.size, rel=1e-6)
    assert {frozenset((other[one.a], other[one.b])) for one in plain.pairs[0].relabelled} == {
        frozenset((one.a, one.b)) for one in changed.pairs[0].relabelled
    }


def rename(client, names):
    own = client.classes
    called = [names[name] for name in own.names]
    order = np.argsort(called)
    return replace(
        client,
        classes=replace(
            own,
            names=tuple(called[k] for k in order),
            counts=own.counts[order],
            directions=own.directions[:, :, order],
            split_half_angles=own.split_half_angles[:, order],
        ),
    )


def test_the_matching_is_symmetric_also_where_classes_are_missing():
    clients = [c.classes for c in federation(8, counts=lambda i: [40, 40, 40 * (i % 2), 40], relabel=SHIFTED)]
    noise = class_noise(clients)
    a, b = (pool(clients, noise, np.arange(first, 8, 2)) for first in (0, 1))
    there, back = match_classes(a, b, noise.dimensions), match_classes(b, a, noise.dimensions)
    assert there.explained == pytest.approx(back.explained)
    assert there.difference == pytest.approx(back.difference)
    assert {(one.a, one.b) for one in there.relabelled} == {(one.b, one.a) for one in back.relabelled}


def test_the_sign_of_directions_does_not_matter():
    """The mean of u, -u and u is u."""
    u = np.array([0.6, 0.8])
    for signs in ([1, 1, 1], [1, -1, 1], [-1, -1, 1]):
        assert abs(mean_direction(np.outer(signs, u), np.array([1.0, 2.0, 1.5])) @ u) == pytest.approx(1)


def test_without_labels_only_inputs_are_seen_and_it_says_so():
    for made, kind in (({}, "none"), ({"relabel": SHIFTED}, "none"), ({"change": turned}, "inputs")):
        clients = [replace(client, classes=None) for client in federation(**made)]
        found = diagnosed(clients)
        assert found.kind == kind
        assert "labels are needed" in found.words


def test_clusters_by_inputs_that_differ_in_class_shares_alone_are_labels():
    clients = federation(24, counts=skewed)
    clustering = cluster_clients(clients, compare="inputs")
    assert clustering.labels.max() > 0
    found = diagnose(clients, clustering)
    assert found.kind == "labels"
    assert {pair.kind for pair in found.pairs} <= {"labels", "none"}


def test_equal_class_shares_are_found_to_differ_no_more_often_than_the_error_rate():
    """Small counts are unknown in all of them, and half of all in the last. 120 trials at 0.1 %: one may be found."""
    rng = np.random.default_rng(1)
    found = []
    for n, size, classes in ((4, 400, 3), (20, 100, 5), (30, 40, 10)):
        for trial in range(40):
            table = rng.multinomial(size, np.full(classes, 1 / classes), n).astype(float)
            found.append(share_spread([np.where(table < FEWEST, 0, table)], seed=trial))
    assert sum(one.beyond_chance for one in found) <= 1
    assert np.mean([one.size for one in found]) == pytest.approx(1, abs=0.06)


def test_clients_of_so_few_samples_that_most_counts_are_unknown_have_equal_shares():
    """Two samples expected in each class: four of five counts are unknown, and one client of five sends none."""
    rng = np.random.default_rng(3)
    found = []
    for trial in range(40):
        table = rng.multinomial(20, np.full(10, 0.1), 40).astype(float)
        sent = np.where(table < FEWEST, 0, table)
        found += [share_spread([sent], seed=trial), share_spread([sent], [np.full(40, 20.0)], trial)]
    assert sum(one.beyond_chance for one in found) <= 1
    assert np.mean([one.size for one in found]) == pytest.approx(1, abs=0.03)


def test_a_minimum_count_is_no_difference_of_shares():
    """About 22 samples in each of ten classes, of which those with fewer than 20 are left out."""
    rng = np.random.default_rng(2)
    found = []
    for trial in range(40):
        table = rng.multinomial(220, np.full(10, 0.1), 10).astype(float)
        sent = np.where(table < 20, 0, table)
        sizes = np.full(10, 220.0)
        limits = count_limits(sent, sizes)
        assert (table < limits[:, None])[sent == 0].all()
        found.append(share_spread([sent], [sizes], trial))
    assert sum(one.beyond_chance for one in found) <= 1
    assert share_spread([sent]).beyond_chance  # without the sizes, classes with fewer than 4 are all that is missing
    skewed = np.array([[50.0, 50.0, 0.0, 0.0], [0.0, 0.0, 50.0, 50.0]] * 5)
    assert share_spread([skewed], [np.full(10, 100.0)]).beyond_chance


def test_class_shares_that_differ_are_found():
    assert share_spread([np.array([[30.0, 10.0], [10.0, 30.0]])]).beyond_chance
    assert not share_spread([np.array([[30.0, 10.0]]), np.array([[10.0, 30.0]])]).beyond_chance  # one client each


def test_sizes_are_very_unequal_below_three_quarters_of_effective_clients():
    """1, 3: (1 + 3)² / (1 + 9) = 1.6 of 2 clients, 0.8. 1, 10: 121 / 101 = 1.2 of 2, 0.6."""
    mild, n_mild = size_spread(np.array([100.0, 300.0]))
    strong, n_strong = size_spread(np.array([100.0, 1000.0]))
    assert (n_mild, n_strong) == pytest.approx((1.6, 121 / 101))
    assert (mild.beyond_chance, strong.beyond_chance) == (False, True)


def test_given_sizes_decide_on_the_quantity():
    clients = federation(4)
    clustering = cluster_clients(clients)
    assert diagnose(clients, clustering).kind == "none"
    assert diagnose(clients, clustering, sizes=[120] * 4).kind == "none"
    assert "quantity" in [one.kind for one in diagnose(clients, clustering, sizes=[120, 2000, 120, 120]).differences]
    with pytest.raises(ValueError, match="client 1 has 120 samples in its classes, and a size of 100"):
        diagnose(clients, clustering, sizes=[120, 100, 120, 120])
    with pytest.raises(ValueError, match="one number for each of 4 clients, got 3"):
        diagnose(clients, clustering, sizes=[1, 2, 3])
    with pytest.raises(ValueError, match="clustering has 4 clients, 3 were given"):
        diagnose(clients[:3], clustering)


@pytest.mark.parametrize("between", ["clients", "clusters"])
def test_the_feature_that_differs_is_named(between):
    clients = federation(change=in_milligrams)
    found = explain(clients, cluster_clients(clients), 0, 1, between, feature_names=NAMES)
    assert (found.kind, found.compared) == ("inputs", "classes")
    assert "creatinine (different unit?" in found.words
    assert found.contributions.sum() == pytest.approx(1)


@pytest.mark.parametrize("n", [2, 10])
def test_the_feature_that_differs_is_named_without_labels(n):
    """One direction each, along the mean (1, ..., 1), or with 6 in the last place."""
    rng = np.random.default_rng(0)
    clients = []
    for i in range(n):
        x = 1 + 0.5 * rng.standard_normal((100, FEATURES)) + (i % 2) * 5.0 * (np.arange(FEATURES) == FEATURES - 1)
        clients.append(ClientSignature(signature(x, 1), halves_of(x, 1, measures=["smallest"])["smallest"]))
    found = explain(clients, cluster_clients(clients), 0, 1, feature_names=NAMES)
    assert (found.kind, found.compared) == ("inputs", "inputs")
    assert found.features[0].name == "creatinine"
    assert found.features[0].above_noise > 3
    assert "creatinine" in found.words
    assert "labels are needed" in found.words


def test_directions_of_noise_carry_no_difference():
    """Samples vary most in features 0 and 1, or 5 and 6; the third direction of each client is noise."""
    rng = np.random.default_rng(0)
    clients = []
    for i in range(8):
        plane = np.eye(FEATURES)[[5, 6] if i % 2 else [0, 1]]
        x = rng.standard_normal((200, FEATURES)) + 5 * rng.standard_normal((200, 2)) @ plane
        clients.append(ClientSignature(signature(x, 3), halves_of(x, 3, measures=["smallest"])["smallest"]))
    for between in ("clients", "clusters"):
        found = explain(clients, cluster_clients(clients), 0, 1, between)
        assert {one.index for one in found.features[:4]} == {0, 1, 5, 6}
        assert sum(one.share for one in found.features[:4]) > 0.9


def test_a_unit_is_found_with_its_factor():
    clients = federation(change=in_milligrams)
    found = explain(clients, cluster_clients(clients), 1, 0, feature_names=NAMES)
    (factor,) = [feature.factor for feature in found.features if feature.factor is not None]
    assert 10 < factor < 40  # made as 20


def test_an_explanation_names_what_is_labelled_otherwise():
    clients = federation(relabel=SWAPPED)
    words = {"0": "cat", "1": "dog"}
    found = explain(clients, cluster_clients(clients), 0, 1, class_names=words)
    assert found.kind == "concept"
    assert "what client 0 labels cat, client 1 labels dog" in found.words.lower()
    assert {one.name for one in found.classes[:2]} == {"cat", "dog"}
    assert found.classes[1].size > 3 * found.classes[2].size


def test_an_explanation_is_symmetric_but_for_names():
    clients = federation(change=in_milligrams)
    clustering = cluster_clients(clients)
    there, back = explain(clients, clustering, 0, 1), explain(clients, clustering, 1, 0)
    assert there.size == pytest.approx(back.size)
    np.testing.assert_allclose(there.contributions, back.contributions, atol=1e-9)
    assert {(one.name, round(one.size, 6)) for one in there.classes} == {
        (one.name, round(one.size, 6)) for one in back.classes
    }


def test_the_nearest_other_cluster_is_further_than_the_own():
    clients = federation(relabel=SHIFTED)
    clustering = cluster_clients(clients)
    near = explain(clients, clustering, 0, 2).nearest
    assert near.cluster == clustering.labels[1]
    assert near.own < 1.5 < near.distance


def test_clients_of_one_distribution_differ_by_noise():
    clients = federation()
    found = explain(clients, cluster_clients(clients), 0, 1, shape=(3, 4))
    assert found.kind == "none"
    assert found.nearest is None
    assert found.contributions.shape == found.above_noise.shape == (3, 4)
    assert np.sqrt(np.mean(found.above_noise**2)) == pytest.approx(1, abs=0.35)
    assert json.loads(json.dumps(found.as_json()))["kind"] == "none"


def test_what_cannot_be_explained_is_refused():
    clients = federation(4)
    clustering = cluster_clients(clients)
    for settings, message in (
        ({"b": 0}, "two different clients from 0 to 3"),
        ({"b": 4}, "two different clients from 0 to 3"),
        ({"b": 1, "between": "groups"}, "'clients' or 'clusters'"),
        ({"b": 1, "feature_names": ["a"]}, "each of 12 features, got 1"),
        ({"b": 1, "shape": (5, 5)}, "do not fit the shape"),
    ):
        with pytest.raises(ValueError, match=message):
            explain(clients, clustering, 0, **settings)


def test_the_example_of_the_page_prints_what_the_page_says():
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    quoted = re.findall(r"^> ?(.*)$", page, re.MULTILINE)
    with redirect_stdout(io.StringIO()) as printed:
        exec(example, {})
    assert printed.getvalue().split() == " ".join(quoted).split()


def test_clients_without_a_common_class_are_compared_by_inputs_and_it_says_so():
    clients = [
        rename(client, {str(c): f"{'ab'[i % 2]}{c}" for c in range(CLASSES)})
        for i, client in enumerate(federation(change=turned))
    ]
    (pair,) = diagnosed(clients).pairs
    assert pair.kind == "inputs"
    assert "share no class" in pair.differences[0].words
