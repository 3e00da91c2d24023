"""A federation of tables: the data and the model of a site follow from the schema that all parties agreed on."""

import pprint
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from flwr.app import Context
from torch import nn

from pacfl.errors import DataError
from pacfl.features import Schema, read_table
from pacfl.features.schema import from_contents
from pacfl.features.splitting import rows_for_testing
from pacfl.flower.site import Site
from pacfl.learning.nets import logistic, mlp

MODULE: Final = "table_task"


def table_task(
    contents: Mapping[str, Any], hidden: int = 0
) -> tuple[Callable[[Context], Site], Callable[[], nn.Module]]:
    """load_data and build_model for the contents of a schema; hidden: units of an MLP, 0 for a linear model.

    The operator of a site names its table in site.config: data="/srv/patients.csv". Every fifth row is for testing, or
    every fifth group.
    """
    schema = from_contents(dict(contents))
    if schema.labels is None:
        raise DataError("the schema names no column to predict; make one with 'pacfl schema init --labels COLUMN'")
    n_outputs = max(len(schema.labels.classes), 1)

    def load_data(context: Context) -> Site:
        if "data" not in context.node_config:
            raise DataError('the site does not say where its table is; write data="/path/table.csv" into site.config')
        path = Path(str(context.node_config["data"])).expanduser()
        try:
            return _site(path, schema)
        except DataError as error:
            raise DataError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None

    def build_model() -> nn.Module:
        shape = (1, 1, len(schema.features))
        return mlp(shape, n_outputs, hidden) if hidden else logistic(shape, n_outputs)

    return load_data, build_model


def task_module(schema: Schema) -> str:
    """A module with the two functions, which goes to the sites with the app."""
    contents = pprint.pformat(schema.as_json(), width=100, sort_dicts=False)
    return (
        '"""The data and the model of this federation, by the schema of its tables; hidden=64 makes it an MLP."""\n\n'
        f"from pacfl.flower.tables import table_task\n\nSCHEMA = {contents}\n\n"
        "load_data, build_model = table_task(SCHEMA, hidden=0)\n"
    )


def _site(path: Path, schema: Schema) -> Site:
    if not path.is_file():
        raise DataError("there is no such table; correct data=... in site.config")
    table = read_table(path)
    x, groups = schema.encode(table).x, schema.groups(table)
    classes = schema.labels is not None and schema.labels.kind == "classes"
    y = schema.class_codes(table) if classes else schema.scaled_values(table)
    test = rows_for_testing(len(y), groups)
    of_training = None if groups is None else groups[~test]
    return Site(x[~test], y[~test], x[test], y[test], groups=of_training, is_table=True)
