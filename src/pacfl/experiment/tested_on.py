"""The kinds of test samples that a run was evaluated on, and its records and results on each of them. Needs no torch.

A stored record has the scores on the primary kind in its own fields, and those on other kinds, in the same form, in
`tests`. `test` then names the primary one.
"""

from collections.abc import Mapping
from typing import Any, Final

from pacfl.errors import ConfigError
from pacfl.experiment.store import PYTHON
from pacfl.experiment.summary import metric_of

GIVEN: Final = "given"  # the kind of a run from Python that has only one: those that its clients brought
SCORES: Final = ("loss", "by_client", "metrics", "metrics_by_client", "worse_than_alone", "to_target")


def kinds(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of test samples of a run, the primary one first.

    >>> kinds({"data": {"test": ["owned", "proportional"]}}), kinds({"data": {}})
    (('owned', 'proportional'), ('owned',))
    """
    found = settings["data"].get("test", GIVEN if settings.get("origin") == PYTHON else "owned")
    return (found,) if isinstance(found, str) else tuple(found)


def choose(settings: Mapping[str, Any], test: str | None) -> str | None:
    """What `on_test` takes so that a run is shown on a kind of test samples: None if it is the primary one."""
    own = kinds(settings)
    if test is None or test == own[0]:
        return None
    if test not in own:
        raise ConfigError(
            f"the run was evaluated on {' and '.join(own)} test samples, not on {test!r}; choose one of these, or run "
            "it again with several kinds of test samples"
        )
    return test


def on_test(stored: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    """A record or a result with the scores on another kind of test samples in its own fields; None: as it is.

    >>> record = {"round": 1, "accuracy": {"received": 0.5}, "test": "owned", "tests": {"global": {"accuracy": {}}}}
    >>> on_test(record, "global")
    {'round': 1, 'test': 'global', 'accuracy': {}}
    """
    if kind is None:
        return dict(stored)
    scored = (metric_of(stored), *SCORES, "test", "tests")
    shown = {key: value for key, value in stored.items() if key not in scored}
    if isinstance(stored.get("newcomers"), Mapping):
        shown["newcomers"] = on_test(stored["newcomers"], kind)
    own = stored.get("tests", {}).get(kind)
    return shown if own is None else {**shown, "test": kind, **own}
