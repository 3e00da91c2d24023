"""An item -> the runs it needs, method by method, with the settings that tuning has chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pacfl.errors import ConfigError
from pacfl.experiment.config import Run, expand
from pacfl.experiment.summary import label
from pacfl.reproduce.items import Item, Scale
from pacfl.settings import content, suggestion

# The cut of PACFL is not tuned: whatever the cut, it trains with what was chosen for the automatic one.
CUT: Final = ("threshold", "clusters", "measure", "linkage", "per_class")

Chosen = Mapping[str, Mapping[str, float]]  # what is tuned -> settings


@dataclass(frozen=True)
class Planned:
    """A run and its place in the table."""

    column: str
    method: str
    run: Run

    @property
    def tuned_as(self) -> str:
        """The method by which it is tuned."""
        return label(without_cut(self.run.algorithm), content(self.run.aggregation))


def plan(item: Item, column: str, scale: Scale, only: Sequence[str] = (), n_seeds: int | None = None) -> list[Planned]:
    """The runs of a column with the settings of its file, seed by seed."""
    runs = expand(item.table(column, scale))
    planned = [Planned(column, run.label(), run) for run in runs]
    for word in only:
        if not any(_asked(one, (word,)) for one in planned):
            methods = list(dict.fromkeys(one.method for one in planned))
            raise ConfigError(f"{item.name} has no method {word!r}{suggestion(word, methods)}")
    seeds = sorted({run.seed for run in runs})[: n_seeds or 1 if scale == "quick" else n_seeds]
    return [one for seed in seeds for one in planned if one.run.seed == seed and _asked(one, only)]


def with_chosen(planned: Planned, chosen: Chosen) -> Planned:
    """The same run with the settings that were chosen for its method."""
    return replace(planned, run=with_settings(planned.run, chosen.get(planned.tuned_as, {})))


def with_settings(run: Run, settings: Mapping[str, float]) -> Run:
    """A run with another learning rate, and another mu if it has one."""
    learning = replace(run.learning, lr=settings.get("lr", run.learning.lr))
    algorithm: dict[str, Any] = dict(run.algorithm) | {k: v for k, v in settings.items() if k != "lr"}
    return replace(run, learning=learning, algorithm=algorithm)


def without_cut(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an algorithm for which its learning rate is tuned."""
    return {key: value for key, value in algorithm.items() if algorithm["name"] != "pacfl" or key not in CUT}


def _asked(planned: Planned, only: Sequence[str]) -> bool:
    return not only or planned.method in only or str(planned.run.algorithm["name"]) in only
