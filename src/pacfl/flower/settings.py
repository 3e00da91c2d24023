"""Flower's run_config -> settings that are checked: those of an experiment, and those of a federation of real sites."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pacfl.errors import ConfigError
from pacfl.experiment.config import Run, expand
from pacfl.settings import Positive, PositiveInt, build, check


@dataclass(frozen=True)
class Federation:
    """What a deployed federation needs to be told beside the experiment."""

    folder: str = "federation"  # where the server keeps models, clusters and what happened
    task: str = "pacfl.flower.digits"  # the module with load_data(context) and build_model()
    minimum_clients: PositiveInt = 2  # present, before a round is played
    deadline: Positive = 300.0  # seconds in which a client has to answer
    poll: Positive = 0.5  # seconds between two looks for answers
    identity: Literal["key", "partition-id"] = "key"  # "partition-id" is for simulations: it is a claim

    def __post_init__(self) -> None:
        check(self)

    @property
    def path(self) -> Path:
        """The folder, wherever the server was started."""
        return Path(self.folder).expanduser().absolute()


def read(run_config: Mapping[str, Any]) -> tuple[Federation, Run]:
    """The two kinds of settings.

    Flower lets a user overrule only what the app's file names. Everything else goes into `settings`, in TOML with
    semicolons for new lines: settings="algorithm.mu = 0.1; learning.lr = 0.05".
    """
    table = _nested(run_config)
    _merge(table, _parsed(str(table.pop("settings", ""))))
    federation = build(Federation, table.pop("federation", {}), "federation")
    table["seeds"] = [table.pop("seed", 0)]
    runs = expand(table)
    if len(runs) != 1:
        raise ConfigError(f"a federation is one run, the settings describe {len(runs)}")
    return federation, runs[0]


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, key = path.split(".")
        part = table
        for parent in parents:
            part = part.setdefault(parent, {})
        part[key] = value
    return table


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace(";", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"settings must be TOML such as algorithm.mu = 0.1; learning.lr = 0.05: {error}") from None


def _merge(table: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = value
