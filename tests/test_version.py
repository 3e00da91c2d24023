"""The version is in pyproject.toml, and what repeats it agrees."""

import re
import tomllib
from pathlib import Path

import pacfl

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_the_package_has_the_version_of_the_project() -> None:
    assert pacfl.__version__ == VERSION


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_changelog_begins_with_what_is_not_released_or_with_this_version() -> None:
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert first is not None
    assert first[1] in ("Unreleased", VERSION)
