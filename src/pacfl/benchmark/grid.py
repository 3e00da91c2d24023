"""The grid of methods and shifts, from grid.toml: which runs it asks for."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pacfl import algorithms, plugins
from pacfl.errors import ConfigError
from pacfl.experiment.config import Run, expand
from pacfl.settings import PositiveInt, build, suggestion

Scale = Literal["quick", "full"]
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)
Table = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """A row of the grid: an algorithm with settings, and what is tuned of it beside the learning rate."""

    name: str
    algorithm: Table
    tune: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """Whether it must be given a number of clusters, and so gets the true one."""
        own = {f.name: f for f in fields(algorithms.find(self.algorithm["name"]))}.get("clusters")
        return own is not None and own.default is not None and "clusters" not in self.algorithm


@dataclass(frozen=True)
class Shift:
    """How clients differ."""

    name: str
    title: str
    data: Table
    clusters: PositiveInt  # what methods get that must be given a number
    images: bool = False  # whether it needs images
    sizes: tuple[PositiveInt, ...] = ()  # also with so many clients, at full scale


@dataclass(frozen=True)
class Tuning:
    """Short runs on held-out training samples, as many for every method."""

    rounds: PositiveInt
    validation: float
    lr: tuple[float, ...]
    lr_beside: tuple[float, ...]  # of methods with a setting of their own to tune


@dataclass(frozen=True)
class Settings:
    """What all runs of a scale have in common."""

    data_set: str
    seeds: PositiveInt
    data: Table
    learning: Table
    schedule: Table
    shifts: tuple[str, ...] = ()  # by default; none: all of the data set
    sizes: bool = False  # whether shifts are also run with other numbers of clients
    tuning: Table | None = None


@dataclass(frozen=True)
class Column:
    """A shift of a data set with a number of clients: a column of the table."""

    data_set: str
    shift: Shift
    clients: int
    usual: bool = True  # whether it is the number of clients of the scale

    @property
    def name(self) -> str:
        """The shift, and the number of clients if it is not the usual one."""
        return self.shift.name if self.usual else f"{self.shift.name}/{self.clients}"


@dataclass(frozen=True, eq=False)
class Planned:
    """A run and its place in the grid."""

    column: Column
    method: Method
    run: Run


@cache
def grid() -> Table:
    """The tables of grid.toml."""
    return tomllib.loads(Path(__file__).with_name("grid.toml").read_text(encoding="utf-8"))


def scale_of(word: str) -> Scale:
    """The scale of a name."""
    found = next((scale for scale in SCALES if scale == word), None)
    if found is None:
        raise ConfigError(f"there is no scale {word!r}{suggestion(word, SCALES)}")
    return found


def settings(scale: Scale) -> Settings:
    """What all runs of a scale have in common."""
    return build(Settings, grid()["scales"][scale], "scales")


def methods(names: Sequence[str] = ()) -> list[Method]:
    """The methods of these names, or all; those of the user's own, as module:Class, are added to the others."""
    known = {name: _method(name, grid()["methods"].get(name, {})) for name in (*algorithms.NAMES, *grid()["methods"])}
    own = [name for name in dict.fromkeys(names) if name not in known]
    if own:
        plugins.search_in(Path.cwd())
    for name in own:
        if plugins.import_path("algorithms", name) is None:
            raise ConfigError(f"there is no method {name!r}{suggestion(name, known)}; or name a class as module:Class")
        algorithms.build(name)  # an error in it is not one of the grid
    asked = [one for name, one in known.items() if name in names] or list(known.values())
    return [*asked, *(Method(name, {"name": name}) for name in own)]


def _method(name: str, table: Table) -> Method:
    return build(Method, {"algorithm": {"name": name}, **table, "name": name}, "methods")


def columns(scale: Scale, data_set: str | None = None, names: Sequence[str] = ()) -> list[Column]:
    """The columns of these names at a scale, or all that the scale has for the data set."""
    usual = settings(scale)
    data_set = data_set or usual.data_set
    n = usual.data["clients"]
    found = _shifts(data_set)
    every = [Column(data_set, shift, n) for shift in found.values()]
    every += [Column(data_set, shift, size, False) for shift in found.values() for size in shift.sizes]
    known = {column.name: column for column in every}
    for name in names:
        if name not in known:
            raise ConfigError(f"{data_set} has no shift {name!r}{suggestion(name, known)}")
    asked = names or [c.name for c in every if (c.usual or usual.sizes) and c.name in (usual.shifts or known)]
    return [known[name] for name in dict.fromkeys(asked)]


def _shifts(data_set: str) -> dict[str, Shift]:
    """The shifts of a data set by name: those of all sets but for what it cannot have, and its own."""
    table = _data_set(data_set)
    tables = {**grid()["shifts"], **table.get("shifts", {})}
    shifts = {name: build(Shift, {**own, "name": name}, "shifts") for name, own in tables.items()}
    without = table.get("without", ())
    return {
        name: s for name, s in shifts.items() if name not in without and (table.get("images", True) or not s.images)
    }


def _data_set(name: str) -> Table:
    known = grid()["data-sets"]
    if name not in known:
        raise ConfigError(f"the grid has no data set {name!r}{suggestion(name, known)}")
    found: Table = known[name]
    return found


def planned(scale: Scale, column: Column, method: Method, seed: int) -> Planned:
    """One run of the grid, with the settings of the scale."""
    usual, table = settings(scale), _data_set(column.data_set)
    data = {**usual.data, **table["data"], **column.shift.data, "clients": column.clients}
    given = {"clusters": column.shift.clusters} if method.given else {}
    (run,) = expand(
        {
            "seeds": [seed],
            "data": data if "drift" not in data else {**data, "drift": {**data["drift"], "round": 1}},
            "model": table["model"],
            "learning": usual.learning,
            "schedule": usual.schedule,
            "algorithm": {**method.algorithm, **given},
        }
    )
    return Planned(column, method, with_drift_at_half_time(run))


def with_drift_at_half_time(run: Run) -> Run:
    """The run with its drift, if it has one, before the second half of its rounds."""
    if run.data.drift is None:
        return run
    half = run.schedule.rounds // 2 + 1
    return replace(run, data=replace(run.data, drift={**run.data.drift, "round": half}))


def every_run(
    scale: Scale, of: Sequence[Column], by: Sequence[Method], n_seeds: int | None = None
) -> Iterator[list[Planned]]:
    """For each seed and column the runs of all methods: one seed of everything before the next of anything."""
    for seed in range(n_seeds or settings(scale).seeds):
        for column in of:
            yield [planned(scale, column, method, seed) for method in by]
