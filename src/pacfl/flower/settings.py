"""Flower's run_config -> checked settings of an experiment and of its deployment."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pacfl.errors import ConfigError
from pacfl.experiment.config import Run, expand
from pacfl.settings import NonNegative, Positive, PositiveInt, build, check


@dataclass(frozen=True)
class DeploymentSettings:
    """The settings of a deployed federation beside those of an experiment; [federation] in TOML."""

    folder: str = "federation"  # where the server stores models, clusters and records
    task: str = "pacfl.flower.digits"  # the module with load_data(context) and build_model()
    minimum_clients: PositiveInt = 2  # that the first clustering waits for; `pacfl deploy init` writes all sites
    quorum: PositiveInt | Literal["majority"] = "majority"  # that later rounds wait for; of minimum_clients
    deadline: Positive = 300.0  # seconds within which a client has to reply
    poll: Positive = 0.5  # seconds between two checks for replies
    delivery: NonNegative = 86_400.0  # seconds at the end in which sites that were away may still get their models
    log: Literal["text", "json"] = "text"  # how events are logged: in lines for people, or in JSON
    identity: Literal["key", "partition-id"] = "key"  # "partition-id" is a claim of the client, for simulations

    def __post_init__(self) -> None:
        check(self)

    def awaited(self, first: bool) -> int:
        """How many clients a round waits for; first: none has a cluster yet."""
        if first:
            return self.minimum_clients
        return self.minimum_clients // 2 + 1 if self.quorum == "majority" else self.quorum

    @property
    def path(self) -> Path:
        """The absolute path of the folder, relative to where the server was started."""
        return Path(self.folder).expanduser().absolute()


def read(run_config: Mapping[str, Any]) -> tuple[DeploymentSettings, Run]:
    """The settings of the deployment and of the run.

    Flower lets a user override only settings that the app's file names. All others go into `settings`, in TOML with
    semicolons for new lines: settings="algorithm.mu = 0.1; learning.lr = 0.05". Nor does it take lists: metrics are
    names with commas.
    """
    table = _nested(run_config)
    _merge(table, _parsed(str(table.pop("settings", ""))))
    if isinstance(names := table.get("evaluation", {}).get("metrics"), str):
        table["evaluation"]["metrics"] = [name.strip() for name in names.split(",") if name.strip()]
    deployment = build(DeploymentSettings, table.pop("federation", {}), "federation")
    table["seeds"] = [table.pop("seed", 0)]
    runs = expand(table)
    if len(runs) != 1:
        raise ConfigError(
            f"a federation is one run, but the settings describe {len(runs)}; give single values instead of lists"
        )
    if runs[0].algorithm.get("signature_key") is not None:
        raise ConfigError(
            "algorithm.signature-key does not apply to a federation: the key never travels; set signature-key in the "
            "site.config of every site, and leave it out here"
        )
    if not isinstance(runs[0].data.test, str):
        raise ConfigError(
            f"data.test = {list(runs[0].data.test)} does not apply to a federation: every site has one set of test "
            "samples; leave it out"
        )
    if not runs[0].schedule.final_personal:
        raise ConfigError(
            "final-personal = false does not apply to a federation: sites get their personal models at the end"
        )
    return deployment, runs[0]


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
