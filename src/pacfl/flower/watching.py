"""Processes that belong together end together."""

import threading
import time
from collections.abc import Callable
from typing import Final

POLL: Final = 1.0  # seconds


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    import psutil  # not in processes that only send a request

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def when_ended(pid: int, react: Callable[[], object]) -> None:
    """React as soon as a process has ended, in a thread of its own."""

    def watch() -> None:
        while is_alive(pid):
            time.sleep(POLL)
        react()

    threading.Thread(target=watch, daemon=True).start()
