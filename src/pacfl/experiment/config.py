"""TOML -> settings that are checked -> runs, each with a hash of its content."""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pacfl import algorithms
from pacfl.data import build_scheme
from pacfl.federation.schedule import Schedule
from pacfl.learning.nets import NETS
from pacfl.learning.task import Learning

FORMAT: Final = 1  # of runs; a new one makes old results unfindable, so it changes only with their meaning


class ConfigError(ValueError):
    """Settings that cannot be, and what to do."""


@dataclass(frozen=True)
class Data:
    """Which data, and how they are divided among clients."""

    name: str = "digits"
    clients: int = 20
    scheme: Mapping[str, Any] = field(default_factory=lambda: {"kind": "iid"})
    sets: tuple[str, ...] = ()  # of a mixture
    disjoint_labels: bool | None = None  # of a mixture: every set has labels of its own

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ConfigError(f"data.clients must be at least 1, got {self.clients}")
        build_scheme(self.scheme)


@dataclass(frozen=True)
class Net:
    """Which network."""

    name: str = "mlp"

    def __post_init__(self) -> None:
        if self.name not in NETS:
            raise ConfigError(f"no model {self.name!r}{nearest(self.name, list(NETS))}; there are {', '.join(NETS)}")


@dataclass(frozen=True)
class Run:
    """One algorithm with one seed, everything said."""

    seed: int
    data: Data
    model: Net
    learning: Learning
    schedule: Schedule
    algorithm: Mapping[str, Any]  # name, and settings

    def content(self) -> dict[str, Any]:
        """All that decides the result, as plain values."""
        content: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True))
        return content

    @property
    def hash(self) -> str:
        """Name of this content."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()[:16]

    def label(self) -> str:
        """The algorithm in a few characters, with the settings that were given."""
        given = ", ".join(f"{k}={v}" for k, v in self.algorithm.items() if k != "name")
        name: str = self.algorithm["name"]
        return f"{name}({given})" if given else name


def read(path: Path, overrides: tuple[str, ...] = ()) -> list[Run]:
    """The runs of an experiment file; overrides such as data.clients=20 come before it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    for override in overrides:
        _override(table, override)
    return expand(table)


def expand(table: Mapping[str, Any]) -> list[Run]:
    """All runs that a table of settings asks for: a list where one value is wanted is a sweep."""
    _check_keys(table, {"seeds", "data", "model", "learning", "schedule", "algorithm"}, "the experiment")
    listed = table.get("algorithm", [])
    algorithms_asked = listed if isinstance(listed, list) else [listed]
    if not algorithms_asked:
        raise ConfigError("an experiment wants at least one [[algorithm]] with a name")
    seeds = table.get("seeds", [0])
    runs: dict[str, Run] = {}
    for entry in algorithms_asked:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str | list):
            raise ConfigError(f"every [[algorithm]] wants a name, got {entry!r}")
        own = {key: value for key, value in entry.items() if key != "learning"}
        sections = {
            "data": table.get("data", {}),
            "model": table.get("model", {}),
            "learning": {**table.get("learning", {}), **entry.get("learning", {})},
            "schedule": table.get("schedule", {}),
            "algorithm": own,
        }
        for chosen in _sweep(sections):
            for seed in seeds if isinstance(seeds, list) else [seeds]:
                run = _run(chosen, seed)
                runs[run.hash] = run
    if not runs:
        raise ConfigError("the experiment asks for no run: a list of seeds or values is empty")
    return list(runs.values())


def _run(sections: Mapping[str, Mapping[str, Any]], seed: Any) -> Run:
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seeds must be whole numbers from 0, got {seed!r}")
    algorithm = {_snake(key): value for key, value in sections["algorithm"].items()}
    try:
        algorithms.build(**algorithm)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from None
    return Run(
        seed,
        _section(Data, sections["data"], "data"),
        _section(Net, sections["model"], "model"),
        _section(Learning, sections["learning"], "learning"),
        _section(Schedule, sections["schedule"], "schedule"),
        algorithm,
    )


def _section(kind: type[Any], table: Mapping[str, Any], name: str) -> Any:
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{name}] must be a table, got {table!r}")
    table = {_snake(key): value for key, value in table.items()}
    known = {f.name: f for f in fields(kind)}
    _check_keys(table, set(known), f"[{name}]")
    values = {}
    for key, value in table.items():
        default = known[key].default if known[key].default is not MISSING else None
        value = tuple(value) if isinstance(value, list) else value
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if default is not None and not isinstance(value, type(default)):
            raise ConfigError(f"{name}.{key} must be {type(default).__name__}, got {value!r}")
        if key in ("joins", "leaves", "reprofile"):
            value = {int(t): tuple(clients) for t, clients in value.items()}
        values[key] = value
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"[{name}] {error}") from None


LISTS: Final = frozenset({("data", "sets")})  # settings that are lists themselves


def _sweep(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    swept = [
        (section, key, value)
        for section, table in sections.items()
        if isinstance(table, Mapping)
        for key, value in table.items()
        if isinstance(value, list) and (section, _snake(key)) not in LISTS
    ]
    for values in itertools.product(*(value for _, _, value in swept)):
        chosen = {section: dict(table) for section, table in sections.items()}
        for (section, key, _), value in zip(swept, values, strict=True):
            chosen[section][key] = value
        yield chosen


def _override(table: dict[str, Any], text: str) -> None:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set wants KEY=VALUE such as data.clients=20, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    *sections, key = path.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {text}: {section} is not a table; edit the file instead")
    table[key] = parsed


def _check_keys(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(
                f"{where} has no setting {key!r}{nearest(key, sorted(known))}; it has {', '.join(sorted(known))}"
            )


def nearest(word: str, known: list[str]) -> str:
    """A hint at the known word that was probably meant."""
    close = get_close_matches(word, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _snake(key: str) -> str:
    return key.replace("-", "_")
