"""A SuperLink or SuperNode without its executor runs no app: it ends with it, to be started again with a new one."""

import logging
import os
import signal
import threading
from typing import Final

from pacfl.flower.watching import when_ended

VARIABLE: Final = "PACFL_EXECUTOR"  # has the id of the executor's process; start.sh sets it
log = logging.getLogger("flwr")


def end_with_it() -> None:
    """Ask this process to stop when the executor has ended. Otherwise its site would seem alive."""
    if executor := os.environ.get(VARIABLE):
        when_ended(int(executor), lambda: _stop(int(executor)))


def _stop(executor: int) -> None:
    log.error("the executor (process %d) has ended: stopping, to be started again with a new one", executor)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
