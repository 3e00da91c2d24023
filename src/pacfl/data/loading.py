"""Data sets by name."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pacfl import plugins
from pacfl.data.dataset import Dataset
from pacfl.data.digits import digits
from pacfl.data.mixture import mixture
from pacfl.data.readers import npz
from pacfl.data.readers.own_tables import tables
from pacfl.data.readers.search import Format, Search
from pacfl.data.spec import DatasetSpec
from pacfl.data.specs import DATASETS, DIGIT_DOMAINS, MIX4, how_to_get
from pacfl.errors import DataError
from pacfl.settings import suggestion


def data_folder(given: str | Path | None = None) -> Path:
    """Where data sets are: the given folder, else that named by PACFL_DATA, else data/ in the current folder."""
    return Path(given if given is not None else os.environ.get("PACFL_DATA") or "data")


def load_dataset(name: str, folder: str | Path | None = None, **options: object) -> Dataset:
    """The data set of a name, read from the files in the folder; or the data set in an .npz file, by name or path.

    Options: celeba takes label, size, n_train and n_test; digits takes domains and disjoint_labels; mix4,
    digit-domains and mixture take sets and disjoint_labels; tables takes files, schema, labels, group and drop. The
    name of a plug-in is that of an entry point, or an
    import path such as "package.module:load"; it is called with the folder and the options and returns a data set.
    """
    place = data_folder(folder)
    loader = _loader(name, place)
    _check_options(name, loader, options)
    dataset = loader(place, **options)
    if not isinstance(dataset, Dataset):
        raise DataError(f"the data set {name!r} is a {type(dataset).__name__}; its loader must return a pacfl.Dataset")
    return dataset


def _loader(name: str, folder: Path) -> Callable[..., Dataset]:
    if name in LOADERS:
        return LOADERS[name]
    path = _npz_path(name, folder)
    if path is not None:
        return partial(_own, path)
    if plugins.import_path("datasets", name) is None:
        names = (*LOADERS, *plugins.offered("datasets"))
        raise DataError(f"there is no data set {name!r}, and no {name}.npz in {folder}{suggestion(name, names)}")
    loader: Callable[..., Dataset] = plugins.find("datasets", name, LOADERS)
    if not callable(loader):
        raise DataError(f"the data set {name!r} is {loader!r}, expected a function of a folder that returns a Dataset")
    return loader


def locate(spec: DatasetSpec, folder: Path) -> tuple[Format, Search] | None:
    """The first format whose files are all there."""
    searches = ((form, form.search(folder)) for form in spec.formats)
    return next(((form, found) for form, found in searches if found.complete), None)


def nearest_missing(spec: DatasetSpec, folder: Path) -> tuple[str, ...]:
    """The missing files of the format that lacks the fewest."""
    searches = [form.search(folder) for form in spec.formats]
    return max(searches, key=lambda found: len(found.paths)).missing


def _named(spec: DatasetSpec, folder: Path) -> Dataset:
    form, found = _located(spec, folder)
    return form.read(spec.name, found.paths, spec.n_classes)


def _celeba(
    folder: Path, *, label: str = "Smiling", size: int = 32, n_train: int | None = None, n_test: int | None = None
) -> Dataset:
    spec = DATASETS["celeba"]
    form, found = _located(spec, folder)
    return form.read(spec.name, found.paths, spec.n_classes, label=label, size=size, n_train=n_train, n_test=n_test)


def _located(spec: DatasetSpec, folder: Path) -> tuple[Format, Search]:
    found = locate(spec, folder)
    if found is None:
        missing = ", ".join(nearest_missing(spec, folder))
        raise DataError(f"{spec.name} is not complete in {folder}: missing {missing}. To get it: {how_to_get(spec)}")
    return found


def _own(path: Path, folder: Path) -> Dataset:  # noqa: ARG001 - called as every loader is
    return npz.read(path.stem, (path,))


def _digits(folder: Path, *, domains: Sequence[str] | None = None, disjoint_labels: bool = False) -> Dataset:  # noqa: ARG001
    return digits(disjoint_labels=disjoint_labels) if domains is None else digits(domains, disjoint_labels)


def _mixture(folder: Path, *, sets: Sequence[str] = (), disjoint_labels: bool = True) -> Dataset:
    if isinstance(sets, str) or not sets:
        raise DataError(f"a mixture needs a list of data sets, got {sets!r}; say sets=['cifar10', 'usps'] for example")
    return mixture([(name, load_dataset(name, folder)) for name in sets], disjoint_labels)


def _digit_domains(folder: Path, *, sets: Sequence[str] = DIGIT_DOMAINS, disjoint_labels: bool = False) -> Dataset:
    return _mixture(folder, sets=sets, disjoint_labels=disjoint_labels)


def _mix4(folder: Path, *, sets: Sequence[str] = MIX4, disjoint_labels: bool = True) -> Dataset:
    return _mixture(folder, sets=sets, disjoint_labels=disjoint_labels)


LOADERS: Final[Mapping[str, Callable[..., Dataset]]] = {
    **{name: partial(_named, spec) for name, spec in DATASETS.items()},
    "celeba": _celeba,
    "digits": _digits,
    "tables": tables,
    "mixture": _mixture,
    "mix4": _mix4,
    "digit-domains": _digit_domains,
}


def _npz_path(name: str, folder: Path) -> Path | None:
    candidates = [Path(name), folder / name] if name.endswith(".npz") else [folder / f"{name}.npz"]
    return next((path for path in candidates if path.is_file()), None)


def _check_options(name: str, loader: Callable[..., Dataset], options: Mapping[str, object]) -> None:
    parameters = list(inspect.signature(loader).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [parameter.name for parameter in parameters[1:] if parameter.kind in by_name]  # the first is the folder
    for option in options:
        if option not in known:
            raise DataError(f"{name} has no option {option!r}{suggestion(option, known)}")
