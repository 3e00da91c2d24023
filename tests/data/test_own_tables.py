from pathlib import Path

import numpy as np
import pytest

from pacfl.data import Natural, load_dataset, partition
from pacfl.data.subset import validation_split
from pacfl.errors import DataError
from pacfl.features import init_schema, read_schema, read_table
from pacfl.features.splitting import rows_for_testing


def write(path: Path, seed: int, labels: str = "class", rows: int = 60, outlier: bool = False) -> Path:
    """Three rows for each patient; an outlier is in a row for testing."""
    rng = np.random.default_rng(seed)
    lines = ["patient,age,sex,outcome"]
    for i in range(rows):
        age = rng.normal(50, 10) + 1e6 * (outlier and i == 12)
        target = ("ill", "well")[i % 2] if labels == "class" else f"{rng.normal(1000, 50):.1f}"
        lines.append(f"p{i // 3},{age:.2f},{rng.choice(['f', 'm'])},{target}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(("north", "south", "west")):
        write(tmp_path / f"{name}.csv", i)
    return tmp_path


def test_each_file_is_a_client_and_no_group_is_on_both_sides(folder: Path) -> None:
    made = load_dataset("tables", folder, labels="outcome", group="patient")
    assert made.natural is not None
    assert made.natural.names == ("north", "south", "west")
    assert (len(made.y_train), len(made.y_test), made.n_classes) == (144, 36, 2)
    assert made.natural.groups is not None
    assert np.bincount(made.natural.groups).tolist() == [3] * 48
    clients = partition(made, Natural(), 3, np.random.default_rng(0))
    assert clients.names == made.natural.names
    assert [len(own) for own in clients.test_indices] == [12] * 3


def test_rows_for_testing_do_not_change_how_features_are_scaled(folder: Path) -> None:
    plain = load_dataset("tables", folder, labels="outcome", group="patient")
    write(folder / "north.csv", 0, outlier=True)
    changed = load_dataset("tables", folder, labels="outcome", group="patient")
    assert np.array_equal(plain.x_train, changed.x_train)
    assert not np.array_equal(plain.x_test, changed.x_test)


def test_a_schema_in_a_file_gives_the_same_data(folder: Path) -> None:
    made = load_dataset("tables", folder, labels="outcome", group="patient")
    init_schema(
        sorted(folder.glob("*.csv")), folder / "schema.json", labels="outcome", group="patient", without_test=True
    )
    again = load_dataset("tables", folder, files="*.csv", schema="schema.json")
    assert made.digest == again.digest
    with pytest.raises(DataError, match="a schema says what labels, group and drop are"):
        load_dataset("tables", folder, schema="schema.json", labels="outcome")


def test_values_are_predicted_in_units_of_their_scale(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 0, labels="value")
    made = load_dataset("tables", tmp_path, labels="outcome", drop="patient")
    assert made.targets == "values"
    schema = init_schema([path], labels="outcome", drop=["patient"], without_test=True)
    assert schema.labels is not None
    assert schema.labels.centre is not None
    back = made.y_train * schema.labels.scale + schema.labels.centre
    test = rows_for_testing(60)
    assert np.allclose(back, schema.values(read_table(path))[~test], rtol=1e-5)


def test_what_cannot_be_read_is_said(folder: Path) -> None:
    for options, why in (
        ({}, "need a column to predict"),
        ({"labels": "outcome", "files": "*.tsv"}, r"\*\.tsv: no such file"),
        ({"labels": "nothing"}, "no column 'nothing'"),
    ):
        with pytest.raises(DataError, match=why):
            load_dataset("tables", folder, **options)
    (folder / "north.csv").write_text("patient,age,sex,outcome\np0,1,f,dead\n")
    init_schema([folder / "south.csv"], folder / "schema.json", labels="outcome")
    with pytest.raises(DataError, match=r"north\.csv: column 'outcome': the label in row 2 is 'dead'"):
        load_dataset("tables", folder, schema="schema.json")
    assert read_schema(folder / "schema.json").group is None


def test_all_samples_of_a_group_are_for_training_or_all_for_validation(folder: Path) -> None:
    made = load_dataset("tables", folder, labels="outcome", group="patient")
    assert made.natural is not None
    groups = made.natural.groups
    assert groups is not None
    clients = partition(made, Natural(), 3, np.random.default_rng(0))
    changed, split = validation_split(made, clients, 0.25, np.random.default_rng(0))
    for before, train, test in zip(clients.train_indices, split.train_indices, split.test_indices, strict=True):
        held_out = np.setdiff1d(before, train)
        assert len(test) == len(held_out) == 12
        assert not set(groups[train]) & set(groups[held_out])
        assert np.array_equal(np.sort(changed.y_test[test]), np.sort(made.y_train[held_out]))
