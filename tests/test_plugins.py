"""Parts of other packages: found by import path or entry point, identified by their code."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pacfl import plugins
from pacfl.errors import ConfigError

OWN = {"fedavg": int, "fedprox": float}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with two modules, beside a single module."""
    folder = tmp_path / "some_methods"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text("class Outer:\n    class Inner: pass\n")
    (tmp_path / "single_method.py").write_text("def method(): return 1\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    plugins.search_in(tmp_path)
    plugins.source_digest.cache_clear()
    yield folder
    for name in [name for name in sys.modules if name.startswith(("some_methods", "single_method"))]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
def test_own_parts_come_first_and_import_paths_lead_to_others() -> None:
    assert plugins.find("algorithms", "fedavg", OWN) is int
    assert plugins.find("algorithms", "some_methods.one:Outer.Inner", OWN).__qualname__ == "Outer.Inner"
    assert plugins.find("losses", "single_method:method", {})() == 1


@pytest.mark.usefixtures("package")
def test_an_entry_point_offers_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("outer", "some_methods.one:Outer", "pacfl.algorithms")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == entry.group else [])
    assert plugins.find("algorithms", "outer", OWN).__name__ == "Outer"
    assert plugins.import_path("algorithms", "outer") == entry.value
    with pytest.raises(ConfigError, match="no model 'outer'"):
        plugins.find("models", "outer", {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fedavgg", "no algorithm 'fedavgg'.*did you mean 'fedavg'"),
        ("not_there:A", "cannot be imported: No module named 'not_there'"),
        ("some_methods.one:B", "cannot be imported: .*no attribute 'B'"),
        ("some_methods.one:", "no algorithm"),
        (":A", "no algorithm"),
        ("a b:A", "no algorithm"),
    ],
)
@pytest.mark.usefixtures("package")
def test_what_cannot_be_found_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plugins.find("algorithms", name, OWN)


def test_the_digest_is_of_all_code_of_the_top_level_package(package: Path) -> None:
    paths = ["some_methods.one:Outer", "some_methods:X", "single_method:method"]
    before = plugins.digests(paths)
    assert list(before) == ["single_method", "some_methods"]
    plugins.source_digest.cache_clear()
    (package / "deep").mkdir()
    (package / "deep" / "two.py").write_text("x = 1\n")
    after = plugins.digests(paths)
    assert after["some_methods"] != before["some_methods"]
    assert after["single_method"] == before["single_method"]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["sys", "no_such_package"])
def test_a_plug_in_without_source_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no Python source"):
        plugins.source_digest(name)
