"""Settings: tables of plain values -> frozen dataclasses, each value checked against the annotation of its field."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pacfl.errors import ConfigError

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Within:
    """The least and the greatest that a number may be; `above`: the least is excluded, `below`: the greatest is."""

    low: float
    high: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        low = self.low < value if self.above else self.low <= value
        return low and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above else f"of at least {self.low:g}"
        if self.high == math.inf:
            return low
        high = f"below {self.high:g}" if self.below else f"at most {self.high:g}"
        return f"{low} and {high}" if self.above or self.below else f"from {self.low:g} to {self.high:g}"


NonNegativeInt = Annotated[int, Within(0)]
PositiveInt = Annotated[int, Within(1)]
NonNegative = Annotated[float, Within(0)]
Positive = Annotated[float, Within(0, above=True)]
Share = Annotated[float, Within(0, 1)]
PositiveShare = Annotated[float, Within(0, 1, above=True)]
ShareBelowOne = Annotated[float, Within(0, 1, below=True)]

_WORDS: Final = {int: "an integer", float: "a number", bool: "true or false", str: "a string", NoneType: "left out"}

# Settings that have another name now, by section.
_UPDATES: Final = {
    "update_clip": "aggregation.clip-norm",
    "update_noise": "aggregation.noise-multiplier",
    "clip_norm": "aggregation.clip-norm",
    "noise_multiplier": "aggregation.noise-multiplier",
}
RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "learning": {"batch": "batch-size"},
    "schedule": {"sample": "participation", "loss": "client-dropout"},
    "ifca": {"k": "clusters"},
    "fedavg": {**_UPDATES, "private_noise": "aggregation.noise"},
    "pacfl": {**_UPDATES, "private_noise": "signature-noise' or 'aggregation.noise"},
}


LATER: Final = {"later": True}  # the metadata of a field that results were stored without


def later(default: Any) -> Any:
    """A setting that results were stored without: at its default it is left out of the content of a run."""
    return field(default=default, metadata=LATER)


def content(settings: Any) -> Any:
    """Settings as plain values, for the content of a run."""
    if is_dataclass(settings):
        stored = [f for f in fields(settings) if not f.metadata.get("later") or getattr(settings, f.name) != f.default]
        return {f.name: content(getattr(settings, f.name)) for f in stored}
    if isinstance(settings, Mapping):
        return {key: content(value) for key, value in settings.items()}
    return [content(value) for value in settings] if isinstance(settings, tuple | list) else settings


_resolved: WeakKeyDictionary[type[Any], dict[str, Any]] = WeakKeyDictionary()


def _hints(kind: type[Any]) -> dict[str, Any]:
    """The annotations of a class, resolved once: that takes longer than to check its values."""
    if kind not in _resolved:
        _resolved[kind] = get_type_hints(kind, include_extras=True)
    return _resolved[kind]


def check(settings: Any) -> None:
    """Refuse the first field of a dataclass that is not what its annotation says."""
    hints = _hints(type(settings))
    for f in fields(settings):
        check_value(f"{type(settings).__name__}.{f.name}", getattr(settings, f.name), hints[f.name])


def check_value(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not what an annotation says."""
    if not _fits(value, hint):
        raise ConfigError(f"{name} must be {_expected(hint)}, got {value!r}")


def build(kind: type[Settings], table: object, section: str, where: str = "") -> Settings:
    """A dataclass from a table of a section; keys may have hyphens, and lists become tuples.

    where: how messages name the section, if not as [section].
    """
    where = where or f"[{section}]"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} must be a table, got {table!r}")
    hints = _hints(kind)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in RENAMED.get(section, {}):
            raise ConfigError(f"{where} has no setting {key!r}: it is called '{RENAMED[section][name]}' now")
        if name not in known:
            single = [n for n in known if not is_dataclass(hints[n])]  # others are sections of their own
            raise ConfigError(f"{where} has no setting {key!r}{suggestion(key, hyphened(single))}")
        if name in values:
            raise ConfigError(f"{where} has {key!r} twice: with hyphens and with underscores; leave out one")
        values[name] = convert(value, hints[name], f"{section}.{key}")
    lacking = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING and n not in values]
    if lacking:
        raise ConfigError(f"{where} needs {', '.join(hyphened(lacking))}")
    try:
        built = kind(**values)
        check(built)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where} {str(error).removeprefix(f'{kind.__name__}.')}") from None
    return built


def convert(value: Any, hint: Any, name: str) -> Any:
    """A value from TOML as the annotation wants it: lists as tuples, integers as floats, keys of tables as integers."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return convert(value, parts[0], name)
    if origin in (Union, UnionType):
        return next((convert(value, part, name) for part in parts if _fits(value, part)), value)
    if origin is tuple and isinstance(value, list | tuple):
        hints = parts if parts[1:] != (...,) and len(parts) == len(value) else parts[:1] * len(value)
        return tuple(convert(v, h, name) for v, h in zip(value, hints, strict=True))
    if origin is Mapping and isinstance(value, Mapping):
        return {_key(k, parts[0], name): convert(v, parts[1], f"{name}.{k}") for k, v in value.items()}
    if hint is float and _fits(value, float):
        return float(value)
    return value


def list_depth(hint: Any) -> int:
    """How deep lists are that an annotation accepts; 0: it accepts none.

    >>> list_depth(int), list_depth(tuple[int, ...]), list_depth(Sequence[Sequence[int]] | None)
    (0, 1, 2)
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return list_depth(parts[0])
    if origin in (Union, UnionType):
        return max(map(list_depth, parts))
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, Sequence) and not issubclass(kind, str | bytes):
        return 1 + max(map(list_depth, parts), default=0)
    return 0


def suggestion(word: str, known: Iterable[str]) -> str:
    """How a message about an unknown word ends: the known word that was probably meant, and all of them.

    >>> suggestion("dirichlett", ["iid", "dirichlet"])
    " (did you mean 'dirichlet'?); there are iid, dirichlet"
    """
    words = list(known)
    close = get_close_matches(word, words, 1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{meant}; there {'are' if len(words) != 1 else 'is'} {', '.join(words) or 'none'}"


def hyphened(names: Iterable[str]) -> list[str]:
    """Names of settings as they are documented."""
    return [name.replace("_", "-") for name in names]


def _key(key: Any, kind: type, name: str) -> Any:
    """TOML has strings for keys only."""
    try:
        return kind(key)
    except ValueError:
        raise ConfigError(f"the keys of {name} must be {_WORDS[kind]} each, got {key!r}") from None


def _bounds(parts: tuple[Any, ...]) -> list[Within]:
    """Of an annotation; others may be meant for other libraries."""
    return [part for part in parts[1:] if isinstance(part, Within)]


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is Annotated:
        return _fits(value, parts[0]) and all(value in bound for bound in _bounds(parts))
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        hints = parts[:1] * len(value) if isinstance(value, tuple) and parts[1:] == (...,) else parts
        return isinstance(value, tuple) and len(value) == len(hints) and all(map(_fits, value, hints))
    if origin is Mapping:
        pairs = value.items() if isinstance(value, Mapping) else ()
        return isinstance(value, Mapping) and all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in pairs)
    if hint in (int, float):
        number = isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
        return number and math.isfinite(value)
    return isinstance(value, origin or hint)


def _expected(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([_expected(parts[0]), *map(str, _bounds(parts))])
    if origin in (Union, UnionType):
        return " or ".join(map(_expected, parts))
    if origin is Literal:
        return f"{'one of ' if len(parts) > 1 else ''}{', '.join(map(repr, parts))}"
    if origin is tuple:
        if parts[1:] != (...,):
            return f"a list of {len(parts)}: {', '.join(map(_expected, parts))}"
        return f"a list, {_expected(parts[0])} each"
    if origin is Mapping:
        return f"a table, {_expected(parts[1])} each"
    name = (origin or hint).__name__
    return _WORDS.get(hint, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")
