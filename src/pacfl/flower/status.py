"""The status of a federation for its operator, in one small file that is replaced atomically."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacfl.experiment.summary import ACCURACY, scores
from pacfl.federation.message import ClientId
from pacfl.files import write_atomically
from pacfl.flower.backend import FlowerBackend
from pacfl.flower.client_registry import ClientRegistry

FILE: Final = "status.json"
log = logging.getLogger("pacfl")


@dataclass(eq=False)
class StatusFile:
    """Writes the status after every event."""

    folder: Path
    n_rounds: int
    registry: ClientRegistry
    backend: FlowerBackend
    cluster_of: dict[ClientId, int]
    trained: int = 0  # rounds of training; the evaluation of everybody at the end is none
    metric: str = ACCURACY  # the primary one
    score: float | None = None  # its mean over clients, of the models as received

    def waiting(self) -> None:
        """There are too few clients."""
        self._write("waiting for clients")

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
            log.info("round %d client %s: joined, in cluster %d", t + 1, name, cluster_of[client])
        self.cluster_of = cluster_of
        received = scores(record).get("received")
        self.score = received["mean"] if received else self.score
        log.info("round %d: done, clusters: %s, %s: %s", t + 1, record["clusters"], self.metric, self.score)
        self.trained += bool(record["sampled"])
        self._write("running")

    def finished(self) -> None:
        """All rounds have run."""
        log.info("finished")
        self._write("finished")

    def _write(self, phase: str) -> None:
        last = self.backend.reply_failures[-1] if self.backend.reply_failures else None
        clients = {
            c: {**about, "cluster": self.cluster_of.get(int(c)), "alive": int(c) in self.registry.nodes}
            for c, about in self.registry.described().items()
        }
        write(
            self.folder,
            {
                "phase": phase,
                "round": min(self.trained, self.n_rounds),
                "rounds": self.n_rounds,
                "deadline": self.backend.deadline,
                **({} if self.metric == ACCURACY else {"metric": self.metric}),
                self.metric: self.score,
                "clients": clients,
                "last_error": last and f"round {last.round + 1} client {self.backend.name(last.client)}: {last.what}",
            },
        )


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace the file in one step."""
    write_atomically(folder / FILE, json.dumps({**content, "at": time.time()}, indent=2).encode() + b"\n")


def read(folder: Path) -> dict[str, Any] | None:
    """The status, or None where there is no federation."""
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else None


def failed(folder: Path, error: Exception) -> None:
    """The server stops because of an error."""
    log.error("stopped: %s: %s", type(error).__name__, error)
    write(folder, {**(read(folder) or {}), "phase": "failed", "last_error": f"{type(error).__name__}: {error}"})
