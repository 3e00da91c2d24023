"""The local backend: all clients in this process, in threads of it, or in processes with one thread each."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.client_side import ClientSide, Pool
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Score, Scores
from pacfl.learning.client_context import LocalTraining
from pacfl.learning.eager import Eager
from pacfl.learning.engines import build_engine
from pacfl.learning.model import Model, Vector

Run = Callable[[str, Sequence[tuple[Any, ...]]], list[Any]]

_side: ClientSide | None = None  # in a worker: what it was born with


@dataclass(eq=False)
class Local:
    """Clients and what they remember. `run` calls a method of the client side for many arguments, in order."""

    run: Run
    pool: Pool
    algorithm: Algorithm
    model: Model
    memory: dict[ClientId, Message] = field(default_factory=dict)
    last: dict[ClientId, Vector] = field(default_factory=dict)

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        """What clients tell of their data."""
        return dict(zip(clients, self.run("profile", [(t, c) for c in clients]), strict=True))

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        """Local trainings. A client whose reply is lost has trained all the same, and remembers."""
        jobs = [(t, c, down, self._memory(c)) for c, down in downloads.items()]
        uploads = []
        for c, (up, memory, trained) in zip(downloads, self.run("train", jobs), strict=True):
            self.memory[c] = memory
            if trained is not None:
                self.last[c] = trained
            if c not in lost:
                uploads.append(Upload(c, len(self.pool.client_indices[c].train), up))
        return uploads

    def evaluate(self, t: int, downloads: Mapping[ClientId, Message], personal: bool, fine_tune: int = 0) -> Scores:
        """Scores by protocol."""
        jobs = [(t, c, down, self._memory(c), self.last.get(c), personal, fine_tune) for c, down in downloads.items()]
        scores: dict[str, dict[ClientId, Score]] = {}
        for c, by_protocol in zip(downloads, self.run("evaluate", jobs), strict=True):
            for protocol, score in by_protocol.items():
                scores.setdefault(protocol, {})[c] = score
        return scores

    def forget(self, clients: Iterable[ClientId]) -> None:
        """Clients who do not come back take with them what they remember."""
        for client in clients:
            self.memory.pop(client, None)
            self.last.pop(client, None)

    def _memory(self, client: ClientId) -> Message:
        return self.memory[client] if client in self.memory else self.algorithm.init_client(self.model)


@contextmanager
def local(
    algorithm: Algorithm,
    model: Model,
    pool: Pool,
    learning: LocalTraining,
    seed: int,
    workers: int = 1,
    device: str = "cpu",
    engine: str = "eager",
) -> Iterator[Local]:
    """A local backend. With one worker and the eager engine, the plain loop that is the oracle of all others."""
    with _on_one_thread():
        chosen = build_engine(engine, model, pool.train.x.shape[1:], device)
        side = ClientSide(algorithm, model, pool, learning, chosen, seed)
        with _running(side, workers) as run:
            yield Local(run, pool, algorithm, model)


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """One thread in every library: the same bits with any number of workers.

    Clients' matrices are small, too: libraries that divide them among threads of their own wait more than they work.
    For the whole run: set for every call instead, BLAS slowed the threads that train.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _running(side: ClientSide, workers: int) -> Iterator[Run]:
    """One after the other, or in as many workers: processes for the eager engine, threads for one that frees them."""
    if workers == 1:
        yield lambda method, jobs: [getattr(side, method)(*job) for job in jobs]
    elif isinstance(side.engine, Eager):
        fork = multiprocessing.get_context("fork")  # processes share the data of their parent without copying it
        with ProcessPoolExecutor(workers, fork, initializer=_init_worker, initargs=(side, os.getpid())) as executor:
            yield lambda method, jobs: _together(executor, _call, method, jobs)
    else:
        with ThreadPoolExecutor(workers) as executor:
            yield lambda method, jobs: _together(executor, lambda m, job: getattr(side, m)(*job), method, jobs)


def _together(
    executor: Executor, call: Callable[[str, tuple[Any, ...]], Any], method: str, jobs: Sequence[tuple[Any, ...]]
) -> list[Any]:
    futures = [executor.submit(call, method, job) for job in jobs]
    try:
        return [future.result() for future in futures]
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        raise


def _init_worker(side: ClientSide, parent: int) -> None:
    global _side
    _side = side
    torch.set_num_threads(1)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """A parent that was killed cannot tell its workers to stop."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _call(method: str, job: tuple[Any, ...]) -> Any:
    return getattr(_side, method)(*job)
