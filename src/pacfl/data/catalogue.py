"""The list of data sets: what is there, and what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pacfl.data.digits import DOMAINS, count_digits
from pacfl.data.loading import data_folder, locate, nearest_missing
from pacfl.data.readers.search import Format
from pacfl.data.specs import DATASETS, MIX4, DatasetSpec, Remote, how_to_get, npz_format
from pacfl.errors import DataError, MissingLibraryError


@dataclass(frozen=True)
class Entry:
    """One data set: what it is, where it was found or what is missing, and how to get it."""

    name: str
    title: str
    where: Path | None = None
    format: str | None = None
    n_train: int | None = None
    n_test: int | None = None
    missing: tuple[str, ...] = ()
    problem: str | None = None  # why files that are there cannot be read
    how: str = ""
    files: tuple[Remote, ...] = ()

    @property
    def found(self) -> bool:
        """It can be loaded."""
        return self.n_train is not None


def catalogue(folder: str | Path | None = None) -> list[Entry]:
    """Every data set with a name, and every other .npz file of the folder that contains one."""
    place = data_folder(folder)
    named = [_entry(spec, place) for spec in DATASETS.values()]
    return [_digits(), *named, _mix4(named), *_own(place)]


def _entry(spec: DatasetSpec, folder: Path) -> Entry:
    found = locate(spec, folder)
    how = how_to_get(spec)
    if found is None:
        missing = nearest_missing(spec, folder)
        return Entry(spec.name, spec.title, missing=missing, how=how, files=spec.files)
    form, search = found
    return _counted(spec.name, spec.title, form, search.paths, how, spec.files)


def _counted(
    name: str, title: str, form: Format, paths: Sequence[Path], how: str = "", files: tuple[Remote, ...] = ()
) -> Entry:
    where = paths[0] if len(paths) == 1 else paths[0].parent
    try:
        n_train, n_test = form.count(paths)
    except (DataError, MissingLibraryError) as error:
        return Entry(name, title, where, form.title, problem=str(error), how=how, files=files)
    return Entry(name, title, where, form.title, n_train, n_test, how=how, files=files)


def _digits() -> Entry:
    title = f"scikit-learn's digits in {len(DOMAINS)} domains, 8x8 grey, 10 digits"
    if find_spec("sklearn") is None:
        return Entry("digits", title, missing=("scikit-learn",), how="pip install 'pacfl[data]'")
    return Entry("digits", title, None, "embedded", *count_digits())


def _mix4(named: Sequence[Entry]) -> Entry:
    sets = [entry for entry in named if entry.name in MIX4]
    title = f"MIX-4: {', '.join(MIX4)}, 40 classes; other mixtures by sets=[...]"
    missing = tuple(entry.name for entry in sets if not entry.found)
    if missing:
        return Entry("mix4", title, missing=missing, how="get the missing sets, or name others with sets=[...]")
    n_train, n_test = sum(entry.n_train or 0 for entry in sets), sum(entry.n_test or 0 for entry in sets)
    return Entry("mix4", title, None, "mixture", n_train, n_test)


def _own(folder: Path) -> list[Entry]:
    paths = sorted(path for path in folder.glob("*.npz") if path.stem not in DATASETS)
    entries = [_counted(path.stem, "your own arrays", npz_format(path.stem), (path,)) for path in paths]
    return [entry for entry in entries if entry.found]  # other files need not be data sets
