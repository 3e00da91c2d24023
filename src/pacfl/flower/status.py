"""The status of a federation for its operator, in one small file that is replaced atomically."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pacfl.experiment.summary import ACCURACY, scores, trained
from pacfl.federation.message import ClientId
from pacfl.flower import event_log
from pacfl.flower.attendance import Attendance
from pacfl.flower.backend import FlowerBackend
from pacfl.flower.client_registry import ClientRegistry
from pacfl.flower.event_log import info, warning
from pacfl.flower.health import HEARTBEAT, read, write

WAITS = ("waiting for clients", "delivering models")  # phases in which nothing moves


@dataclass(eq=False)
class StatusFile:
    """Writes the status after every event, and a sign of life in between."""

    folder: Path
    n_rounds: int
    registry: ClientRegistry
    backend: FlowerBackend
    cluster_of: dict[ClientId, int]
    trained: int = 0  # rounds with an update; the evaluation of everybody at the end is none
    metric: str = ACCURACY  # the primary one
    score: float | None = None  # its mean over clients, of the models as received
    others: dict[str, float] = field(default_factory=dict)  # means of other metrics, where they are defined
    attendance: Attendance = field(default_factory=Attendance)
    _content: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Give signs of life until the block is left: without them the server app was killed."""
        self._write("starting")
        over = threading.Event()
        heart = threading.Thread(target=self._beat, args=(over,), daemon=True)
        heart.start()
        try:
            yield
        finally:
            over.set()
            heart.join()

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(HEARTBEAT):
            try:
                with self._lock:
                    write(self.folder, self._content)
            except OSError as error:
                warning(f"the status cannot be written: {error}", "status-not-written")

    def waiting(self, minimum: int, available: int) -> None:
        """There are too few clients for a round."""
        away = [self.registry.names[c] for c in self.registry.away()]
        paused = [self.registry.names[c] for c in sorted(self.registry.paused & self.registry.nodes.keys())]
        failed = [c for c in sorted(self.registry.nodes) if c in self.attendance.missed]
        reasons = [
            f"{minimum} have to take part, {available} can",
            *(f"{self.registry.names[c]} failed ({self.attendance.why[c]}), and is asked again" for c in failed),
            *([f"not connected: {', '.join(away)}"] if away else []),
            *([f"paused by their operators: {', '.join(paused)}"] if paused else []),
        ]
        self._write("waiting for clients", {"waiting_for": "; ".join(reasons), "failing": bool(failed)})

    def running(self) -> None:
        """A round starts."""
        self._write("running")

    def delivering(self) -> None:
        """All rounds have run, but some clients were away and have no models yet."""
        self._write("delivering models")

    def round_finished(self, t: int, cluster_of: dict[ClientId, int], record: Mapping[str, Any]) -> None:
        """A round has ended and is stored."""
        for client in sorted(cluster_of.keys() - self.cluster_of.keys()):
            name = self.backend.name(client)
            cluster = cluster_of[client]
            message = f"round {t + 1} client {name}: joined, in cluster {cluster}"
            info(message, "joined", round=t + 1, client=name, cluster=cluster)
        self.cluster_of = cluster_of
        received = scores(record).get("received")
        self.score = received["mean"] if received else self.score
        means = {name: by["received"]["mean"] for name, by in record.get("metrics", {}).items() if "received" in by}
        self.others |= {name: mean for name, mean in means.items() if mean is not None}
        known = {"clusters": record["clusters"], self.metric: self.score}
        message = f"round {t + 1}: done, clusters: {record['clusters']}, {self.metric}: {self.score}"
        info(message, "round-finished", round=t + 1, **known)
        self.trained += trained(record)
        self.attendance.note(record)
        self._write("running")

    def finished(self, undelivered: Iterable[ClientId]) -> None:
        """All rounds have run."""
        info("finished", "finished")
        self._write("finished", {"undelivered": [self.backend.name(c) for c in undelivered]})

    def _write(self, phase: str, more: Mapping[str, Any] | None = None) -> None:
        last = self.backend.reply_failures[-1] if self.backend.reply_failures else None
        still = phase in WAITS and self._content.get("phase") == phase
        content = {
            "phase": phase,
            "round": min(self.trained, self.n_rounds),
            "rounds": self.n_rounds,
            "deadline": self.backend.deadline,
            **({} if self.metric == ACCURACY else {"metric": self.metric}),
            self.metric: self.score,
            **({"metrics": self.others} if self.others else {}),
            "clients": {c: {**about, **self._of_client(int(c))} for c, about in self.registry.described().items()},
            "without_update": self.attendance.without_update,
            "last_error": last and f"round {last.round + 1} client {self.backend.name(last.client)}: {last.what}",
            **(more or {}),
            "at": self._content["at"] if still else time.time(),
        }
        with self._lock:
            self._content = content
            write(self.folder, content)

    def _of_client(self, client: ClientId) -> dict[str, Any]:
        return {
            "cluster": self.cluster_of.get(client),
            "alive": client in self.registry.nodes,
            "removed": client in self.registry.removed,  # by the operator
            "paused": client in self.registry.paused,  # by the operator of its site
            "missed": self.attendance.missed.get(client, 0),
            "failure": self.attendance.why.get(client),
        }


def ended(folder: Path, error: BaseException) -> None:
    """The server stops because of an error, or because it was asked to."""
    if isinstance(error, Exception):
        what = f"{type(error).__name__}: {error}"
        event_log.error(f"stopped: {what}", "failed", why=what)
        end = {"phase": "failed", "last_error": what}
    else:
        warning("stopped before the end of the federation", "stopped")
        end = {"phase": "stopped"}
    write(folder, {**(read(folder) or {}), **end, "at": time.time()})
