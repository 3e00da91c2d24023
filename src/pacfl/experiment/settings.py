"""Tables of plain values -> frozen dataclasses: every value of the kind that its field is declared to be."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Kind = TypeVar("Kind")


class ConfigError(ValueError):
    """Settings that cannot be, and what to do."""


def section(kind: type[Kind], table: object, name: str) -> Kind:
    """A dataclass from a table; a value of another kind is refused by its name."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{name}] must be a table, got {table!r}")
    table = {snake(key): value for key, value in table.items()}
    hints = get_type_hints(kind)
    check_keys(table, [f.name for f in fields(kind)], f"[{name}]")  # type: ignore[arg-type]  # a dataclass
    values = {key: converted(value, hints[key], f"{name}.{key}") for key, value in table.items()}
    try:
        return kind(**values)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(f"[{name}] {error}") from None


def converted(value: Any, hint: Any, name: str) -> Any:
    """The value as its type hint wants it: lists become tuples, whole numbers real ones, and keys of tables numbers."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is UnionType:
        return converted(value, next(part for part in parts if part is not NoneType), name)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} must be a list, got {value!r}")
        return tuple(converted(v, parts[0], f"every one of {name}") for v in value)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} must be a table, got {value!r}")
        return {_key(k, parts[0], name): converted(v, parts[1], f"{name}.{k}") for k, v in value.items()}
    return _plain(value, hint, name)


WORDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def _plain(value: Any, kind: type, name: str) -> Any:
    """A number, a word, or yes or no; true is no number."""
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{name} must be {WORDS[kind]}, got {value!r}")
    return kind(value)


def _key(key: Any, kind: type, name: str) -> Any:
    """TOML has words for keys only."""
    try:
        return kind(key)
    except ValueError:
        raise ConfigError(f"the keys of {name} must be {WORDS[kind]} each, got {key!r}") from None


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a key that is not known, naming the nearest that is."""
    known = sorted(known)
    for key in table:
        if key not in known:
            raise ConfigError(f"{where} has no setting {key!r}{nearest(key, known)}; it has {', '.join(known)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that was probably meant."""
    close = get_close_matches(word, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def snake(key: str) -> str:
    """Either spelling of a key is the same key."""
    return key.replace("-", "_")
