"""Sweeps: a list where a setting takes a single value stands for one run with each of its values.

A setting whose annotation accepts a list is a list itself. There a list of lists is a sweep.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, Final, TypeVar, get_type_hints

from pacfl import algorithms, plugins
from pacfl.data import Groups, find_scheme
from pacfl.errors import ConfigError
from pacfl.learning.nets import NETS
from pacfl.settings import list_depth

MOST_RUNS: Final = 100_000  # of one entry and seed

Table = Mapping[str, Any]
K = TypeVar("K")


def sweep(sections: Mapping[str, Table], kinds: Mapping[str, type]) -> Iterator[dict[str, dict[str, Any]]]:
    """All combinations of the swept values of the sections; kinds: the dataclasses that sections are settings of."""
    depths = {name: _depths(kind) for name, kind in kinds.items()}
    depths["model"] = _named_depths(sections["model"].get("name", []), lambda name: plugins.find("models", name, NETS))
    depths["algorithm"] = _named_depths(sections["algorithm"]["name"], algorithms.find)
    sections = {**sections, "data": _with_variants(sections["data"], "scheme", _schemes)}
    flat = {(name, key): value for name, table in sections.items() for key, value in table.items()}
    for chosen in _combinations(flat, lambda place: depths.get(place[0], {}).get(_snaked(place[1]), 0), ".".join):
        yield {name: {key: chosen[name, key] for key in table} for name, table in sections.items()}


def _schemes(table: Table) -> list[dict[str, Any]]:
    """The schemes that a table of a scheme stands for."""
    depths = _named_depths(table.get("kind", []), find_scheme)
    table = _with_variants(table, "groups", _groups)
    return list(_combinations(table, lambda key: depths.get(_snaked(key), 0), "data.scheme.{}".format))


def _groups(table: Table) -> list[dict[str, Any]]:
    depths = _depths(Groups)
    return list(_combinations(table, lambda key: depths.get(_snaked(key), 0), "data.scheme.groups.{}".format))


def _with_variants(table: Table, key: str, variants: Callable[[Table], list[dict[str, Any]]]) -> Table:
    """The table with a list of variants for a table in it, or for each of a list of tables, unless it has none."""
    given = table.get(key)
    listed = given if isinstance(given, list) else [given]
    found = [variant for one in listed for variant in (variants(one) if isinstance(one, Mapping) else [one])]
    return table if found == listed else {**table, key: found}


def _combinations(
    table: Mapping[Any, Any], depth_of: Callable[[Any], int], name: Callable[[Any], str]
) -> Iterator[Any]:
    """The table with each combination of the values of its lists that are sweeps."""
    swept = {k: v for k, v in table.items() if isinstance(v, list) and _depth(v) > depth_of(k)}
    asked = math.prod(len(values) for values in swept.values())
    if asked > MOST_RUNS:
        lists = ", ".join(map(name, swept))
        raise ConfigError(f"the lists {lists} ask for {asked:,} runs, more than {MOST_RUNS:,}; shorten some")
    for values in itertools.product(*swept.values()):
        yield {**table, **dict(zip(swept, values, strict=True))}


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _depths(kind: Any) -> dict[str, int]:
    """How deep lists are that each setting of a dataclass or function takes; 0: it takes a single value."""
    if is_dataclass(kind):
        return {name: list_depth(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    return {p.name: list_depth(p.annotation) for p in inspect.signature(kind, eval_str=True).parameters.values()}


def _named_depths(names: Any, find: Callable[[str], Any]) -> dict[str, int]:
    """Those of the parts of one or several names. A name that is unknown is refused when its run is built."""
    depths: dict[str, int] = {}
    for name in names if isinstance(names, list) else [names]:
        try:
            own = _depths(find(name)) if isinstance(name, str) else {}
        except (ConfigError, TypeError, ValueError, NameError):
            continue
        depths |= {key: max(depth, depths.get(key, 0)) for key, depth in own.items()}
    return depths


def _snaked(key: str) -> str:
    return key.replace("-", "_")
