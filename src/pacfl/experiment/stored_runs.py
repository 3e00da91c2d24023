"""All runs of a folder as tables. Needs no torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacfl.errors import StoreError, library
from pacfl.experiment.compare import load_result, n_rounds, solo_runs
from pacfl.experiment.csv_tables import flat
from pacfl.experiment.records import counted, read_record
from pacfl.experiment.result import Result, load
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.experiment.summary import label
from pacfl.experiment.swept import flatten
from pacfl.experiment.tested_on import choose, kinds

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class StoredRuns:
    """The runs that are stored in a folder, oldest first. Iterating yields the `Result` of each that is finished."""

    path: Path

    def __iter__(self) -> Iterator[Result]:
        for folder in self._finished:
            yield load(folder.path)

    def __len__(self) -> int:
        return len(self._finished)

    def frame(self) -> "DataFrame":
        """A row for each run, a column for each setting and each number of its result (extra: pandas).

        Settings are named as in experiment files, such as "learning.lr" or "data.scheme.alpha"; "algorithm" is the
        algorithm with its settings in a few characters. Numbers are named as in `pacfl run --csv`, such as
        "accuracy.received.mean". What a run does not have is missing. "finished" says whether a run is finished.
        """
        solo = solo_runs(self._folders)
        rows = []
        for folder in self._folders:
            settings = folder.content() or {}
            result = load_result(folder, solo) or {}
            values = {name: value for name, value in flat(result).items() if name not in ("hash", "algorithm", "seed")}
            rows.append({**_identity(folder, settings), "finished": bool(result), **flatten(settings), **values})
        return _pandas("runs(...).frame()").DataFrame(rows)

    def curves(self, test: str | None = None) -> "DataFrame":
        """A row for each evaluation, protocol and metric of each run, finished or not (extra: pandas).

        Columns: hash, algorithm, seed, round, final, protocol, metric, mean, std, worst_tenth (over clients). "hash"
        joins them with the rows of `frame`. test: a kind of test samples, of the runs that were evaluated on it; by
        default the primary kind of each run.
        """
        rows: list[dict[str, Any]] = []
        for folder in self._folders:
            settings = folder.content() or {}
            if test is not None and test not in kinds(settings):
                continue
            shown = choose(settings, test)
            about = {**_identity(folder, settings), "seed": settings["seed"]}
            end, names = n_rounds(folder), range(int(settings["data"]["clients"]))
            for record in (read_record(stored, names, end).on(shown) for stored in folder.records()):
                for protocol, metrics in record.scores.items():
                    for metric, spread in metrics.items():
                        when = {"round": record.round, "final": record.final}
                        rows.append({**about, **when, "protocol": protocol, "metric": metric, **vars(spread)})
        return _pandas("runs(...).curves()").DataFrame(rows)

    def __repr__(self) -> str:
        n = len(self._folders)
        return f"StoredRuns({str(self.path)!r}: {counted(n, 'run')}, {len(self)} finished)"

    @cached_property
    def _folders(self) -> list[RunFolder]:
        return all_folders(self.path)

    @property
    def _finished(self) -> list[RunFolder]:
        return [folder for folder in self._folders if folder.result() is not None]


def runs(folder: str | Path = "runs") -> StoredRuns:
    """The runs that `pacfl run` and `federate(..., runs=folder)` stored in a folder, as they are now.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(runs(folder))
    0
    """
    path = Path(folder)
    if not path.is_dir():
        raise StoreError(f"{path}: is no folder; give the one in which runs are stored")
    return StoredRuns(path)


def _identity(folder: RunFolder, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "hash": folder.path.name,
        "algorithm": label(settings["algorithm"], settings.get("aggregation", {})),
    }


def _pandas(what: str) -> Any:
    return library("pandas", what, "pandas")
