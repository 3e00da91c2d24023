"""Data of any kind -> features: samples as numbers, with their labels, groups and names.

`read_samples` reads a file or a folder as a `Reading` says. Parties agree on what the columns of their tables are by a
`Schema`: `describe_file` says what one shares, `init_schema` merges what all share.
"""

from pacfl.features.description import TableDescription, read_description
from pacfl.features.making_schema import describe_file, init_schema
from pacfl.features.reading import PREPROCESSES, Preprocess, Reading, Samples, preprocessed, read, read_samples
from pacfl.features.schema import Encoded, MissingValuesWarning, Schema, read_schema, write_schema
from pacfl.features.tables import read_table

__all__ = [
    "PREPROCESSES",
    "Encoded",
    "MissingValuesWarning",
    "Preprocess",
    "Reading",
    "Samples",
    "Schema",
    "TableDescription",
    "describe_file",
    "init_schema",
    "preprocessed",
    "read",
    "read_description",
    "read_samples",
    "read_schema",
    "read_table",
    "write_schema",
]
