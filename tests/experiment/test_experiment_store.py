import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.errors import StoreError
from pacfl.experiment import checkpoint
from pacfl.experiment.checkpoint import ARRAYS, LISTS
from pacfl.experiment.codec import decode, encode
from pacfl.experiment.config import expand
from pacfl.experiment.store import RunFolder, all_folders, folder_of, owned
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.files import LOCK, write_atomically
from tests.small_federation import LEARNING, NAMES, SEED, lively, local, model, pool, same

# Values


def there_and_back(value: Any) -> Any:
    arrays: dict[str, np.ndarray] = {}
    return decode(json.loads(json.dumps(encode(value, arrays))), arrays)


def lived(name: str) -> tuple[Any, dict[str, Any]]:
    """A state after three rounds, and what clients remember."""
    algorithm = lively(name)
    with local(algorithm, model(), pool(), LEARNING, SEED) as backend:
        plan = round_plans(Schedule(rounds=3, participation=1.0), 6, SEED)
        *_, last = rounds(algorithm, backend, algorithm.init_server(model()), plan)
        return last.state, {"memory": backend.memory, "last_trained": backend.last_trained}


def recorded(folder: RunFolder, n: int) -> None:
    for t in range(n):
        folder.append({"round": t})


@pytest.mark.parametrize("name", NAMES)
def test_every_state_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    state, clients = lived(name)
    assert same(there_and_back(state), state)
    assert same(there_and_back(clients), clients)
    folder = RunFolder(tmp_path)
    recorded(folder, 3)
    folder.save_checkpoint({"round": 3, "state": state, **clients})
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert same(loaded, {"round": 3, "state": state, **clients})


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        1e-320,
        "word",
        (),
        [],
        {},
        (1, [2, (3,)]),
        {1: {2: "a"}, "1": None},
        {"array": "a0", "kind": "State"},
    ],
    ids=repr,
)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "array",
    [np.float32([1.5, np.nan, np.inf]), np.arange(6).reshape(2, 3), np.zeros((0, 4), dtype=np.bool_), np.array(2.5)],
    ids=lambda a: str(a.dtype),
)
def test_arrays_come_back_to_the_bit(array: np.ndarray, tmp_path: Path) -> None:
    RunFolder(tmp_path).save_checkpoint({"round": 0, "x": array})
    loaded = RunFolder(tmp_path).load_checkpoint()
    assert loaded is not None
    assert same(loaded["x"], array)


@dataclass
class Stranger:
    secret: int = 1


@dataclass(frozen=True)
class Known:
    """A state of another package."""

    @dataclass(frozen=True)
    class Inner:
        words: tuple[str, ...]

    inner: Inner
    derived: int = field(init=False, default=3)

    def __post_init__(self) -> None:
        if BUILT is not None:
            BUILT.append(self)


BUILT: list[Known] | None = None


def hidden_class() -> Any:
    @dataclass(frozen=True)
    class Hidden:
        x: int = 1

    return Hidden()


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), Stranger(), 1j, b"bytes", hidden_class()], ids=lambda v: type(v).__name__
)
def test_values_that_could_not_come_back_are_not_written(value: Any) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        encode({"deep": [value]}, {})


@pytest.mark.parametrize(
    "tree",
    [
        {"kind": "Popen", "fields": {}},
        {"kind": "subprocess.Popen", "fields": {"args": "true"}},
        {"kind": "os.system", "fields": {"command": "true"}},
        {"kind": f"{__name__}.Stranger", "fields": {"secret": 1}},
        {"kind": f"{__name__}.os.system", "fields": {"command": "true"}},
        {"kind": f"{__name__}.RunFolder", "fields": {"path": "x"}},
        {"kind": "antigravity.State", "fields": {}},
        {"kind": "pacfl.Algorithm", "fields": {}},
        {"kind": "State", "fields": {"models": None, "cluster_of": {}}},
        {"kind": "pacfl.federation.algorithm.State", "fields": {"models": None}},
        {"kind": "pacfl.federation.algorithm.State", "fields": {"models": None, "cluster_of": {}, "surprise": 1}},
        {"kind": "pacfl.federation.algorithm.State", "fields": {"models": None, "__class__": 1}},
        {"kind": "", "fields": {}},
        {"kind": "..", "fields": {}},
        {"kind": 3, "fields": {}},
        {"call": "print"},
    ],
    ids=str,
)
def test_nothing_is_built_that_is_not_known(tree: Any) -> None:
    before = set(sys.modules)
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        decode(tree, {})
    assert set(sys.modules) == before


def test_any_frozen_dataclass_comes_back_and_no_code_of_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Known(Known.Inner(("a", "b")))
    ran: list[Known] = []
    monkeypatch.setattr(sys.modules[__name__], "BUILT", ran)
    assert there_and_back({"state": value}) == {"state": value}
    assert not ran


def test_a_checkpoint_of_a_class_that_is_not_imported_is_ignored(tmp_path: Path, caplog: Any) -> None:
    folder = RunFolder(tmp_path)
    recorded(folder, 1)
    folder.save_checkpoint({"round": 1, "state": Known(Known.Inner(()))})
    known, inner = sys.modules[__name__].__dict__.pop("Known"), RunFolder(tmp_path)
    try:
        assert inner.load_checkpoint() is None
    finally:
        sys.modules[__name__].__dict__["Known"] = known
    assert "damaged" in caplog.text


# Records


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def test_records_come_back_in_order(folder: RunFolder) -> None:
    assert folder.records() == []
    for t in range(3):
        folder.append({"round": t, "share": 0.1 + t})
    assert folder.records() == [{"round": t, "share": 0.1 + t} for t in range(3)]


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_line_that_a_crash_cut_short_does_not_count(folder: RunFolder, cut: int) -> None:
    """The last record, {"round": 2} and a line's end, is 13 bytes long."""
    for t in range(3):
        folder.append({"round": t})
    path = folder.path / "rounds.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert folder.records() == [{"round": 0}, {"round": 1}]
    folder.truncate_records(2)
    folder.append({"round": 2})
    assert folder.records() == [{"round": t} for t in range(3)]


@pytest.mark.parametrize("left", [0, 1, 3, 9])
def test_records_of_rounds_to_be_run_again_are_dropped(folder: RunFolder, left: int) -> None:
    for t in range(3):
        folder.append({"round": t})
    folder.truncate_records(left)
    assert folder.records() == [{"round": t} for t in range(min(left, 3))]


def test_what_is_no_number_is_not_written(folder: RunFolder) -> None:
    with pytest.raises(ValueError, match="JSON"):
        folder.append({"loss": float("nan")})
    assert folder.records() == []


# Checkpoints


def saved(folder: RunFolder, n: int) -> None:
    for t in range(n):
        folder.append({"round": t})
        folder.save_checkpoint({"round": t, "w": np.full(100, t, dtype=np.float32)})


def array_files(folder: RunFolder) -> list[Path]:
    """The arrays on disk, oldest first."""
    return sorted((folder.path / ARRAYS).iterdir(), key=lambda path: path.stat().st_mtime_ns)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "flipped":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif how == "other":
        path.write_bytes(b"something else entirely, and longer than a digest is" * 3)
    else:
        path.unlink()


HOWS = ("cut", "empty", "flipped", "other", "gone")


def test_without_a_checkpoint_there_is_none(folder: RunFolder) -> None:
    assert folder.load_checkpoint() is None


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_newest_checkpoint_is_the_one(folder: RunFolder, n: int) -> None:
    saved(folder, n)
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert loaded["round"] == n - 1
    assert loaded["w"].tolist() == [n - 1] * 100


@pytest.mark.parametrize("how", HOWS)
def test_the_one_before_takes_the_place_of_a_damaged_checkpoint(folder: RunFolder, how: str) -> None:
    saved(folder, 3)
    damage(folder.path / LISTS[0], how)
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert loaded["round"] == 1


@pytest.mark.parametrize("how", HOWS)
def test_where_both_are_damaged_there_is_none(folder: RunFolder, how: str) -> None:
    saved(folder, 3)
    for name in LISTS:
        damage(folder.path / name, how)
    assert folder.load_checkpoint() is None


def test_a_damaged_one_does_not_take_the_place_of_a_whole_one(folder: RunFolder) -> None:
    """Saved after a damage, then damaged again: the state of the round in between is gone, that before is not."""
    saved(folder, 2)
    damage(folder.path / LISTS[0], "flipped")
    folder.save_checkpoint({"round": 2})
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert loaded["round"] == 2


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_array_is_a_damaged_checkpoint(folder: RunFolder, how: str) -> None:
    saved(folder, 3)
    assert len(array_files(folder)) == 2
    damage(array_files(folder)[-1], how)
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert loaded["round"] == 1


@pytest.mark.parametrize("how", HOWS)
def test_what_was_damaged_once_is_written_again(folder: RunFolder, how: str) -> None:
    """The round is run again, comes to the same array, and must not take the damaged file for it."""
    saved(folder, 3)
    damage(array_files(folder)[-1], how)
    again = RunFolder(folder.path)
    assert again.load_checkpoint() is not None
    again.save_checkpoint({"round": 2, "w": np.full(100, 2, dtype=np.float32)})
    loaded = RunFolder(folder.path).load_checkpoint()
    assert loaded is not None
    assert loaded["round"] == 2


def test_a_round_costs_what_it_changed(folder: RunFolder) -> None:
    """Of a hundred clients one has trained: one array is written, and what nobody needs any more is deleted."""
    memory = {c: np.full(50, c, dtype=np.float32) for c in range(100)}
    folder.append({"round": 0})
    for t in range(5):
        memory = {**memory, t: np.full(50, 1000 + t, dtype=np.float32)}
        before = {path: path.stat().st_mtime_ns for path in (folder.path / ARRAYS).glob("*")}
        folder.save_checkpoint({"round": 0, "memory": memory})
        after = {path: path.stat().st_mtime_ns for path in array_files(folder)}
        assert len({path for path in after if path not in before}) == (100 if t == 0 else 1)
        assert all(after[path] == before[path] for path in after if path in before)
        assert len(after) == 100 + (t > 0)
    loaded = RunFolder(folder.path).load_checkpoint()
    assert loaded is not None
    assert same(loaded["memory"], memory)


def test_a_checkpoint_whose_rounds_are_not_recorded_does_not_count(folder: RunFolder) -> None:
    saved(folder, 3)
    folder.truncate_records(1)
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert loaded["round"] == 1


def test_a_finished_run_keeps_its_result_and_no_checkpoint(folder: RunFolder) -> None:
    saved(folder, 2)
    assert folder.result() is None
    folder.finish({"hash": "abc", "ari": None})
    assert folder.result() == {"hash": "abc", "ari": None}
    assert {path.name for path in folder.path.iterdir()} == {"result.json", "rounds.jsonl"}


def test_a_damaged_result_is_named(folder: RunFolder) -> None:
    folder.finish({"hash": "abc"})
    damage(folder.path / "result.json", "cut")
    with pytest.raises(StoreError, match=r"result\.json"):
        folder.result()


# Folders


def test_a_run_is_found_by_its_hash(tmp_path: Path) -> None:
    data = {"clients": 8, "scheme": {"kind": "iid"}}
    runs = expand({"seeds": [0, 1], "data": data, "algorithm": [{"name": "fedavg"}, {"name": "pacfl"}]})
    folders = [folder_of(run, tmp_path / "runs") for run in runs]
    assert [folder.path.name for folder in folders] == [run.hash for run in runs]
    assert [folder.content() for folder in folders] == [run.content() for run in runs]
    assert {folder.path for folder in all_folders(tmp_path / "runs")} == {folder.path for folder in folders}
    assert folder_of(runs[0], tmp_path / "runs") == folders[0]
    assert all_folders(tmp_path / "nowhere") == []


def test_a_folder_has_one_owner_at_a_time(folder: RunFolder) -> None:
    with owned(folder), pytest.raises(StoreError, match="another process"), owned(folder):
        pass
    with owned(folder):
        pass


def test_what_a_killed_process_left_half_written_is_cleared_away(folder: RunFolder) -> None:
    (folder.path / ".result.json.abc.part").write_bytes(b"half")
    with owned(folder):
        assert [path.name for path in folder.path.iterdir()] == [LOCK]


def test_another_process_is_another_owner_until_it_is_killed(folder: RunFolder) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from pacfl.files import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    print('mine', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(folder.path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(StoreError, match=str(folder.path)), owned(folder):
            pass
        other.kill()
    with owned(folder):
        pass


def test_a_saved_array_cannot_be_changed_in_place(folder: RunFolder) -> None:
    """It is not written again while it is the same object, so it must have the same content."""
    w = np.ones(3, dtype=np.float32)
    folder.save_checkpoint({"round": 0, "w": w})
    with pytest.raises(ValueError, match="read-only"):
        w += 1


def test_a_view_is_saved_again_for_its_base_may_have_changed(folder: RunFolder) -> None:
    base = np.zeros((2, 3), dtype=np.float32)
    view = base[0]
    folder.save_checkpoint({"round": 0, "w": view})
    base[0] = 7
    folder.save_checkpoint({"round": 0, "w": view})
    loaded = RunFolder(folder.path).load_checkpoint()
    assert loaded is not None
    assert loaded["w"].tolist() == [7, 7, 7]


def test_a_state_of_another_class_of_the_same_name_is_not_taken_for_ours() -> None:
    @dataclass
    class State:
        models: int = 1

    with pytest.raises(TypeError, match="a state may hold"):
        encode(State(), {})


def test_no_thread_changes_the_mask_of_another(tmp_path: Path) -> None:
    """Files get the mode that the process's mask allows, whoever writes at the same time."""
    before = os.umask(0o022)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda i: write_atomically(tmp_path / str(i), b"x"), range(200)))
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_checkpoint_is_read_beside_the_process_that_saves_the_next_ones(folder: RunFolder) -> None:
    """Whenever it is read, it is one of the states that were saved, whole, and nothing is deleted by reading."""
    rounds = 6
    saving = threading.Thread(
        target=lambda: [folder.save_checkpoint({"round": t, "w": np.full(50, t)}) for t in range(rounds)]
    )
    folder.save_checkpoint({"round": 0, "w": np.zeros(50)})
    saving.start()
    seen = []
    while saving.is_alive():
        state = checkpoint.peek(folder.path)
        assert state is not None
        assert (state["w"] == state["round"]).all()
        seen.append(state["round"])
    saving.join()
    assert seen == sorted(seen)
    last = checkpoint.peek(folder.path)
    assert last is not None
    assert last["round"] == rounds - 1
