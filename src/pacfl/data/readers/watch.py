"""Wrist sensors of ten people doing seven shoulder exercises: the wheel of seglearn, or its windows in watch.npz."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.readers.collected import Collected
from pacfl.data.readers.packages import member
from pacfl.data.readers.pickles import PickledArray, load_plain
from pacfl.data.readers.search import reading
from pacfl.errors import DataError

FILES: Final = ("seglearn-*.whl",)
WINDOWS: Final = ("watch.npz",)
LENGTH, STEP, CHANNELS = 100, 50, 6
TEST: Final = 0.3  # of each recording, at its end


def collected(paths: Sequence[Path]) -> Collected:
    """Which exercise, from windows of 100 steps of six channels that overlap by half; clients are people.

    The end of each recording is for testing. The window between is left out, because it overlaps with both.
    """
    content = member(paths[0], "data/watch_dataset.npy")
    with reading(paths[0], "recordings"):
        found = _unpickled(content)
        recordings, y, person = found["X"], found["y"].value, found["subject"].value
        windows = [_windows(recording.value) for recording in recordings]
        counts = [len(own) for own in windows]
        recording = np.repeat(np.arange(len(windows)), counts)
        return _collected(np.concatenate(windows), np.repeat(y, counts), np.repeat(person, counts), recording)


def collected_windows(paths: Sequence[Path]) -> Collected:
    """The same from windows, one recording of a person, exercise and arm after the other."""
    with reading(paths[0], "windows"), np.load(paths[0], allow_pickle=False) as arrays:
        x, y, person, side = (arrays[name] for name in ("x", "y", "subject", "side"))
        whose = np.stack([y, person, side], axis=1)
        recording = np.concatenate([[0], np.cumsum((whose[1:] != whose[:-1]).any(axis=1))])
        return _collected(x, y, person, recording)


def _unpickled(content: bytes) -> Any:
    """The dict in an .npy file of one object, read without executing anything."""
    file = io.BytesIO(content)
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    array = load_plain(file.read())
    if not isinstance(array, PickledArray) or len(array.objects) != 1:
        raise DataError("is not one dict of recordings")
    return array.objects[0]


def _windows(recording: NDArray[Any]) -> NDArray[Any]:
    starts = np.arange(0, len(recording) - LENGTH + 1, STEP)
    windows: NDArray[Any] = recording[starts[:, None] + np.arange(LENGTH)]
    return windows


def _collected(x: NDArray[Any], y: NDArray[Any], person: NDArray[Any], recording: NDArray[Any]) -> Collected:
    if x.shape[1:] != (LENGTH, CHANNELS):
        raise DataError(f"has windows of shape {x.shape[1:]}, expected {(LENGTH, CHANNELS)}")
    test, used = np.zeros(len(x), dtype=np.bool_), np.ones(len(x), dtype=np.bool_)
    for number in range(int(recording[-1]) + 1):
        own = np.flatnonzero(recording == number)
        first = round(len(own) * (1 - TEST))
        test[own[first:]], used[own[first - 1]] = True, False
    client = np.array([f"person {number:02d}" for number in person[used].astype(int)])
    return Collected(x[used], y[used].astype(np.int64), client, test[used], recording[used])
