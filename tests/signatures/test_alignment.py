"""Columns of tables are compared by their names, in whatever order they come."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pacfl.cli import app
from pacfl.errors import DataError
from pacfl.features.reading import Reading, Samples
from pacfl.signatures.federation import federate, join
from pacfl.signatures.sigfile import SignatureFile
from pacfl.signatures.signing import sign

COLUMNS = ("age", "weight", "height", "pulse", "steps")
SCALES = (5.0, 3.0, 2.0, 1.0, 1.0)


def client(seed: int, columns: tuple[str, ...] | None = COLUMNS, labelled: bool = True) -> SignatureFile:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(80, 5)) * SCALES + 1, np.arange(80) % 2
    order = [COLUMNS.index(name) for name in columns] if columns and set(columns) == set(COLUMNS) else list(range(5))
    how = Reading(labels="y") if labelled else Reading()
    return sign(str(seed), Samples(x[:, order], y if labelled else None, columns), 2, how)


@settings(max_examples=10, deadline=None)
@given(st.permutations(COLUMNS), st.booleans())
def test_the_order_of_columns_does_not_change_the_angles(order: list[str], labelled: bool) -> None:
    same = federate({f"c{i}": client(i, labelled=labelled) for i in range(3)})
    swapped = federate({f"c{i}": client(i, tuple(order) if i else COLUMNS, labelled) for i in range(3)})
    assert np.allclose(same.clustering.proximity, swapped.clustering.proximity, atol=1e-3)
    assert np.array_equal(same.clustering.labels, swapped.clustering.labels)
    assert {one.columns for one in swapped.descriptions} == {COLUMNS}


def test_a_newcomer_is_aligned_with_the_federation() -> None:
    made = federate({f"c{i}": client(i) for i in range(3)})
    as_is, swapped = join(made, {"new": client(9)}), join(made, {"new": client(9, COLUMNS[::-1])})
    assert np.allclose(as_is.federation.clustering.proximity, swapped.federation.clustering.proximity, atol=1e-3)
    assert swapped.federation.descriptions[-1].columns == COLUMNS


def test_different_columns_are_refused_with_who_has_what() -> None:
    other = ("age", "weight", "size", "pulse", "steps")
    made = {"a": client(0), "b": client(1), "c": client(2, other)}
    with pytest.raises(DataError, match=r"'height' is missing in c; 'size' is only in c\. .*--drop"):
        federate(made)
    with pytest.raises(DataError, match=r"'height' is missing in c; 'size' is missing in the federation"):
        join(federate({"a": client(0), "b": client(1)}), {"c": client(2, other)})


def test_a_missing_column_is_refused_by_name() -> None:
    narrow = sign("n", Samples(np.random.default_rng(0).normal(size=(80, 4)), None, COLUMNS[:4]), 2, Reading())
    with pytest.raises(DataError, match="'steps' is missing in n"):
        federate({"a": client(0), "n": narrow})


def test_clients_without_names_of_columns_are_compared_as_they_are() -> None:
    nameless = client(1, None)
    assert federate({"a": client(0), "b": nameless}).bases[1] is nameless.basis


def test_names_that_occur_twice_cannot_be_aligned() -> None:
    twice = ("age", "age", "height", "pulse", "steps")
    permuted = ("age", "height", "age", "pulse", "steps")
    with pytest.raises(DataError, match="another order, and 'age' names several"):
        federate({"a": client(0, twice), "b": client(1, permuted)})
    assert federate({"a": client(0, twice), "b": client(1, twice)}).names == ("a", "b")


def test_different_schemas_are_refused_in_words() -> None:
    made = {"a": replace(client(0), schema="a" * 64), "b": replace(client(1, COLUMNS[::-1]), schema="b" * 64)}
    with pytest.raises(DataError, match=r"differ in the schema of their columns: SHA-256 aaaaaaaaaaaa\.\.\.: a"):
        federate(made)
    with pytest.raises(DataError, match=r"differ in the schema of their columns: .*none: b"):
        federate({"a": made["a"], "b": client(1)})


def test_swapped_columns_of_files_are_aligned(tmp_path: Path) -> None:
    for i in range(4):
        x = np.random.default_rng(i).normal(size=(100, 5)) * SCALES + 1
        order = list(range(5)) if i % 2 else [4, 2, 0, 1, 3]
        rows = [",".join(f"{v:.4f}" for v in row) for row in x[:, order]]
        (tmp_path / f"c{i}.csv").write_text("\n".join([",".join(COLUMNS[j] for j in order), *rows]))
    files = [str(path) for path in sorted(tmp_path.glob("*.csv"))]
    done = CliRunner().invoke(app, ["cluster", *files, "--json"])
    assert '"clusters": [["c0", "c1", "c2", "c3"]]' in done.stdout, done.output
