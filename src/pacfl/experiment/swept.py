"""The settings in which runs differ: what a table must show so that its rows are distinguished."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

Settings = Mapping[str, Any]

# The seed and the algorithm stand beside every result
NAMED_ELSEWHERE: Final = ("format", "seed", "algorithm.name")

# Settings that are not stored at their defaults (`settings.later`); without torch, which some of their classes need
NOT_STORED: Final[Settings] = {
    "data.normalise": "auto",
    "data.test": "owned",
    "model.batch_norm": "averaged",
    "learning.loss": "cross-entropy",
    "learning.optimiser": "sgd",
    "learning.lr_schedule.kind": "constant",
    "schedule.final_personal": True,
    "aggregation.rule": "mean",
    "aggregation.noise_multiplier": 0.0,
    "aggregation.noise": "secret",
    "aggregation.server_optimiser": "none",
}


def flatten(settings: Settings) -> dict[str, Any]:
    """Settings by dotted path; a table from rounds to clients is one value.

    >>> flatten({"seed": 0, "data": {"name": "digits", "scheme": {"kind": "dirichlet", "alpha": 0.5}}})
    {'seed': 0, 'data.name': 'digits', 'data.scheme.kind': 'dirichlet', 'data.scheme.alpha': 0.5}
    """
    return dict(_leaves(settings, ""))


def _leaves(settings: Settings, prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and not all(str(k).isdecimal() for k in value):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differing(tables: Sequence[Settings]) -> list[str]:
    """The keys whose values are not the same everywhere.

    >>> differing([{"lr": 0.1, "batch_size": 10}, {"lr": 0.01, "batch_size": 10}])
    ['lr']
    """
    keys = dict.fromkeys(key for table in tables for key in table)
    missing = object()
    return [key for key in keys if any(table.get(key, missing) != tables[0].get(key, missing) for table in tables)]


def swept_settings(runs: Sequence[Settings]) -> list[dict[str, Any]]:
    """For the content of each run: its values of the settings in which the runs differ, but for seed and algorithm.

    A run that does not have a setting has no value of it. Code of plug-ins is listed where two runs have different
    code of one package.

    >>> runs = [{"seed": 0, "learning": {"lr": 0.1, "epochs": 1}}, {"seed": 1, "learning": {"lr": 0.01, "epochs": 1}}]
    >>> swept_settings(runs)
    [{'learning.lr': 0.1}, {'learning.lr': 0.01}]
    """
    flat = [flatten(run) for run in runs]
    paths = [path for path in without_single_versions(differing(flat), flat) if path not in NAMED_ELSEWHERE]
    values = [{**NOT_STORED, **own} for own in flat]
    return [{path: own[path] for path in paths if path in own} for own in values]


def without_single_versions(paths: Sequence[str], flat: Sequence[Settings]) -> list[str]:
    """The paths without those of plug-ins whose code is the same in all runs that have them."""

    def versions(path: str) -> set[str]:
        return {own[path] for own in flat if path in own}

    return [path for path in paths if not path.startswith("plugins.") or len(versions(path)) > 1]


def beside_label(settings: Sequence[Settings], besides: Collection[str] = ()) -> list[str]:
    """The paths of swept settings that a table has to show beside the label of the algorithm, and others in it."""
    paths = dict.fromkeys(path for own in settings for path in own)
    return [
        path for path in paths if path.partition(".")[0] not in ("algorithm", "aggregation") and path not in besides
    ]


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """A heading for each path: its last word, or the section of a name or kind; where that is ambiguous, the path.

    >>> short_names(["data.name", "data.scheme.alpha", "learning.batch_size"])
    {'data.name': 'data', 'data.scheme.alpha': 'alpha', 'learning.batch_size': 'batch-size'}
    >>> short_names(["algorithm.epochs", "learning.epochs"])
    {'algorithm.epochs': 'algorithm.epochs', 'learning.epochs': 'learning.epochs'}
    """
    short = {path: _short(path) for path in paths}
    return {
        path: (name if list(short.values()).count(name) == 1 else path).replace("_", "-")
        for path, name in short.items()
    }


def _short(path: str) -> str:
    *sections, last = path.split(".")
    return sections[-1] if sections and last in ("name", "kind") else last


def in_words(value: Any) -> str:
    """A setting as a cell of a table.

    >>> [in_words(value) for value in (0.1, 5, "iid", [2, 2], {"3": [0]}, True, None)]
    ['0.1', '5', 'iid', '2, 2', '3: 0', 'true', '-']
    >>> in_words("f0" * 32)  # a digest
    'f0f0f0f0'
    """
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case Mapping():
            return "; ".join(f"{key}: {in_words(part)}" for key, part in value.items()) or "-"
        case list() | tuple():
            return ", ".join(map(in_words, value)) or "-"
        case str() if len(value) == 64 and not set(value) - set("0123456789abcdef"):
            return value[:8]
    return str(value)


def list_settings(settings: Settings, paths: Sequence[str]) -> str:
    """Settings of a run in one line.

    >>> list_settings({"learning.lr": 0.1, "data.scheme.kind": "iid"}, ["learning.lr", "data.scheme.kind"])
    'lr 0.1, scheme iid'
    """
    names = short_names(paths)
    return ", ".join(f"{names[path]} {in_words(settings[path])}" for path in paths if path in settings)
