import os
import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

from pacfl.cli import main

Run = Callable[..., tuple[int, str, str]]

# `make test` tries the same examples in every run, however slow the machine: a red test is then news about the code.
# `make test-long` searches at random, and longer; what it finds becomes a test of its own.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("random", deadline=None, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, standard output and standard error of a command."""

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pacfl", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return command
