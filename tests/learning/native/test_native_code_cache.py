import os
import stat
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from pacfl.learning.native import code_cache

MADE = b"machine code" * 1000


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACFL_CACHE", str(tmp_path / "cache"))


def never() -> bytes:
    raise AssertionError("made again")


def counted() -> tuple[Callable[[], bytes], list[int]]:
    calls: list[int] = []

    def make() -> bytes:
        calls.append(1)
        return MADE

    return make, calls


def test_what_was_made_once_is_not_made_again() -> None:
    assert code_cache.kept("a", lambda: MADE) == MADE
    assert code_cache.kept("a", never) == MADE
    with pytest.raises(AssertionError, match="made again"):
        code_cache.kept("b", never)


def test_anything_that_it_is_made_from_makes_another_name() -> None:
    names = {
        code_cache.key(*of)
        for of in (("text", "cpu"), ("text", "cpu2"), ("text2", "cpu"), ("textcpu",), ("text,", "cpu"))
    }
    assert len(names) == 5


@pytest.mark.parametrize("damage", [b"", MADE[:40], b"\0" * 32 + MADE, MADE])
def test_a_damaged_file_is_not_believed(damage: bytes) -> None:
    code_cache.kept("a", lambda: MADE)
    (code_cache.folder() / "a.o").write_bytes(damage)
    make, calls = counted()
    assert code_cache.kept("a", make) == MADE
    assert len(calls) == 1
    assert code_cache.kept("a", never) == MADE, "and it was replaced"


def test_the_folder_is_the_users_own() -> None:
    code_cache.kept("a", lambda: MADE)
    assert stat.S_IMODE(code_cache.folder().stat().st_mode) & 0o077 == 0


def test_a_file_of_somebody_else_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    code_cache.kept("a", lambda: MADE)
    monkeypatch.setattr(os, "getuid", lambda: code_cache.folder().stat().st_uid + 1)
    make, calls = counted()
    assert code_cache.kept("a", make) == MADE
    assert len(calls) == 1


def test_where_nothing_can_be_kept_it_is_made_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PACFL_CACHE", str(tmp_path / "file" / "cache"))
    make, calls = counted()
    assert code_cache.kept("a", make) == code_cache.kept("a", make) == MADE
    assert len(calls) == 2


def slowly(i: int) -> bytes:
    return code_cache.kept(f"shared{i % 2}", lambda: MADE)


def test_processes_may_keep_the_same_at_once() -> None:
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        assert set(pool.map(slowly, range(40))) == {MADE}
    assert sorted(p.name for p in code_cache.folder().iterdir()) == ["shared0.o", "shared1.o"]
