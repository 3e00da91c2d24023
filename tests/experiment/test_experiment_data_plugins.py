"""Data sets and schemes of other packages, by import path and by entry point."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl import plugins
from pacfl.data import build_scheme, find_scheme, from_arrays, load_dataset, mixture, partition
from pacfl.errors import ConfigError, DataError
from pacfl.experiment.config import expand
from pacfl.experiment.run import build, divide
from tests.experiment.tables import only, table

CODE = """
from dataclasses import dataclass

import numpy as np

from pacfl.data import Dataset, Split, from_arrays


def squares(folder, n: int = 60, *, label_of=3, shift=0.0):
    assert folder.is_dir()
    x = np.arange(2.0 * n).reshape(n, 2) + shift
    y = np.arange(n) % label_of
    return from_arrays(x, y, x, y, "squares")


def anything(folder, **options):
    return squares(folder, n=10 + len(options))


def nothing(folder):
    return None


NUMBER = 3


@dataclass(frozen=True)
class Halves:
    first: tuple[float, ...] = (0.5, 0.5)
    offset: int = 0

    def split(self, dataset, n_clients, rng):
        n = len(dataset.y_train)
        ends = np.cumsum([0, *(round(share * n) for share in self.first)])
        return Split([np.arange(a, b) for a, b in zip(ends[:-1], ends[1:])])


class Plain:
    def split(self, dataset, n_clients, rng):
        return ()
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_data.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    plugins.source_digest.cache_clear()
    yield
    sys.modules.pop("own_data", None)
    plugins.source_digest.cache_clear()


def data(**settings: Any) -> dict[str, Any]:
    return {"name": "own_data:squares", "clients": 2, "scheme": {"kind": "iid"}, **settings}


def test_a_run_uses_the_data_set_and_the_scheme_of_import_paths(tmp_path: Path) -> None:
    scheme = {"kind": "own_data:Halves", "first": [0.25, 0.75]}
    run = only(table(data=data(scheme=scheme, options={"n": 40, "label-of": 4}), model={"name": "logistic"}))
    dataset, clients = divide(run, tmp_path)
    assert (dataset.name, len(dataset.y_train), dataset.n_classes) == ("squares", 40, 4)
    assert [len(indices) for indices in clients.train_indices] == [10, 30]
    assert set(run.content()["plugins"]) == {"own_data"}
    assert len(build(run, tmp_path).setup.model.initial) == (2 + 1) * 4


def test_the_options_of_a_data_set_are_part_of_a_run() -> None:
    plain, other = only(table(data=data())), only(table(data=data(options={"n": 30})))
    assert plain.hash != other.hash
    spelled = [only(table(data=data(options={key: 4}))).hash for key in ("label-of", "label_of")]
    assert spelled[0] == spelled[1]
    assert len(expand(table(data=data(options=[{"n": 30}, {"n": 40}])))) == 2
    with pytest.raises(ConfigError, match=r"options has sets, which is a setting of .data. itself"):
        only(table(data=data(options={"sets": ["usps"]})))


def test_a_list_is_a_sweep_by_the_annotations_of_the_plug_in() -> None:
    scheme = {"kind": "own_data:Halves", "first": [0.25, 0.75], "offset": [0, 1]}
    assert [run.data.scheme for run in expand(table(data=data(scheme=scheme)))] == [
        {**scheme, "offset": offset} for offset in (0, 1)
    ]


def test_any_option_may_be_passed_to_a_loader_that_takes_all(tmp_path: Path) -> None:
    assert len(load_dataset("own_data:anything", tmp_path, a=1, b=2).y_train) == 12
    with pytest.raises(DataError, match=r"has no option 'm'.*there are n, label_of, shift"):
        load_dataset("own_data:squares", tmp_path, m=3)


def test_a_mixture_may_have_data_sets_of_plug_ins(tmp_path: Path) -> None:
    mixed = load_dataset("mixture", tmp_path, sets=["own_data:squares", "own_data:anything"])
    assert mixed.source_names == ("own_data:squares", "own_data:anything")


def test_entry_points_are_known_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {
        "pacfl.datasets": [EntryPoint("squares", "own_data:squares", "pacfl.datasets")],
        "pacfl.partitions": [EntryPoint("halves", "own_data:Halves", "pacfl.partitions")],
    }
    monkeypatch.setattr(plugins, "entry_points", lambda group: offered.get(group, []))
    assert load_dataset("squares", tmp_path, n=8).name == "squares"
    assert build_scheme({"kind": "halves", "offset": 3}).offset == 3  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"no data set 'square', .*did you mean 'squares'"):
        load_dataset("square", tmp_path)
    with pytest.raises(ConfigError, match=r"no scheme of kind 'halfs' .did you mean 'halves'.*halves$"):
        find_scheme("halfs")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("own_data:nothing", "is a NoneType; its loader must return a pacfl.Dataset"),
        ("own_data:NUMBER", "is 3, expected a function of a folder"),
        ("own_data:absent", "cannot be imported"),
        ("not here:load", "there is no data set"),
    ],
)
def test_what_is_no_data_set_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises((DataError, ConfigError), match=reason):
        load_dataset(name, tmp_path)


@pytest.mark.parametrize("kind", ["own_data:Plain", "own_data:NUMBER", "own_data:squares"])
def test_what_is_no_scheme_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="expected a dataclass with a method split"):
        only(table(data={"scheme": {"kind": kind}}))


def test_a_scheme_of_a_plug_in_is_checked_as_our_own() -> None:
    x, y = np.zeros((8, 1)), np.zeros(8, int)
    dataset = mixture([("a", from_arrays(x, y, x, y))])
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="split the samples among 3 clients, got 2"):
        partition(dataset, build_scheme({"kind": "own_data:Halves"}), 3, rng)
    with pytest.raises(DataError, match=r"1 of 2 clients would have less than 1 training samples .*change the scheme"):
        partition(dataset, build_scheme({"kind": "own_data:Halves", "first": [1.0, 0.0]}), 2, rng)
    with pytest.raises(ConfigError, match=r"own_data:Halves: has no setting 'last'"):
        build_scheme({"kind": "own_data:Halves", "last": 3})
