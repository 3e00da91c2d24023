"""Experiments as they would be read from a file."""

from typing import Any

from pacfl.experiment.config import Run, expand

Table = dict[str, Any]


def table(**sections: Any) -> Table:
    """A table of one run, with some settings replaced."""
    plain: Table = {
        "data": {"name": "digits", "clients": 8, "scheme": {"kind": "iid"}},
        "learning": {"epochs": 1},
        "schedule": {"rounds": 3},
        "algorithm": [{"name": "fedavg"}],
    }
    for section, given in sections.items():
        both = isinstance(given, dict) and section != "algorithm"
        plain[section] = {**plain.get(section, {}), **given} if both else given
    return plain


def only(given: Table) -> Run:
    (run,) = expand(given)
    return run
