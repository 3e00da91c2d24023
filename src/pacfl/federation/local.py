"""The local backend: all clients in this process, in threads of it, or in processes with one thread each."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from pacfl.errors import DataError
from pacfl.federation.algorithm import Upload
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Score, Scores
from pacfl.federation.secure_sums import summed
from pacfl.learning.eager import Eager
from pacfl.learning.model import Vector

Job = tuple[Any, ...]  # arguments of a method of the client side
RunJobs = Callable[[Callable[..., Any], Sequence[Job]], list[Any]]  # a method for many arguments, results in order

_side: ClientSide | None = None  # in a worker process


@dataclass(frozen=True)
class LocalBackend:
    """Clients on this machine. With one worker and the eager engine, the plain loop that is every other's oracle."""

    workers: int = 1

    @contextmanager
    def connect(self, setup: Setup) -> Iterator["LocalClients"]:
        """The clients of a setup, until the block is left."""
        with one_thread():
            side = ClientSide(setup)
            # A forked process cannot share its parent's accelerator
            with _workers(side, self.workers if setup.device == "cpu" else 1) as run_jobs:
                yield LocalClients(side, run_jobs)


@dataclass(eq=False)
class LocalClients:
    """Clients and their memory."""

    side: ClientSide
    run_jobs: RunJobs
    memory: dict[ClientId, Message] = field(default_factory=dict)
    last_trained: dict[ClientId, Vector] = field(default_factory=dict)

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        """What clients report about their data."""
        return dict(zip(clients, self.run_jobs(ClientSide.profile, [(t, c) for c in clients]), strict=True))

    def refuse(self, t: int, reasons: Mapping[ClientId, str]) -> None:  # noqa: ARG002 - one form for all clients
        """All clients are of one data set: it cannot be used."""
        client, reason = next(iter(reasons.items()))
        raise DataError(f"client {client} cannot join: {reason}")

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        """Local training. A client whose reply is lost has trained all the same, and remembers."""
        jobs = [(t, c, down, self._memory(c)) for c, down in downloads.items()]
        uploads = []
        for c, (up, memory, trained) in zip(downloads, self.run_jobs(ClientSide.train, jobs), strict=True):
            self.memory[c] = memory
            if trained is not None:
                self.last_trained[c] = trained
            if c not in lost:
                uploads.append(Upload(c, len(self.side.pool.indices(c, t).train), up))
        return summed(self.side, t, downloads, uploads) if self.side.algorithm.aggregation.secure else uploads

    def evaluate(self, t: int, downloads: Mapping[ClientId, Message], personal: bool, fine_tune: int = 0) -> Scores:
        """Scores by protocol."""
        jobs = [
            (t, c, down, self._memory(c), self.last_trained.get(c), personal, fine_tune)
            for c, down in downloads.items()
        ]
        scores: dict[str, dict[ClientId, Score]] = {}
        for c, by_protocol in zip(downloads, self.run_jobs(ClientSide.evaluate, jobs), strict=True):
            for protocol, score in by_protocol.items():
                scores.setdefault(protocol, {})[c] = score
        return scores

    def forget(self, clients: Iterable[ClientId]) -> None:
        """Drop the memory of clients that left for good."""
        for client in clients:
            self.memory.pop(client, None)
            self.last_trained.pop(client, None)

    def _memory(self, client: ClientId) -> Message:
        return self.memory[client] if client in self.memory else self.side.algorithm.init_client(self.side.model)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread in every library: the same bits with any number of workers.

    Clients' matrices are small, too: libraries that divide them among threads of their own wait more than they work.
    Set once for the whole run: set for every call instead, BLAS slowed the threads that train.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _workers(side: ClientSide, workers: int) -> Iterator[RunJobs]:
    """One job after the other, or in workers: processes for the eager engine, threads for one that frees them."""
    if workers == 1:
        yield partial(_in_turn, side)
    elif isinstance(side.engine, Eager):
        fork = multiprocessing.get_context("fork")  # processes share the data of their parent without copying it
        with ProcessPoolExecutor(workers, fork, initializer=_init_worker, initargs=(side, os.getpid())) as executor:
            yield lambda method, jobs: _submit(executor, _run_job, method, jobs)
    else:
        with ThreadPoolExecutor(workers) as executor:
            yield lambda method, jobs: _submit(executor, lambda m, job: m(side, *job), method, jobs)


def _in_turn(side: ClientSide, method: Callable[..., Any], jobs: Sequence[Job]) -> list[Any]:
    results = []
    for job in jobs:
        results.append(method(side, *job))  # noqa: PERF401 - one frame less in every traceback
    return results


def _submit(
    executor: Executor, call: Callable[[Callable[..., Any], Job], Any], method: Callable[..., Any], jobs: Sequence[Job]
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
    """A parent that was killed cannot stop its workers."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run_job(method: Callable[..., Any], job: Job) -> Any:
    return method(_side, *job)
