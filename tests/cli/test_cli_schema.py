"""From tables of several parties to clusters: describe, init, sign, cluster, explain, join."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pacfl.cli import app
from pacfl.signatures import Reading, cluster_files, sigfile


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def clinic(folder: Path, name: str, age: float, seed: int, order: int = 1) -> Path:
    """Patients of some age, with text, gaps and an identifier; another party may order columns otherwise."""
    rng = np.random.default_rng(seed)
    rows = [["id", "age", "sex", "weight", "pulse", "ill"][::order]]
    for i in range(150):
        weight = "" if i % 9 == 0 else f"{rng.normal(70, 12):.1f}"
        row = [
            f"{name}{i}",
            f"{rng.normal(age, 4):.0f}",
            "fm"[int(rng.random() < 0.5)],
            weight,
            f"{rng.normal(75, 9):.0f}",
        ]
        rows.append([*row, "yes" if rng.random() < 0.5 else "no"][::order])
    path = folder / f"{name}.csv"
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")
    return path


@pytest.fixture
def clinics(tmp_path: Path) -> list[Path]:
    return [clinic(tmp_path, f"c{i}", 8 if i < 3 else 60, i + 1, 1 if i % 2 else -1) for i in range(6)]


def test_adults_and_children_become_two_clusters_and_age_explains_them(tmp_path: Path, clinics: list[Path]) -> None:
    shared = [tmp_path / f"{path.stem}.json" for path in clinics]
    for path, description in zip(clinics, shared, strict=True):
        assert "identifier" in run("schema", "describe", path, "-o", description, "--labels", "ill")
    schema = tmp_path / "schema.json"
    made = json.loads(run("schema", "init", *shared, "-o", schema, "--json"))
    assert made["features"] == ["age", "pulse", "sex = f", "sex = m", "sex = other", "weight", "weight is missing"]
    assert made["labels"]["classes"] == ["no", "yes"]
    signed = [tmp_path / f"{path.stem}.sig" for path in clinics]
    for path, signature in zip(clinics, signed, strict=True):
        contents = json.loads(run("sign", path, "--schema", schema, "-o", signature, "--json"))
        assert contents["schema"] == made["sha256"]
        assert contents["columns"] == [*made["features"], "(constant)"]
    found = json.loads(run("cluster", *signed, "-o", tmp_path / "federation", "--json"))
    assert found["clusters"] == [["c0", "c1", "c2"], ["c3", "c4", "c5"]]
    assert "differ in age" in " ".join(run("explain", tmp_path / "federation", "c0", "c5").split())
    newcomer = clinic(tmp_path, "new", 60, 9, -1)
    assert json.loads(run("join", tmp_path / "federation", newcomer, "--schema", schema, "--json"))["placed"] == {
        "new": 1
    }


def test_tables_are_clustered_as_their_signatures_are(tmp_path: Path, clinics: list[Path]) -> None:
    schema = tmp_path / "schema.json"
    run("schema", "init", *clinics, "-o", schema, "--labels", "ill")
    found = json.loads(run("cluster", *clinics, "--schema", schema, "--json"))
    assert found["clusters"] == [["c0", "c1", "c2"], ["c3", "c4", "c5"]]
    from pacfl.features import read_schema

    made = cluster_files(clinics, reading=Reading(schema=read_schema(schema)))
    assert made.clusters() == found["clusters"]
    assert made.settings.schema == read_schema(schema).sha256


def refused(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exception is not None
    return str(done.exception)


def test_what_was_signed_with_another_schema_or_none_is_refused(tmp_path: Path, clinics: list[Path]) -> None:
    run("schema", "init", *clinics, "-o", tmp_path / "a.json", "--labels", "ill")
    run("schema", "init", *clinics, "-o", tmp_path / "b.json", "--labels", "ill", "--drop", "pulse")
    run("sign", clinics[0], "--schema", tmp_path / "a.json", "-o", tmp_path / "a.sig")
    run("sign", clinics[1], "--schema", tmp_path / "b.json", "-o", tmp_path / "b.sig")
    assert "differ in the schema of their columns" in refused("cluster", tmp_path / "a.sig", tmp_path / "b.sig")
    run("cluster", *clinics, "--schema", tmp_path / "a.json", "-o", tmp_path / "federation")
    newcomer = clinic(tmp_path, "new", 60, 9)
    assert "signed with a schema; give the same one with --schema" in refused("join", tmp_path / "federation", newcomer)
    assert "differ in the schema" in refused("join", tmp_path / "federation", newcomer, "--schema", tmp_path / "b.json")
    assert "3 columns are not all numbers: 'id'" in refused("sign", newcomer, "-o", tmp_path / "x.sig", "--drop", "ill")


def test_a_schema_applies_to_tables_only(tmp_path: Path, clinics: list[Path]) -> None:
    run("schema", "init", *clinics, "-o", tmp_path / "a.json")
    np.save(tmp_path / "a.npy", np.ones((5, 5)))
    why = refused("sign", tmp_path / "a.npy", "--schema", tmp_path / "a.json", "-o", tmp_path / "a.sig")
    assert "--schema applies to .csv, .tsv, .parquet, .pq files only" in why
    assert "NAME.json" in refused("schema", "init", *clinics, "-o", tmp_path / "schema.toml")
    assert "no folder" in refused("schema", "describe", clinics[0], "-o", tmp_path / "nowhere" / "a.json")


def test_a_table_can_be_signed_privately_with_its_schema(tmp_path: Path, clinics: list[Path]) -> None:
    run("schema", "init", *clinics, "-o", tmp_path / "a.json", "--labels", "ill")
    options: list[Any] = ["--schema", tmp_path / "a.json", "--epsilon", "2", "-o", tmp_path / "p.sig"]
    run("sign", clinics[0], *options)
    made = sigfile.read(tmp_path / "p.sig")
    assert made.privacy is not None
    assert made.schema is not None
    run("sign", clinics[0], *options, "--labels", "ill", "--classes", "no,yes")


def test_tables_are_clustered_trained_on_and_predicted_in_five_commands(tmp_path: Path, clinics: list[Path]) -> None:
    pytest.importorskip("torch")
    schema, runs = tmp_path / "schema.json", tmp_path / "runs"
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        f"""
        [data]
        name = "tables"
        clients = 6
        scheme = {{ kind = "natural" }}
        options = {{ files = "*.csv", schema = "{schema}" }}
        [model]
        name = "logistic"
        [schedule]
        rounds = 1
        [[algorithm]]
        name = "fedavg"
        """
    )
    run("schema", "init", *clinics, "-o", schema, "--labels", "ill", "--without-test")
    run("cluster", *clinics, "--schema", schema, "-o", tmp_path / "federation")
    done = json.loads(run("run", experiment, "--data", tmp_path, "--runs", runs, "--json").splitlines()[0])
    run("export", done["hash"], "--runs", runs, "-o", tmp_path / "models", "--format", "safetensors")
    run("predict", tmp_path / "models", clinics[0], "--client", "c0", "--schema", schema, "-o", tmp_path / "p.csv")
    header, first, *rest = (tmp_path / "p.csv").read_text().splitlines()
    assert header == "sample,class,p_no,p_yes"
    assert first.split(",")[1] in ("no", "yes")
    assert len(rest) == 149
