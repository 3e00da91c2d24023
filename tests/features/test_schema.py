import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacfl.errors import DataError
from pacfl.features import (
    MissingValuesWarning,
    Reading,
    Schema,
    describe_file,
    init_schema,
    read_description,
    read_samples,
    read_schema,
    read_table,
    write_schema,
)
from pacfl.features.description import category_name, centre_and_scale, describe
from pacfl.features.making_schema import MistypedWarning
from pacfl.features.merging import merged, pooled
from pacfl.features.schema import Category, Dropped, Number

ROWS = 60


def table(seed: int = 0, rows: int = ROWS, **changed: Any) -> pa.Table:
    """Patients, with something of everything."""
    rng = np.random.default_rng(seed)
    columns = {
        "patient": [f"p{seed}-{i}" for i in range(rows)],
        "age": rng.normal(50, 10, rows).round(),
        "sex": rng.choice(["f", "m"], rows),
        "smoker": [None if i % 7 == 0 else bool(i % 3) for i in range(rows)],
        "dose": [None if i % 5 == 0 else float(v) for i, v in enumerate(rng.normal(2, 0.5, rows))],
        "ward": rng.choice(["a", "b", "c"], rows, p=[0.5, 0.4, 0.1]),
        "note": [f"the patient came on day {i} and left" for i in range(rows)],
        "visit": pa.array([f"2024-01-{1 + i % 28:02d}" for i in range(rows)]).cast("timestamp[s]"),
        "site": ["north"] * rows,
        "outcome": rng.choice(["ill", "well"], rows),
    }
    return pa.table({**columns, **changed})


def schema_of(*tables: pa.Table, labels: str | None = "outcome", **options: Any) -> Schema:
    return merged({f"t{i}": describe(one, labels=labels, **options) for i, one in enumerate(tables)})


def write(path: Path, one: pa.Table) -> Path:
    from pyarrow import csv

    csv.write_csv(one, path)
    return path


def test_every_kind_of_column_is_recognised() -> None:
    made = schema_of(table(0), table(1))
    assert {column.name: column.kind for column in made.columns} == {
        **dict.fromkeys(("age", "dose", "smoker"), "number"),
        **dict.fromkeys(("sex", "ward"), "category"),
        **dict.fromkeys(("patient", "note", "visit", "site"), "dropped"),
    }
    reasons = {column.name: column.reason for column in made.columns if isinstance(column, Dropped)}
    assert reasons["note"] == "free text"
    assert reasons["visit"] == "dates or times"
    assert reasons["site"] == "constant, 'north' in all rows"
    assert "identifies rows" in reasons["patient"]
    assert made.labels is not None
    assert (made.labels.kind, made.labels.classes) == ("classes", ("ill", "well"))


def test_an_encoding_by_hand() -> None:
    """(30 - 50) / 10 = -2, and 9999 is cut at 10; a missing number is 0 with its indicator; 'z' is other; a missing
    category is in none.
    """
    columns = (Number("age", 50.0, 10.0, True), Category("sex", ("f", "m"), True), Dropped("id", "identifies rows"))
    made = Schema(columns)
    encoded = made.encode(pa.table({"sex": ["m", "z", None], "age": [30.0, None, 9999.0]}))
    assert encoded.names == ("age", "age is missing", "sex = f", "sex = m", "sex = other", "sex is missing")
    assert encoded.x.tolist() == [[-2, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [10, 0, 0, 0, 0, 1]]


@settings(max_examples=20, deadline=None)
@given(st.permutations(table().column_names), st.integers(0, ROWS))
def test_the_order_of_columns_and_the_cut_of_a_file_do_not_change_the_encoding(order: list[str], cut: int) -> None:
    one = table()
    made = schema_of(one)
    whole = made.encode(one)
    assert np.array_equal(made.encode(one.select(order)).x, whole.x)
    parts = [made.encode(one.slice(0, cut)).x, made.encode(one.slice(cut)).x]
    assert np.array_equal(np.vstack(parts), whole.x)


def test_the_order_of_parties_and_of_their_columns_does_not_change_the_schema() -> None:
    described = {f"t{i}": describe(table(i, 40 + 20 * i), labels="outcome") for i in range(3)}
    swapped = describe(table(0, 40).select(table().column_names[::-1]), labels="outcome")
    backwards = merged({"t2": described["t2"], "t1": described["t1"], "t0": swapped})
    assert backwards.sha256 == merged(described).sha256


def test_a_schema_of_descriptions_is_that_of_the_tables(tmp_path: Path) -> None:
    files = [write(tmp_path / f"t{i}.csv", table(i)) for i in range(3)]
    shared = []
    for file in files[:2]:
        shared.append(tmp_path / f"{file.stem}.json")
        describe_file(file, shared[-1], labels="outcome")
    mixed = init_schema([*shared, files[2]], tmp_path / "schema.json")
    assert mixed.sha256 == init_schema(files, labels="outcome").sha256
    assert read_schema(tmp_path / "schema.json") == mixed


def test_a_description_has_no_rare_value_and_no_value_of_dropped_columns(tmp_path: Path) -> None:
    rare = table(sex=["f"] * 30 + ["m"] * 26 + ["rare"] * 4)
    file = write(tmp_path / "a.csv", rare)
    describe_file(file, tmp_path / "a.json", labels="outcome")
    text = (tmp_path / "a.json").read_text()
    assert "rare" not in text
    assert not any(word in text for word in ("p0-1", "2024-01", "came on day"))
    assert '"f": 30' in text
    describe_file(file, tmp_path / "b.json", labels="outcome", minimum_count=4)
    assert '"rare": 4' in (tmp_path / "b.json").read_text()
    again = read_description(tmp_path / "a.json")
    assert again == describe_file(file, labels="outcome")


@given(st.lists(st.floats(-100, 100), min_size=20, max_size=60), st.floats(0.1, 10), st.floats(-50, 50))
def test_centre_and_scale_follow_the_unit_of_a_column(values: list[float], factor: float, shift: float) -> None:
    x = np.array(values)
    centre, scale = centre_and_scale(x)
    moved, stretched = centre_and_scale(factor * x + shift)
    assert stretched == pytest.approx(factor * scale, rel=0.02, abs=1e-6)
    assert moved == pytest.approx(factor * centre + shift, abs=0.02 * stretched + 1e-3)


def test_an_outlier_hardly_moves_centre_and_scale() -> None:
    x = np.random.default_rng(0).normal(5, 2, 1000)
    centre, scale = centre_and_scale(np.append(x, 1e9))
    assert centre == pytest.approx(5, abs=0.2)
    assert scale == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([0, 0, 0, 1], (0.25, 0.433)), ([0] * 80 + [5] * 10 + list(range(10)), (0, 1.52)), ([7, 7, 7], (7, 0))],
)
def test_columns_with_many_equal_values_have_a_scale(values: list[float], wanted: tuple[float, float]) -> None:
    """Two values: mean 1/4, standard deviation √3 / 4. Quartiles 0 and 0: from 0.05 to 0.95, (5 - 0) / 3.29."""
    assert centre_and_scale(np.array(values, dtype=float)) == pytest.approx(wanted, abs=0.01)


def test_pooled_statistics_are_those_of_the_pooled_rows() -> None:
    """Of normal parties; and a party of one row in a thousand hardly moves them, wherever it is."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(10, 2, 20_000), rng.normal(16, 4, 60_000)]
    centre, scale = pooled([(len(part), *centre_and_scale(part)) for part in parts])
    wanted = centre_and_scale(np.concatenate(parts))
    assert (centre, scale) == pytest.approx(wanted, rel=0.01)
    assert pooled([(1, 1e12, 1e12), (999, 5.0, 2.0)]) == pytest.approx((5.0, 2.0), abs=0.02)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_numbers_of_any_size_have_a_scale(size: float) -> None:
    """Squares of the first are 0, squares of the second are too large for floating-point numbers."""
    x = np.random.default_rng(0).normal(5, 2, 1000)
    assert centre_and_scale(size * x) == pytest.approx(tuple(size * v for v in centre_and_scale(x)), rel=0.01)
    assert centre_and_scale(size * np.array([0.0, 1.0])) == pytest.approx((size / 2, size / 2))
    assert pooled([(1, size, 2 * size), (1, size, 2 * size)]) == pytest.approx((size, 2 * size))
    made = schema_of(table(age=size * np.arange(ROWS) ** 1.5))
    assert np.isfinite(made.encode(table(age=[-size] * ROWS)).x).all()


def test_parties_that_are_constant_in_different_ways_have_a_scale() -> None:
    assert pooled([(10, 8.0, 0.0), (10, 60.0, 0.0)])[1] > 0
    assert pooled([(10, 8.0, 0.0), (90, 8.0, 0.0)]) == (8.0, 0.0)
    assert pooled([(10, 9.0, 0.0), (90, 8.0, 0.0)]) == (8.0, 0.3)


def test_a_column_that_some_party_lacks_is_refused_with_who_lacks_it() -> None:
    described = {"a": describe(table(0)), "b": describe(table(1).drop_columns(["age"])), "c": describe(table(2))}
    with pytest.raises(DataError, match=r"'age' is missing in b\. .*--drop"):
        merged(described)
    assert "age" not in merged(described, drop=["age"]).features


def test_columns_of_different_types_are_refused_with_who_has_which() -> None:
    words = table(1, age=["young", "old"] * 30)
    with pytest.raises(DataError, match=r"column 'age' holds numbers in t0; text in t1; fix .*--drop age"):
        schema_of(table(0), words)
    empty = schema_of(table(0), table(1, age=pa.nulls(ROWS)))
    assert "age is missing" in empty.features


def test_small_parties_do_not_decide_what_a_column_is() -> None:
    """Twelve distinct words are no category by themselves; beside three hundred rows with three words, they are."""
    made = schema_of(table(0, 300), table(1, 12, ward=[f"w{i}" for i in range(12)]))
    assert Category("ward", ("a", "b", "c")) in made.columns


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([float(i) for i in range(1, ROWS + 1)], "dropped"),
        ([float(i % 30) for i in range(ROWS)], "number"),
        ([float(1000 + 37 * i) for i in range(ROWS)], "number"),
        ([i + 0.5 for i in range(ROWS)], "number"),
    ],
)
def test_integers_that_count_rows_are_identifiers_and_others_numbers(values: list[float], wanted: str) -> None:
    made = {column.name: column.kind for column in schema_of(table(age=values)).columns}
    assert made["age"] == wanted


def test_integers_named_as_identifiers_are_dropped() -> None:
    made = schema_of(table().append_column("patient_id", [[float(1000 + 37 * i) for i in range(ROWS)]]))
    assert next(column.kind for column in made.columns if column.name == "patient_id") == "dropped"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([float(i % 5) for i in range(ROWS)], "classes"),
        ([i % 5 + 0.5 for i in range(ROWS)], "value"),
        ([float(i) for i in range(ROWS)], "value"),
        ([bool(i % 2) for i in range(ROWS)], "classes"),
    ],
)
def test_labels_are_classes_or_values(values: list[Any], kind: str) -> None:
    made = schema_of(table(outcome=values))
    assert made.labels is not None
    assert made.labels.kind == kind
    codes = made.class_codes(table(outcome=values)) if kind == "classes" else made.values(table(outcome=values))
    assert len(np.unique(codes)) == len(set(values))


def test_one_party_with_many_integers_makes_labels_values() -> None:
    made = schema_of(table(outcome=[float(i % 5) for i in range(ROWS)]), table(outcome=[float(i) for i in range(ROWS)]))
    assert made.labels is not None
    assert made.labels.kind == "value"


def test_classes_that_the_schema_does_not_know_are_refused_with_the_row() -> None:
    made = schema_of(table())
    with pytest.raises(DataError, match=r"'outcome': the label in row 2 is 'dead', which is not among"):
        made.class_codes(table(rows=3, outcome=["ill", "dead", "well"]))
    with pytest.raises(DataError, match=r"the label in row 1 is missing"):
        made.class_codes(table(rows=2, outcome=[None, "ill"]))


def test_numbers_written_in_different_ways_are_one_category() -> None:
    assert {category_name(value) for value in ("1", "1.0", " 1 ", 1.0, "+1")} == {"1"}
    assert category_name("two\nlines") == "two lines"


def test_a_table_that_lacks_a_column_is_refused_with_what_it_has_instead() -> None:
    made = schema_of(table())
    with pytest.raises(DataError, match=r"lacks 'age', .* it has 'Age', which the schema does not know"):
        made.encode(table().drop_columns(["age"]).append_column("Age", [[1.0] * ROWS]))


def test_text_in_a_column_of_numbers_is_refused_with_its_row(tmp_path: Path) -> None:
    made = schema_of(table())
    file = write(tmp_path / "a.csv", table(age=["40", "old", *["50"] * (ROWS - 2)]))
    with pytest.raises(DataError, match=r"a\.csv: a column is a number.*'age' has 'old' in row 3"):
        read_samples(file, Reading(schema=made))


def test_missing_cells_that_nobody_had_count_as_average_with_a_warning() -> None:
    made = schema_of(table())
    gaps = table(age=[None] * ROWS)
    with pytest.warns(MissingValuesWarning, match="'age' has 60 missing cells"):
        encoded = made.encode(gaps)
    assert not encoded.x[:, encoded.names.index("age")].any()


def test_reading_with_a_schema_gives_features_labels_and_groups(tmp_path: Path) -> None:
    one = table()
    made = merged({"t": describe(one, labels="outcome", group="ward")})
    file = write(tmp_path / "a.csv", one)
    samples = read_samples(file, Reading(schema=made))
    assert samples.columns == made.features
    assert np.allclose(samples.x, made.encode(read_table(file)).x)
    assert samples.labels is not None
    assert samples.labels.tolist() == one.column("outcome").to_pylist()
    assert samples.groups is not None
    assert samples.groups.tolist() == one.column("ward").to_pylist()
    assert read_samples(file, Reading(schema=made, labels="")).labels is None
    without = write(tmp_path / "b.csv", one.drop_columns(["outcome"]))
    assert read_samples(without, Reading(schema=made)).labels is None
    with pytest.raises(DataError, match="no column 'outcome'"):
        read_samples(without, Reading(schema=made, labels="outcome"))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"drop": ("age",)}, "--drop: a schema says"),
        ({"preprocess": "normalise"}, "--preprocess: a schema says"),
        ({"labels": "sex"}, "'sex' is a feature of the schema; make a schema with --labels sex"),
        ({"group": "age"}, "'age' is a feature of the schema"),
        ({"labels": "nothing"}, "has no column 'nothing'"),
    ],
)
def test_options_that_contradict_the_schema_are_refused(tmp_path: Path, how: dict[str, Any], why: str) -> None:
    file = write(tmp_path / "a.csv", table())
    with pytest.raises(DataError, match=why):
        read_samples(file, Reading(schema=schema_of(table()), **how))


def test_the_hash_of_a_schema_is_of_what_it_says_and_not_of_its_file(tmp_path: Path) -> None:
    made = schema_of(table())
    write_schema(tmp_path / "a.json", made)
    (tmp_path / "b.json").write_text(json.dumps(json.loads((tmp_path / "a.json").read_text()), sort_keys=True))
    assert read_schema(tmp_path / "b.json").sha256 == made.sha256
    assert schema_of(table(3)).sha256 != made.sha256


DAMAGE: dict[str, Any] = {
    "no list": {"columns": 3},
    "unknown kind": {"columns": [{"name": "a", "kind": "magic"}]},
    "no scale": {"columns": [{"name": "a", "kind": "number", "centre": 0.0, "scale": 0.0, "missing": False}]},
    "infinite": {"columns": [{"name": "a", "kind": "number", "centre": 1e400, "scale": 1.0, "missing": False}]},
    "a text for a number": {"columns": [{"name": "a", "kind": "number", "centre": "0", "scale": 1.0}]},
    "extra fields": {"columns": [{"name": "a", "kind": "number", "centre": 0.0, "scale": 1.0, "code": "x"}]},
    "names twice": {"columns": 2 * [{"name": "a", "kind": "number", "centre": 0.0, "scale": 1.0, "missing": False}]},
    "no features": {"columns": [{"name": "a", "kind": "dropped", "reason": "why not"}]},
    "control characters": {"columns": [{"name": "a", "kind": "category", "values": ["\x1b[2J"], "missing": False}]},
    "values twice": {"columns": [{"name": "a", "kind": "category", "values": ["x", "x"], "missing": False}]},
    "labels without classes": {"labels": {"name": "y", "kind": "classes", "classes": []}},
    "labels among columns": {"labels": {"name": "age", "kind": "classes", "classes": ["x"]}},
    "group of numbers": {"group": 7},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_schema_that_cannot_be_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**schema_of(table()).as_json(), **damage}))
    with pytest.raises(DataError, match=r"a\.json: is no valid schema .*damaged or edited"):
        read_schema(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "another kind of JSON, a schema was expected"),
        ('{"pacfl": "schema", "format": 99}', "has format 99"),
        ('{"pacfl": "description"}', "is a description, a schema was expected; make one with 'pacfl schema init"),
    ],
)
def test_other_files_are_no_schemas(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=why):
        read_schema(tmp_path / "a.json")


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": -1},
        {"columns": []},
        {"columns": [{"name": "a", "type": "magic"}]},
        {"columns": [{"name": "a", "type": "number", "centre": None, "scale": 1.0}]},
        {"columns": [{"name": "a", "type": "category", "counts": {"x": -5}}]},
        {"labels": "nowhere"},
    ],
    ids=str,
)
def test_a_description_that_cannot_be_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**describe(table()).as_json(), **damage}))
    with pytest.raises(DataError, match=r"a\.json: is no valid description"):
        read_description(tmp_path / "a.json")


def test_parties_must_agree_on_labels_and_groups(tmp_path: Path) -> None:
    files = [write(tmp_path / f"t{i}.csv", table(i)) for i in range(2)]
    describe_file(files[0], tmp_path / "t0.json", labels="outcome")
    with pytest.raises(DataError, match="t0: was described without --labels sex"):
        init_schema([tmp_path / "t0.json", files[1]], labels="sex")
    with pytest.raises(DataError, match="t0 occurs twice"):
        init_schema([tmp_path / "t0.json", files[0]])
    with pytest.raises(DataError, match="--drop nowhere: no table has this column"):
        init_schema(files, drop=["nowhere"])
    (tmp_path / "a.npy").touch()
    with pytest.raises(DataError, match=r"schemas are of tables.*got \.npy"):
        init_schema([tmp_path / "a.npy"])


def test_columns_that_are_no_numbers_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n" + "".join(f"{i / 7},{i / 3},{i}.5\n" for i in range(9)))
    schema = init_schema([tmp_path / "a.csv"])
    (tmp_path / "b.csv").write_text("a,c,b\n1.5,2,x\ny,3,4\n2,inf,5\n")
    with pytest.raises(
        DataError, match=r"3 columns are.*'a' has 'y' in row 3, 'b' has 'x' in row 2, 'c' has 'inf' in r"
    ):
        read_samples(tmp_path / "b.csv", Reading(schema=schema))


@pytest.mark.parametrize("without_test", [False, True])
def test_a_column_of_numbers_but_for_few_cells_is_noted(tmp_path: Path, without_test: bool) -> None:
    """One of 20 cells may be a mistake; 3 of 20 are none. Row 6 is for testing, and is named all the same."""
    rows = [f"{i / 7},{i / 3},{i if i > 2 else 'k'},{'east' if i % 2 else 'west'}" for i in range(20)]
    rows[4] = "1.5,x,4,east"
    (tmp_path / "a.csv").write_text("\n".join(["a,b,c,d", *rows]))
    with pytest.warns(
        MistypedWarning, match=r"a\.csv: column 'b' is text because of 1 of 20 cells, as 'x' in r"
    ) as noted:
        describe_file(tmp_path / "a.csv", without_test=without_test)
    assert len(noted) == 1
    assert "'x' in row 6;" in str(noted[0].message)
    describe_file(tmp_path / "a.csv", without_test=without_test, drop=["b"])
