"""Interleaved timing of tasks, and how it is printed."""

import os
import time
from collections.abc import Callable, Mapping
from statistics import median

CORES = os.cpu_count() or 1
Times = dict[str, list[float]]  # seconds of every repeat


def interleaved(tasks: Mapping[str, Callable[[], object]], repeats: int) -> Times:
    """Seconds of every task; repeats alternate between the tasks."""
    times: Times = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            started = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - started)
    return times


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{median(values):,.3g} ({min(values):,.3g} to {max(values):,.3g})"


def rates(seconds: list[float], work: float) -> str:
    """Work per second: median and range."""
    values = [work / s for s in seconds]
    digits = ",.0f" if median(values) >= 100 else ".3g"
    return f"{median(values):{digits}} ({min(values):{digits}} to {max(values):{digits}})"


def busy() -> str:
    """Load of the machine."""
    return f"load {os.getloadavg()[0]:.1f} on {CORES} cores"
