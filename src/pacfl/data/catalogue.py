"""The list of data sets: what is there, and what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from pacfl.data.digits import DOMAINS, count_digits
from pacfl.data.loading import data_folder, locate, nearest_missing
from pacfl.data.readers.search import Format
from pacfl.data.spec import DatasetSpec, Remote
from pacfl.data.specs import DATASETS, DIGIT_DOMAINS, MIX4, how_to_get, npz_format
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
    kind: str = "image"  # or table, signal, text
    clients: str = ""  # whom the data come from, for the scheme natural
    licence: str = ""

    @property
    def found(self) -> bool:
        """It can be loaded."""
        return self.n_train is not None


def catalogue(folder: str | Path | None = None) -> list[Entry]:
    """Every data set with a name, and every other .npz file of the folder that contains one."""
    place = data_folder(folder)
    named = [_entry(spec, place) for spec in DATASETS.values()]
    mixtures = [
        _mixed("mix4", f"MIX-4: {', '.join(MIX4)}, 40 classes; other mixtures by sets=[...]", MIX4, named),
        replace(
            _mixed("digit-domains", f"digits from {', '.join(DIGIT_DOMAINS)}, 10 digits", DIGIT_DOMAINS, named),
            clients=f"{len(DIGIT_DOMAINS)} sets",
        ),
    ]
    return [_digits(), *named, *mixtures, *_own(place)]


def _entry(spec: DatasetSpec, folder: Path) -> Entry:
    found = locate(spec, folder)
    about = Entry(
        spec.name,
        spec.title,
        how=how_to_get(spec),
        files=spec.files,
        kind=spec.kind,
        clients=spec.clients,
        licence=spec.licence,
    )
    if found is None:
        return replace(about, missing=nearest_missing(spec, folder))
    form, search = found
    return _counted(about, form, search.paths)


def _counted(about: Entry, form: Format, paths: Sequence[Path]) -> Entry:
    where = paths[0] if len(paths) == 1 else paths[0].parent
    try:
        n_train, n_test = form.count(paths)
    except (DataError, MissingLibraryError) as error:
        return replace(about, where=where, format=form.title, problem=str(error))
    return replace(about, where=where, format=form.title, n_train=n_train, n_test=n_test)


def _digits() -> Entry:
    title = f"scikit-learn's digits in {len(DOMAINS)} domains, 8x8 grey, 10 digits"
    if find_spec("sklearn") is None:
        return Entry("digits", title, missing=("scikit-learn",), how="pip install 'pacfl[data]'")
    return Entry("digits", title, None, "embedded", *count_digits())


def _mixed(name: str, title: str, sets: Sequence[str], named: Sequence[Entry]) -> Entry:
    own = [entry for entry in named if entry.name in sets]
    missing = tuple(entry.name for entry in own if not entry.found)
    if missing:
        return Entry(name, title, missing=missing, how="get the missing sets, or name others with sets=[...]")
    n_train, n_test = sum(entry.n_train or 0 for entry in own), sum(entry.n_test or 0 for entry in own)
    return Entry(name, title, None, "mixture", n_train, n_test)


def _own(folder: Path) -> list[Entry]:
    paths = sorted(path for path in folder.glob("*.npz") if path.stem not in DATASETS)
    entries = [_counted(Entry(path.stem, "your own arrays"), npz_format(path.stem), (path,)) for path in paths]
    return [entry for entry in entries if entry.found]  # other files need not be data sets
