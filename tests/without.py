"""The command line where a library is not installed: `python without.py MODULE COMMAND...`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_without(module: str, *words: object) -> "subprocess.CompletedProcess[str]":
    """The command, run in a process of its own."""
    import pacfl

    env = {**os.environ, "PYTHONPATH": str(Path(pacfl.__file__).resolve().parents[1])}
    command = [sys.executable, __file__, module, *map(str, words)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


class Without:
    """A finder that does not find a module; put it first in `sys.meta_path`."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - Python's form
        if name.partition(".")[0] == self.module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, Without(sys.argv.pop(1)))  # type: ignore[arg-type]
    from pacfl.cli import main

    main()
