"""Schemas, descriptions and tables that were damaged or made up are refused with words, or read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacfl.errors import DataError
from pacfl.features import Reading, init_schema, read_description, read_samples, read_schema
from pacfl.features.description import describe
from pacfl.features.merging import merged
from tests.fuzz.damage import damaged, examples, refused_or_read, rewritten

often = examples(60)
TABLE = pa.table(
    {
        "age": [float(v) for v in np.random.default_rng(0).normal(50, 9, 40)],
        "sex": ["f", "m"] * 20,
        "dose": [None if i % 4 == 0 else i / 7 for i in range(40)],
        "outcome": ["ill", "well"] * 20,
    }
)
DESCRIPTION = describe(TABLE, labels="outcome")
SCHEMA = merged({"a": DESCRIPTION})
CSV = "age,sex,outcome\n" + "".join(f"{40 + i},{'fm'[i % 2]},{'iw'[i % 2]}\n" for i in range(20))

pytestmark = pytest.mark.filterwarnings("ignore::pacfl.features.MissingValuesWarning")


@often
@given(data=st.data())
def test_a_rewritten_schema_is_refused_or_encodes_the_table(tmp_path: Path, data: st.DataObject) -> None:
    contents: Any = data.draw(rewritten(json.loads(json.dumps(SCHEMA.as_json()))))
    (tmp_path / "a.json").write_text(json.dumps(contents))
    schema = refused_or_read(lambda: read_schema(tmp_path / "a.json"), DataError)
    if schema is not None:
        encoded = refused_or_read(lambda: schema.encode(TABLE), DataError)
        assert encoded is None or np.isfinite(encoded.x).all()


@often
@given(data=st.data())
def test_a_rewritten_description_is_refused_or_makes_a_schema(tmp_path: Path, data: st.DataObject) -> None:
    contents: Any = data.draw(rewritten(json.loads(json.dumps(DESCRIPTION.as_json()))))
    (tmp_path / "a.json").write_text(json.dumps(contents))
    description = refused_or_read(lambda: read_description(tmp_path / "a.json"), DataError)
    if description is not None:
        schema = refused_or_read(lambda: merged({"a": description, "b": DESCRIPTION}), DataError)
        assert schema is None or schema.features


@often
@given(content=damaged(json.dumps(SCHEMA.as_json()).encode()))
def test_a_damaged_schema_is_refused_or_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    refused_or_read(lambda: read_schema(tmp_path / "a.json"), DataError)


@pytest.mark.filterwarnings("ignore::pacfl.features.making_schema.MistypedWarning")
@often
@given(content=damaged(CSV.encode()))
def test_a_damaged_table_is_refused_or_described(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    schema = refused_or_read(lambda: init_schema([tmp_path / "a.csv"]), DataError)
    if schema is not None:
        refused_or_read(lambda: read_samples(tmp_path / "a.csv", Reading(schema=schema)), DataError)
