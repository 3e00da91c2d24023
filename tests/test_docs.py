"""Pages of the documentation refer to pages, headings and settings that exist."""

import io
import re
import tomllib
from contextlib import redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pacfl.algorithms import NAMES, find
from pacfl.experiment.config import expand
from pacfl.settings import hyphened

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EVERY = ("aggregation", "label_prior")  # settings of all algorithms, described above the list
EXPERIMENTS = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Names under which the headings of a page can be linked."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8"))
    for path, heading in links:
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not heading or heading in anchors(target), f"{path}#{heading}"


def test_the_experiment_of_the_documentation_is_valid() -> None:
    example = re.search(r"```toml\n(.*?)```", EXPERIMENTS, re.DOTALL)
    assert example is not None
    table = tomllib.loads(example[1])
    assert len(expand(table)) == len(table["seeds"]) * len(table["algorithm"])


def test_the_documentation_lists_the_settings_of_every_algorithm() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", EXPERIMENTS, flags=re.MULTILINE)
    listed = {name: set(re.findall(r"`([\w-]+)`", settings)) for name, settings in rows if name in NAMES}
    assert listed == {name: set(hyphened(f.name for f in fields(find(name)) if f.name not in EVERY)) for name in NAMES}


def test_the_examples_of_training_from_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as a reader would; the page says what they find."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    training = re.search(r"^## Training.*?(?=^## )", page, re.DOTALL | re.MULTILINE)
    assert training is not None
    names: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()) as printed:
        for example in re.findall(r"```python\n(.*?)```", training[0], re.DOTALL):
            exec(compile(example, "python.md", "exec"), names)
    assert names["pacfl"].runs("runs").frame()["learning.lr"].tolist() == [0.1, 0.01]
    assert "{'site-a': 0, 'site-b': 1, 'site-c': 0, 'site-d': 1, 'site-e': 0, 'site-f': 1}" in printed.getvalue()
