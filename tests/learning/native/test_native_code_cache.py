import os
import stat
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from pacfl.learning.native import code_cache

CODE = b"machine code" * 1000


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACFL_CACHE", str(tmp_path / "cache"))


def never() -> bytes:
    raise AssertionError("compiled again")


def counted() -> tuple[Callable[[], bytes], list[int]]:
    calls: list[int] = []

    def compile_code() -> bytes:
        calls.append(1)
        return CODE

    return compile_code, calls


def test_code_is_compiled_once() -> None:
    assert code_cache.cached("a", lambda: CODE) == CODE
    assert code_cache.cached("a", never) == CODE
    with pytest.raises(AssertionError, match="compiled again"):
        code_cache.cached("b", never)


def test_every_input_changes_the_key() -> None:
    names = {
        code_cache.key(*of)
        for of in (("text", "cpu"), ("text", "cpu2"), ("text2", "cpu"), ("textcpu",), ("text,", "cpu"))
    }
    assert len(names) == 5


@pytest.mark.parametrize("damage", [b"", CODE[:40], b"\0" * 32 + CODE, CODE])
def test_a_damaged_file_is_not_executed(damage: bytes) -> None:
    code_cache.cached("a", lambda: CODE)
    (code_cache.folder() / "a.o").write_bytes(damage)
    compile_code, calls = counted()
    assert code_cache.cached("a", compile_code) == CODE
    assert len(calls) == 1
    assert code_cache.cached("a", never) == CODE, "and it was replaced"


def test_the_folder_is_readable_by_the_user_only() -> None:
    code_cache.cached("a", lambda: CODE)
    assert stat.S_IMODE(code_cache.folder().stat().st_mode) & 0o077 == 0


def test_a_file_of_another_user_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    code_cache.cached("a", lambda: CODE)
    monkeypatch.setattr(os, "getuid", lambda: code_cache.folder().stat().st_uid + 1)
    compile_code, calls = counted()
    assert code_cache.cached("a", compile_code) == CODE
    assert len(calls) == 1


def test_without_a_folder_code_is_compiled_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PACFL_CACHE", str(tmp_path / "file" / "cache"))
    compile_code, calls = counted()
    assert code_cache.cached("a", compile_code) == code_cache.cached("a", compile_code) == CODE
    assert len(calls) == 2


def shared(i: int) -> bytes:
    return code_cache.cached(f"shared{i % 2}", lambda: CODE)


def test_processes_may_store_the_same_code_at_once() -> None:
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        assert set(pool.map(shared, range(40))) == {CODE}
    assert sorted(p.name for p in code_cache.folder().iterdir()) == ["shared0.o", "shared1.o"]
