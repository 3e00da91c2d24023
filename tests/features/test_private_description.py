import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.features import describe_file, init_schema
from pacfl.features.private_description import _Counting, _octave, describe_privately
from pacfl.privacy import gaussian_sigma, seeded

N = 20_000


def cells(n: int = N) -> dict[str, list[str]]:
    rng = np.random.default_rng(0)
    return {
        "age": [f"{v:.0f}" for v in rng.normal(50, 10, n)],
        "sex": rng.choice(["f", "m"], n).tolist(),
        "temperature": ["" if i % 10 == 0 else f"{v:.1f}" for i, v in enumerate(rng.normal(36.6, 0.5, n))],
        "loss": [f"{v:.3f}" for v in rng.normal(-2000, 500, n)],
        "visit": ["2024-01-02"] * n,
        "name": [f"somebody {i}" for i in range(n)],
        "ill": rng.choice(["1", "2"], n).tolist(),
    }


def test_a_private_description_is_close_to_the_table() -> None:
    found = describe_privately(cells(), epsilon=2.0, delta=1e-6, labels="ill", noise=seeded(np.random.default_rng(1)))
    by_name = {column.name: column for column in found.columns}
    assert found.rows == pytest.approx(N, rel=0.02)
    kinds = {name: column.type for name, column in by_name.items()}
    assert kinds == {
        **dict.fromkeys(("age", "temperature", "loss", "ill"), "number"),
        "sex": "category",
        "visit": "date",
        "name": "text",
    }
    for name, centre, scale in (("age", 50, 10), ("temperature", 36.6, 0.5), ("loss", -2000, 500)):
        assert by_name[name].centre == pytest.approx(centre, abs=0.3 * scale), name
        assert by_name[name].scale == pytest.approx(scale, rel=0.6), name
    assert by_name["temperature"].missing == pytest.approx(0.1, abs=0.02)
    assert set(by_name["sex"].counts) == {"f", "m"}
    assert set(by_name["ill"].counts) == {"1", "2"}
    assert (found.epsilon, found.delta) == (2.0, 1e-6)


def test_one_row_moves_the_counts_by_no_more_than_the_noise_is_calibrated_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """√(2 contributions) in both counts: 7 columns, and the labels once more."""
    counted: list[list[int]] = []
    sigmas = set()

    def noisy(self: _Counting, counts: list[int]) -> NDArray[np.float64]:
        counted.append(list(counts))
        sigmas.add(self.sigma)
        return np.asarray(counts, dtype=np.float64)

    monkeypatch.setattr(_Counting, "noisy", noisy)
    table = cells()
    options = {"epsilon": 2.0, "delta": 1e-6}
    describe_privately(table, labels="ill", **options)
    before, counted[:] = list(counted), []
    describe_privately({name: [*column, column[0]] for name, column in table.items()}, labels="ill", **options)
    assert [len(one) for one in before] == [len(one) for one in counted]
    squares = sum((a - b) ** 2 for old, new in zip(before, counted, strict=True) for a, b in zip(old, new, strict=True))
    assert 8 < squares <= 2 * 8
    assert sigmas == {gaussian_sigma(2.0, 5e-7, math.sqrt(16))}


def test_rare_texts_are_never_named() -> None:
    """A text of one row exceeds the threshold with probability delta / 2 at most: never in a thousand tables."""
    table = {"x": ["common"] * 400 + ["unique"]}
    for seed in range(1000):
        found = describe_privately(table, epsilon=3.0, delta=1e-6, noise=seeded(np.random.default_rng(seed)))
        assert "unique" not in found.columns[0].counts


def test_a_table_too_small_for_its_noise_is_refused_with_what_would_help() -> None:
    with pytest.raises(DataError, match=r"too few rows for epsilon 0\.5 with 7 columns.*--epsilon.*--drop"):
        describe_privately(cells(300), epsilon=0.5, delta=1e-5, noise=seeded(np.random.default_rng(0)))


@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, 1.99, 2.0, -3.5, 1e30, -1e-5])
def test_numbers_are_in_their_octave(value: float) -> None:
    from pacfl.features.private_description import _bounds

    low, high = _bounds(_octave(value))
    assert low <= value <= high or abs(value) < 2**-30 or abs(value) > 2**60


def test_private_files_state_their_guarantee_and_make_a_schema(tmp_path: Path) -> None:
    table = cells(4000)
    rows = [";".join(row) for row in zip(*table.values(), strict=True)]
    (tmp_path / "a.csv").write_text("\n".join([";".join(table), *rows]).replace(".", ","))
    describe_file(tmp_path / "a.csv", tmp_path / "a.json", labels="ill", drop=["name", "visit"], epsilon=4.0)
    shared = json.loads((tmp_path / "a.json").read_text())
    assert (shared["epsilon"], shared["delta"]) == (4.0, 1e-5)
    made = init_schema([tmp_path / "a.json"])
    assert {"age", "temperature", "sex = f", "sex = m"} <= set(made.features)
    assert made.labels is not None
    assert made.labels.classes == ("1", "2")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"epsilon": 1.0, "group": "sex"}, "--group: a private description hides single rows"),
        ({"epsilon": 1.0, "minimum_count": 9}, "--minimum-count: "),
        ({"delta": 1e-5}, "give --epsilon too"),
        ({"epsilon": -1.0}, "epsilon must be a positive number"),
    ],
)
def test_what_cannot_be_private_is_refused(tmp_path: Path, options: dict[str, float], why: str) -> None:
    (tmp_path / "a.csv").write_text("age,sex\n1,f\n")
    with pytest.raises(DataError, match=why):
        describe_file(tmp_path / "a.csv", **options)  # type: ignore[arg-type]
