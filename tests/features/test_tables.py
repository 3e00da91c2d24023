import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from pacfl.errors import DataError
from pacfl.features.cells import MISSING, typed
from pacfl.features.reading import Reading, read_samples
from pacfl.features.tables import kind_of, read_table, row_of, stem_of, text_columns
from pacfl.signatures import cluster_files

TEXT = "größe,name,alt\n1.5,Müller,True\n2.5,Café,False\n"


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
def test_the_encoding_of_a_file_does_not_change_its_table(tmp_path: Path, encoding: str) -> None:
    table = read_table(write(tmp_path / "a.csv", TEXT, encoding))
    assert table.to_pydict() == {"größe": [1.5, 2.5], "name": ["Müller", "Café"], "alt": [True, False]}


def test_bytes_that_windows_does_not_use_are_still_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\nx\x81,1\n")
    assert read_table(tmp_path / "a.csv").to_pydict() == {"a": ["x\x81"], "b": [1]}


@pytest.mark.parametrize("content", [b"a,b\n1,\x00\x01\n", "a,b\n1,2\n".encode("utf-16-le")])
def test_what_is_not_text_is_refused_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"not text.*UTF-8"):
        read_samples(tmp_path / "a.csv", Reading())


def zstd(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", zstd)])
def test_a_compressed_file_is_read_as_what_it_holds(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"site.csv.{suffix}"
    path.write_bytes(pack(b"a;b\n1,5;2\n3,5;4\n"))
    assert read_samples(path, Reading(drop=("b",))).x.tolist() == [[1.5], [3.5]]
    assert stem_of(path) == "site"


def test_clients_are_named_without_what_says_how_a_file_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        rows = "\n".join(",".join(f"{v:.3f}" for v in row) for row in rng.normal(size=(60, 4)))
        (tmp_path / f"{name}.v2.csv.gz").write_bytes(gzip.compress(f"a,b,c,d\n{rows}\n".encode()))
    assert cluster_files(sorted(tmp_path.iterdir())).names == ("one.v2", "two.v2")
    assert [kind_of(Path(name)) for name in ("a.b.CSV", "a.gz", "a", "a.tsv.bz2")] == [".csv", ".gz", "", ".tsv.bz2"]


@pytest.mark.parametrize("name", ["a.xlsx", "a.XLS", "a.ods"])
def test_workbooks_are_refused_with_a_hint(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match="save the sheet as CSV"):
        read_samples(tmp_path / name, Reading())
    (tmp_path / "renamed.csv").write_bytes(b"PK\x03\x04workbook")
    with pytest.raises(DataError, match=r"workbook.*save it as CSV"):
        read_samples(tmp_path / "renamed.csv", Reading())


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["1", " 2.5", "+3", "-4e2", ".5"], [1, 2.5, 3, -400, 0.5]),
        (["1,5", "2", "-3,25"], [1.5, 2, -3.25]),
        (["True", "FALSE", "true"], [True, False, True]),
        (["1,234", "5,678"], ["1,234", "5,678"]),
        (["1,5", "2.5"], ["1,5", "2.5"]),
        (["1,5", "x"], ["1,5", "x"]),
        (["True", "yes"], ["True", "yes"]),
        (["2024-13-01", "2024-02-01"], ["2024-13-01", "2024-02-01"]),
        ([" x ", "y"], ["x", "y"]),
    ],
)
def test_cells_of_text_become_what_they_say(cells: list[str], wanted: list[object]) -> None:
    """1,234 may be a thousand or a little more than one, and a year has no month 13: they stay text."""
    assert typed(pa.chunked_array([cells])).to_pylist() == wanted


def test_commas_are_decimal_where_they_do_not_separate_cells(tmp_path: Path) -> None:
    assert read_table(write(tmp_path / "a.csv", "a;b\n1,234;x\n5,678;y\n")).column("a").to_pylist() == [1.234, 5.678]


@pytest.mark.parametrize("cell", ["2024-02-29", "29.02.2024", "02/29/2024", "2024-02-29 12:30", "2024-02-29T12:30:01"])
def test_dates_are_recognised(cell: str) -> None:
    assert pa.types.is_timestamp(typed(pa.chunked_array([[cell, "NA", cell]])).type)


@given(st.lists(st.one_of(st.sampled_from(MISSING), st.floats(-1e6, 1e6).map(repr)), min_size=1))
def test_missing_cells_are_null_and_the_others_numbers(cells: list[str]) -> None:
    wanted = [None if cell in MISSING else float(cell) for cell in cells]
    assert typed(pa.chunked_array([cells])).to_pylist() == wanted


def test_a_column_without_any_value_has_no_type(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.csv", "a,b\nNA,1\n?,2\n"))
    assert table.schema.types == [pa.null(), pa.float64()]


def test_all_columns_that_are_not_numbers_are_named_at_once_with_their_rows(tmp_path: Path) -> None:
    """Rows as a spreadsheet counts them: the header is row 1, blank lines count, a quoted line end does not."""
    path = write(tmp_path / "a.csv", 'id,a,b,c,d\n1,"x\ny",1,2,True\n\n2,3,,2,False\n3,4,5,1e400,\n')
    with pytest.raises(DataError) as caught:
        read_samples(path, Reading())
    assert "4 columns are not all numbers" in str(caught.value)
    for part in ("'a' ('x\\ny' in row 2)", "'b' (an empty cell in row 4)", "'c' ('1e400' in row 5)", "'d' (an empty"):
        assert part in str(caught.value), part
    assert "'id'" not in str(caught.value)
    assert read_samples(path, Reading(drop=("a", "b", "c", "d"))).x.tolist() == [[1], [2], [3]]


def test_truth_values_are_features(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b\n1,TRUE\n2,false\n")
    assert read_samples(path, Reading()).x.tolist() == [[1, 1], [2, 0]]


def test_a_first_row_of_numbers_and_gaps_is_a_sample(tmp_path: Path) -> None:
    assert read_table(write(tmp_path / "a.csv", "63.0,1.0,?\n41,0,2\n")).num_rows == 2


def test_names_may_have_line_ends_and_may_be_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '"","size\n(m)"\n1,2\n3,5\n')
    assert read_samples(path, Reading()).columns == ("unnamed 1", "size\n(m)")
    assert read_samples(path, Reading(drop=("",))).x.tolist() == [[2], [5]]
    assert row_of(read_table(path), 1) == 3


def test_columns_of_the_same_name_are_refused(tmp_path: Path) -> None:
    """By name, however the table is read; nobody can say which of them is meant."""
    twice = write(tmp_path / "a.csv", "a,b,a,y\n1,2,3,0\n4,5,6,1\n")
    whole = tmp_path / "a.parquet"
    parquet.write_table(pa.table([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0], ["p", "q"]], names=["a", "b", "a", "y"]), whole)
    for path in (twice, whole):
        with pytest.raises(DataError, match="'a' names several columns; rename"):
            read_table(path)
        with pytest.raises(DataError, match=r"'a' names several columns; rename all but one of each, or .* --drop"):
            read_samples(path, Reading(drop=("y",)))
        with pytest.raises(DataError, match="'a' names several columns"):
            read_samples(path, Reading(drop=("y",), labels="a"))
        with pytest.raises(DataError, match="'a' names several columns; rename"):
            text_columns(path, ["y", "a"])
        assert text_columns(path, ["y"])[0][0] in ("p", "0"), "the others do not matter"
    assert read_samples(twice, Reading(drop=("a",))).x.tolist() == [[2, 0], [5, 1]]
    assert read_samples(whole, Reading(drop=("a", "y"))).x.tolist() == [[2], [5]]


def test_a_sample_that_looks_like_a_header_with_equal_names_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "1,1,low\n2,3,high\n")
    with pytest.raises(DataError, match=r"'1' names several columns; .* if the first row is a sample: --no-header"):
        read_samples(path, Reading(labels="low"))
    assert read_samples(path, Reading(labels="2", header=False)).x.tolist() == [[1, 1], [2, 3]]


def test_parquet_and_csv_give_the_same_table(tmp_path: Path) -> None:
    columns = {"n": [1, None, 3], "t": ["x", "NA", "y"], "b": [True, False, None], "f": [0.5, float("nan"), 2.0]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    path = write(tmp_path / "a.csv", "n,t,b,f\n1,x,True,.5\n,NA,False,NaN\n3,y,,2\n")
    assert read_table(tmp_path / "a.parquet").equals(read_table(path))
    with pytest.raises(DataError, match=r"4 columns are not all numbers: 'n' \(an empty cell\), 't' \('x'\), 'b'"):
        read_samples(tmp_path / "a.parquet", Reading())
