"""Tutorials do what they say: their commands run one after the other, and what they show is what is printed.

TUTORIALS_BIN names the folder of another pacfl to run them with, such as that of an installed wheel.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pacfl

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))
BLOCKS = re.compile(r"^```(bash|text)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
COMMAND = f'#!/bin/sh\nexec "{sys.executable}" -m pacfl.cli "$@"\n'


def words(text: str) -> str:
    """The text in one line: what is printed is wrapped by the width of the terminal."""
    return " ".join(text.replace("│", " ").split())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where `pacfl` and `python` are those under test."""
    own = tmp_path / "bin"
    own.mkdir()
    (own / "pacfl").write_text(COMMAND)
    (own / "pacfl").chmod(0o755)
    given = os.environ.get("TUTORIALS_BIN")
    path = os.pathsep.join([given or f"{own}{os.pathsep}{Path(sys.executable).parent}", os.environ["PATH"]])
    source = {} if given else {"PYTHONPATH": str(Path(pacfl.__file__).resolve().parents[1])}
    return {**os.environ, "PYTHONPATH": "", "PATH": path, **source}


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a POSIX shell")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    folder, printed = tmp_path / "work", ""
    folder.mkdir()
    for kind, content in BLOCKS.findall(page.read_text(encoding="utf-8")):
        if kind == "text":
            assert words(content) in printed, printed
            continue
        done = subprocess.run(
            ["bash", "-ec", content], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        printed = words(done.stdout)
