"""Tables signed with a schema: columns travel in files and folders, and a column that differs is found and named."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import SignatureError
from pacfl.features import Reading, init_schema
from pacfl.signatures import cluster_files, explain_pair, join_files, sigfile, sign_file
from pacfl.signatures.folder import load

NAMES = ("age", "height", "sodium", "outcome")


def write_site(path: Path, seed: int, age: float = 60.0, unit: float = 1.0, n: int = 80) -> Path:
    """A hospital whose outcome depends on sodium; its height is in some unit."""
    rng = np.random.default_rng(seed)
    ages, sodium = rng.normal(age, 15, n), rng.normal(140, 3, n)
    outcome = np.where(sodium + rng.normal(0, 3, n) > 140, "yes", "no")
    with path.open("w", newline="") as file:
        rows = zip(ages.round(1), (rng.normal(170, 10, n) * unit).round(3), sodium.round(1), outcome, strict=True)
        csv.writer(file).writerows([NAMES, *rows])
    return path


@pytest.fixture
def sites(tmp_path: Path) -> list[Path]:
    """Four hospitals of adults and two of children."""
    return [write_site(tmp_path / f"site{i}.csv", i, 60.0 if i < 4 else 8.0) for i in range(6)]


@pytest.mark.parametrize("labels", [None, "outcome"])
def test_children_and_adults_are_two_clusters_and_age_is_named(
    sites: list[Path], tmp_path: Path, labels: str | None
) -> None:
    schema = init_schema(sites, labels=labels)
    how = Reading(schema=schema, labels=labels)
    federation = cluster_files(sites, reading=how, output=tmp_path / "federation")
    assert federation.clustering.labels.tolist() == [0, 0, 0, 0, 1, 1]
    found = explain_pair(tmp_path / "federation", "site0", "site5")
    assert found.features[0].name == "age"
    assert "site0 and site5 differ in age, " in found.words
    newcomers = [write_site(tmp_path / f"new{i}.csv", 20 + i, age) for i, age in enumerate((60.0, 8.0, 300.0))]
    files = [tmp_path / f"{path.stem}.sig" for path in newcomers]
    for path, file in zip(newcomers, files, strict=True):
        sign_file(path, file, reading=how)
    joined = join_files(tmp_path / "federation", files)
    assert joined.placed == {"new0": 0, "new1": 1, "new2": 2}


@pytest.mark.parametrize("labels", [None, "species"])
def test_species_of_iris_are_three_clusters_whatever_the_order_of_columns(tmp_path: Path, labels: str | None) -> None:
    from sklearn.datasets import load_iris

    iris, rng = load_iris(), np.random.default_rng(0)
    sites = []
    for k in range(3):
        for i, own in enumerate(np.array_split(rng.permutation(np.flatnonzero(iris.target == k)), 2)):
            order = [0, 1, 2, 3] if i else [2, 0, 3, 1]
            rows = [[*row, f"species {k}"][: 5 if labels else 4] for row in iris.data[own][:, order].tolist()]
            sites.append(tmp_path / f"{k}{i}.csv")
            with sites[-1].open("w", newline="") as file:
                header = [iris.feature_names[j] for j in order]
                csv.writer(file).writerows([[*header, *([labels] if labels else [])], *rows])
    found = cluster_files(sites, reading=Reading(schema=init_schema(sites, labels=labels)))
    assert found.clustering.labels.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("labels", [None, "outcome"])
def test_another_unit_is_named_with_its_factor(tmp_path: Path, labels: str | None) -> None:
    sites = [write_site(tmp_path / f"site{i}.csv", i, unit=1.0 if i < 3 else 1 / 2.54) for i in range(6)]
    federation = cluster_files(sites, reading=Reading(schema=init_schema(sites, labels=labels)), output=tmp_path / "f")
    assert federation.clustering.labels.tolist() == [0, 0, 0, 1, 1, 1]
    of_clients = explain_pair(tmp_path / "f", "site0", "site5")
    of_clusters = explain_pair(tmp_path / "f", 1, 0, between="clusters")
    for found, expected in ((of_clients, 2.54), (of_clusters, 1 / 2.54)):
        assert found.features[0].name == "height"
        assert found.features[0].factor == pytest.approx(expected, rel=0.05)
        assert "height (different unit? its values differ by a factor of about 2.5" in found.words
    assert "different unit?" in federation.answer


def test_files_and_folders_return_the_columns_that_were_signed(sites: list[Path], tmp_path: Path) -> None:
    how = Reading(schema=init_schema(sites, labels="outcome"), labels="outcome")
    signed = [sign_file(path, path.with_suffix(".sig"), reading=how) for path in sites]
    read = [sigfile.read(path.with_suffix(".sig")) for path in sites]
    cluster_files([path.with_suffix(".sig") for path in sites], output=tmp_path / "federation")
    stored = [one.table for one in load(tmp_path / "federation").descriptions]
    for made, *others in zip((one.table for one in signed), (one.table for one in read), stored, strict=True):
        assert made is not None
        assert made.names == ("no", "yes")
        for other in others:
            assert other is not None
            assert (other.names, other.counts.tolist()) == (made.names, made.counts.tolist())
            assert np.array_equal(other.means, made.means)
            assert np.array_equal(other.variances, made.variances)
            assert made.zeros is not None
            assert other.zeros is not None
            assert np.array_equal(other.zeros, made.zeros)


def test_hashed_names_of_classes_hide_those_of_columns_too(sites: list[Path], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    how = Reading(schema=init_schema(sites, labels="outcome"), labels="outcome", hash_labels=key)
    signed = sign_file(sites[0], tmp_path / "a.sig", reading=how)
    assert signed.table is not None
    assert signed.classes is not None
    assert signed.table.names == signed.classes.names
    assert "yes" not in signed.table.names


def test_a_private_signature_has_no_columns(sites: list[Path], tmp_path: Path) -> None:
    signed = sign_file(sites[0], tmp_path / "a.sig", reading=Reading(schema=init_schema(sites)), epsilon=2.0)
    assert signed.table is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": None}, "without a schema"),
        ({"counts": [10**6]}, "more samples than it has"),
        ({"means": 91.0}, "not -90 to 90 degrees"),
        ({"variances": -1.0}, "variances of columns"),
        ({"variances": np.nan}, "variances of columns"),
        ({"names": ("b", "a")}, "not distinct texts in order"),
        ({"zeros": [0.0]}, "zeros of columns that are not 6 numbers"),
    ],
)
def test_columns_that_sign_would_not_write_are_refused(
    sites: list[Path], tmp_path: Path, change: dict[str, object], message: str
) -> None:
    signed = sign_file(sites[0], tmp_path / "a.sig", reading=Reading(schema=init_schema(sites)))
    table = signed.table
    assert table is not None
    match change:
        case {"schema": None}:
            signed = replace(signed, schema=None)
        case {"counts": counts}:
            table = replace(table, counts=np.array(counts))
        case {"zeros": list() as zeros}:
            table = replace(table, zeros=np.array(zeros))
        case {"names": tuple() as names}:
            twice = {part: np.concatenate([getattr(table, part)] * 2) for part in ("counts", "means", "variances")}
            table = replace(table, names=names, **{**twice, "counts": twice["counts"] // 2})
        case {**parts}:
            (part, value), *_ = parts.items()
            table = replace(table, **{str(part): np.full_like(table.means, value)})
    sigfile.write(tmp_path / "b.sig", replace(signed, table=table))
    with pytest.raises(SignatureError, match=message):
        sigfile.read(tmp_path / "b.sig")
