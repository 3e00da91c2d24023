"""Tables are compared in one way: clients of experiments and sites on Flower send what `pacfl sign --schema` writes."""

import csv
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.algorithms.pacfl import PACFL
from pacfl.errors import ConfigError, InvalidReplyError
from pacfl.experiment.config import expand
from pacfl.experiment.run import build
from pacfl.features import Reading, init_schema, read_schema
from pacfl.features.splitting import rows_for_testing
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.federation.membership import PACFLState
from pacfl.federation.message import Message
from pacfl.signatures import cluster_files, sign_file
from pacfl.signatures.column_arrays import stored
from pacfl.subspace.classes import from_messages

HEART = Path(os.environ.get("PACFL_DATA", Path(__file__).parents[3] / "shared" / "data")) / "heart"
PATIENT = 3  # rows of each

pytestmark = pytest.mark.filterwarnings("ignore::pacfl.subspace.DependenceWarning")


def write_site(path: Path, seed: int, age: float, unit: float = 1.0, n: int = 240) -> None:
    """Rows of patients; older ones are ill."""
    rng = np.random.default_rng(seed)
    ages, sodium = np.repeat(rng.normal(age, 12, n // PATIENT), PATIENT), rng.normal(140, 3, n)
    dose = 2 * ages + rng.normal(0, 8, n)
    ill = np.where(ages + rng.normal(0, 8, n) > age, "ill", "well")
    ward = rng.choice(["east", "west"], n)
    rows = zip(np.repeat(np.arange(n // PATIENT), PATIENT), ages.round(1), sodium * unit, ward, dose, ill, strict=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("patient", "age", "sodium", "ward", "dose", "outcome"), *rows])


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """Adults, adults whose sodium is in another unit, and children: two hospitals each."""
    (tmp_path / "all").mkdir()
    files = [tmp_path / "all" / f"{name}.csv" for name in "abcdef"]
    for i, path in enumerate(files):
        write_site(path, i, 60.0 if i < 4 else 8.0, 1.08 if i in (2, 3) else 1.0)
    return files


def training_rows(files: Sequence[Path], folder: Path, group: str | None) -> list[Path]:
    """The tables without the rows that experiments test on."""
    folder.mkdir()
    for path in files:
        header, *rows = csv.reader(path.read_text().splitlines())
        groups = None if group is None else np.array([row[header.index(group)] for row in rows])
        left = [row for row, test in zip(rows, rows_for_testing(len(rows), groups), strict=True) if not test]
        with (folder / path.name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *left])
    return [folder / path.name for path in files]


def experiment(files: Sequence[Path], schema: Path, **algorithm: Any) -> Setup:
    """An experiment on tables, as TOML describes it."""
    options = {"files": [str(path) for path in files], "schema": str(schema)}
    labels = read_schema(schema).labels
    assert labels is not None
    data = {"name": "tables", "clients": len(files), "scheme": {"kind": "natural"}, "options": options}
    loss = "cross-entropy" if labels.kind == "classes" else "squared-error"
    entry = {"name": "pacfl", **algorithm}
    (run,) = expand({"data": data, "model": {"name": "logistic"}, "learning": {"loss": loss}, "algorithm": [entry]})
    return build(run).setup


def profiles(files: Sequence[Path], schema: Path, **algorithm: Any) -> tuple[PACFL, dict[int, Message]]:
    """The algorithm of an experiment, and what its clients send."""
    setup = experiment(files, schema, **algorithm)
    assert isinstance(setup.algorithm, PACFL)
    side = ClientSide(setup)
    return setup.algorithm, {client: side.profile(0, client) for client in range(len(files))}


@pytest.mark.parametrize(("labels", "group"), [("outcome", None), ("outcome", "patient"), ("dose", "patient")])
def test_a_client_of_an_experiment_sends_what_sign_writes(
    tables: list[Path], tmp_path: Path, labels: str, group: str | None
) -> None:
    from pacfl.flower.tables import table_task
    from tests.flower.test_flower_tables import context

    schema = init_schema(tables, tmp_path / "schema.json", labels=labels, group=group, drop=["patient"][: not group])
    setup = experiment(tables, tmp_path / "schema.json")
    load_data, _ = table_task(schema.as_json())
    side = ClientSide(setup)
    sent = [side.profile(0, client) for client in range(len(tables))]
    for i, path in enumerate(training_rows(tables, tmp_path / "training", group)):
        signed = sign_file(path, path.with_suffix(".sig"), reading=Reading(schema=schema))
        assert np.array_equal(sent[i]["basis"], signed.basis)
        assert sent[i]["basis"].shape[1] == 1
        assert np.array_equal(sent[i]["split_half_angles"], signed.split_half_angles["smallest"].astype(np.float32))
        assert signed.table is not None
        assert np.array_equal(sent[i]["column_angles"], stored(signed.table))
        assert np.array_equal(sent[i]["column_counts"], signed.table.counts)
        classes = from_messages(sent[i])
        assert (classes is None) == (signed.classes is None) == (labels == "dose")
        if classes is not None and signed.classes is not None:
            assert np.array_equal(classes.counts, signed.classes.counts)
            assert np.array_equal(classes.directions, signed.classes.directions)
            assert np.array_equal(classes.split_half_angles, signed.classes.split_half_angles)
        site = load_data(context(tables[i])).pool(0, "classes" if labels == "outcome" else "values")
        of_site = ClientSide(replace(setup, pool=site)).profile(0, 0)
        assert of_site.keys() == sent[i].keys()
        assert all(np.array_equal(of_site[name], sent[i][name]) for name in of_site)
        setup.algorithm.check_profile(setup.model, of_site)


def clusters(algorithm: PACFL, sent: dict[int, Message]) -> list[int]:
    """Those of the first round."""
    nothing = PACFLState(np.zeros((0, 1), dtype=np.float32), initial=np.zeros(1, dtype=np.float32))
    state = algorithm.admit(nothing, sent)
    assert state.clustering is not None
    return [int(k) for k in state.clustering.labels]


@pytest.mark.parametrize("labels", ["outcome", "dose"])
def test_clusters_are_those_of_pacfl_cluster(tables: list[Path], tmp_path: Path, labels: str) -> None:
    schema = init_schema(tables, tmp_path / "schema.json", labels=labels, group="patient", without_test=True)
    own = training_rows(tables, tmp_path / "training", "patient")
    found = cluster_files(own, reading=Reading(schema=schema)).clustering
    assert clusters(*profiles(tables, tmp_path / "schema.json")) == found.labels.tolist() == [0, 0, 1, 1, 2, 2]
    together = cluster_files(own, reading=Reading(schema=schema), compare="inputs").clustering
    without = profiles(tables, tmp_path / "schema.json", compare="inputs")
    assert "column_angles" not in without[1][0]
    assert clusters(*without) == together.labels.tolist()


@pytest.mark.skipif(not HEART.is_dir(), reason="tables of heart disease are not there")
def test_hospitals_are_in_the_clusters_of_pacfl_cluster(tmp_path: Path) -> None:
    files = sorted(HEART.glob("*.csv"))
    schema = init_schema(files, tmp_path / "schema.json", labels="target", without_test=True)
    found = cluster_files(training_rows(files, tmp_path / "training", None), reading=Reading(schema=schema)).clustering
    assert clusters(*profiles(files, tmp_path / "schema.json")) == found.labels.tolist()


@pytest.mark.parametrize(
    "settings", [{"compare": "inputs"}, {"threshold": 5.0}, {"clusters": 2}, {"signature_epsilon": 4.0}]
)
def test_columns_are_not_sent_where_they_are_not_compared(
    tables: list[Path], tmp_path: Path, settings: dict[str, Any]
) -> None:
    init_schema(tables, tmp_path / "schema.json", labels="outcome", drop=["patient"])
    _, sent = profiles(tables[:2], tmp_path / "schema.json", **settings)
    assert not [name for name in sent[0] if name.startswith("column")]
    assert sent[0]["basis"].shape == (len(read_schema(tmp_path / "schema.json").features) + 1, 1)


def test_an_encoder_of_tables_is_refused(tables: list[Path], tmp_path: Path) -> None:
    init_schema(tables, tmp_path / "schema.json", labels="outcome", drop=["patient"])
    with pytest.raises(ConfigError, match="a schema says how columns of tables are scaled"):
        profiles(tables[:2], tmp_path / "schema.json", encoder="standardise")


def test_columns_that_do_not_fit_are_refused(tables: list[Path], tmp_path: Path) -> None:
    init_schema(tables, tmp_path / "schema.json", labels="outcome", drop=["patient"])
    algorithm, sent = profiles(tables[:3], tmp_path / "schema.json")
    good = sent[0]
    angles = good["column_angles"]
    for change in (
        {"column_angles": angles[..., 1:]},
        {"column_angles": np.full_like(angles, 91.0)},
        {"column_counts": good["column_counts"] * 0},
        {"column_classes": good["column_classes"][::-1]},
        {"basis": np.eye(len(good["basis"]), 2, dtype=np.float32)},
    ):
        with pytest.raises(InvalidReplyError):
            algorithm.check_profile(None, {**good, **change})  # type: ignore[arg-type]
    without = {name: array for name, array in good.items() if not name.startswith("column")}
    state = PACFLState(np.zeros((0, 1), dtype=np.float32), initial=np.zeros(1, dtype=np.float32))
    assert algorithm.incompatible(state, {**sent, 0: without}) == {0: "has no columns, expected those of a table"}
    assert algorithm.incompatible(algorithm.admit(state, sent), {7: without}) == {
        7: "has no columns, expected those of a table"
    }
