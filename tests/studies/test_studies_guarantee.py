"""The study of the error rate: its rows, its populations and its shortcuts are what it says."""

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.subspace import class_clustering, null, threshold, together

screening = pytest.importorskip("studies.screening", reason="the studies are not part of a source distribution")
study = pytest.importorskip("studies.guarantee", reason="the studies are not part of a source distribution")
covering = pytest.importorskip("studies.covering")
populations = pytest.importorskip("studies.populations")

ROOT = Path(__file__).parents[2]
STORE = ROOT / "results" / "studies" / "guarantee.jsonl"

SMALL: dict[str, Any] = {
    "data": "power",
    "clients": 4,
    "rank": 2,
    "samples": 60,
    "features": 6,
    "measure": "smallest",
    "linkage": "average",
    "preprocess": "raw",
    "compare": "inputs",
    "classes": 1,
    "shares": "balanced",
    "sizes": "equal",
    "private": False,
}


def test_every_two_values_occur_together_or_a_rule_says_why_not() -> None:
    met = {pair for row in study.design() for pair in combinations(row.items(), 2)}
    for a, b in combinations(study.OPTIONS, 2):
        for left, right in product(study.OPTIONS[a], study.OPTIONS[b]):
            why = covering.refused_because({a: left, b: right}, study.RULES)
            assert (((a, left), (b, right)) in met) != (why is not None), (a, left, b, right)


def test_no_row_is_refused_and_none_is_there_twice() -> None:
    rows = study.design()
    assert all(covering.refused_because(row, study.RULES) is None for row in rows)
    assert len({json.dumps(row, sort_keys=True) for row in rows}) == len(rows)
    assert len({study.seed_of(row) for row in rows}) == len(rows)


def test_a_pair_that_no_row_can_have_is_named() -> None:
    rules = [({"a": [1], "c": [c]}, "never") for c in (1, 2)]
    with pytest.raises(ValueError, match="no row has"):
        covering.covering_rows({"a": (1, 2), "b": (1, 2), "c": (1, 2)}, rules, lambda _: 1.0)


@pytest.mark.parametrize("kind", populations.SIMULATED)
def test_clients_of_a_simulated_population_differ_only_by_chance(kind: str) -> None:
    drawn = populations.Population(kind, 7, 3)
    (x, labels), (other, others) = (drawn.draw(np.random.default_rng(seed), 4000, "long tail") for seed in (0, 1))
    assert x.shape == (4000, 7)
    assert np.bincount(labels) / 4000 == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.05)
    for c in range(3):
        own, same = x[labels == c], other[others == c]
        error = np.sqrt(own.var(axis=0) / len(own) + same.var(axis=0) / len(same))
        assert (np.abs(own.mean(axis=0) - same.mean(axis=0)) < 5 * error).all()


def test_images_are_rows_of_the_set_with_their_own_labels(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
    np.savez(tmp_path / "usps.npz", x_train=images, y_train=[0, 1, 2, 0, 1, 2])
    x, labels = populations.Population("usps", 4, 2, tmp_path).draw(np.random.default_rng(0), 50)
    rows = [sorted(row) for row in x.tolist()]
    for row, label in zip(rows, labels, strict=True):
        assert row in images[[label, label + 3]].reshape(2, 4).tolist()
    assert set(labels.tolist()) == {0, 1}


def test_only_federations_that_chance_could_split_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a low limit many federations are split: the same ones with and without the shortcut."""
    monkeypatch.setattr(null, "SIMULATIONS", 60)
    monkeypatch.setattr(study, "SIGNING", 1.0)
    simulate = threshold.null_limits

    def lower(*args: Any) -> Any:
        limits, height = simulate(*args)
        return limits * 0.5, height

    monkeypatch.setattr(threshold, "null_limits", lower)
    short = study.outcome(SMALL, None, 60)
    monkeypatch.setattr(screening, "FULL", 60)
    full = study.outcome(SMALL, None, 60)
    assert full["full"] == 60
    assert short["full"] < 60
    assert sum(full[claim]["split"] for claim in ("guaranteed", "not_guaranteed")) > 3, "or nothing is tested"
    for claim in ("guaranteed", "not_guaranteed"):
        assert short[claim] == full[claim]
    assert short["below"] == 0


def test_one_federation_can_be_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null, "SIMULATIONS", 30)
    monkeypatch.setattr(study, "SIGNING", 1.0)
    monkeypatch.setattr(class_clustering, "HALVES", 3)
    row = SMALL | {"compare": "classes", "classes": 2, "shares": "Dirichlet", "samples": 40, "clients": 3}
    seen: list[Any] = []
    found_in = study.found_in

    def watched(*args: Any) -> Any:
        seen.append(found_in(*args))
        return seen[-1]

    monkeypatch.setattr(study, "found_in", watched)
    study.outcome(row, None, 3)
    shown = study.show(row, 2, None)
    assert seen[2].compare == shown["evidence"]["compare"] == "classes"
    assert seen[2].not_judged == shown["labels"].count(-1)


def test_clusters_that_nothing_compares_are_no_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pairs of clients, each with a class of its own: two clusters, and no difference was measured."""
    monkeypatch.setattr(null, "SIMULATIONS", 30)
    row = SMALL | {"compare": "classes", "classes": 2, "clients": 4}
    rng = np.random.default_rng(0)
    samples = [3 * np.eye(4)[0] + rng.normal(size=(40, 4)) for _ in range(4)]
    clients = [
        together.ClientSignature(np.eye(4)[:, :1], np.ones(32), study.class_signatures(x, [name] * 40))
        for x, name in zip(samples, "aabb", strict=True)
    ]
    found = study.found_in(row, clients, np.zeros((4, 4)))
    assert found.apart
    assert not found.split
    same = [replace(c, classes=study.class_signatures(x, ["a"] * 40)) for c, x in zip(clients, samples, strict=True)]
    assert not study.found_in(row, same, np.zeros((4, 4))).apart


def test_bounds_are_exact() -> None:
    """None of n: the upper bound p has (1 - p)^n = 2.5 %."""
    assert study.bounds(0, 1000) == (0.0, pytest.approx(1 - 0.025**0.001))
    assert study.bounds(0, 0) == (0.0, 1.0)
    assert study.failing({"guaranteed": {"federations": 1000, "split": 6}})
    assert not study.failing({"guaranteed": {"federations": 1000, "split": 2}})


def test_a_stored_row_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = study.design()[0]
    counts = {"federations": 7, "split": 0}
    content = {"row": row, "guaranteed": counts, "not_guaranteed": counts, "refused": 3}
    store = tmp_path / "store.jsonl"
    store.write_text(json.dumps(content) + "\n")
    monkeypatch.setattr("sys.argv", ["guarantee", "--store", str(store), "--rows", "0"])
    study.main()
    printed = capsys.readouterr().out
    assert "| all | | 1 | 7 | 0 |" in printed
    assert "7 (3 refused)" in printed
    assert len(store.read_text().splitlines()) == 1


def test_the_page_has_the_tables_of_the_committed_outcomes() -> None:
    page = (ROOT / "docs" / "guarantee.md").read_text(encoding="utf-8")
    found = study.stored(STORE)
    assert "\n".join(study.summary(found)) in page
    assert "\n".join(study.table(found)) in page
