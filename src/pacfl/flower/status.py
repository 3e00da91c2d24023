"""What an operator wants to know, in one small file that is always whole."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacfl.federation.message import ClientId
from pacfl.files import write_atomically
from pacfl.flower.backend import Flower
from pacfl.flower.members import Members

FILE: Final = "status.json"
log = logging.getLogger("pacfl")


@dataclass(eq=False)
class Board:
    """Writes the status after everything that happens."""

    folder: Path
    n_rounds: int
    members: Members
    backend: Flower
    cluster_of: dict[ClientId, int]
    trained: int = 0  # rounds of training that are kept; judging everybody at an end is none
    accuracy: float | None = None

    def waiting(self) -> None:
        """Too few are there."""
        self._write("waiting for clients")

    def playing(self) -> None:
        """A round begins."""
        self._write("playing")

    def played(self, t: int, cluster_of: dict[ClientId, int], kept: Mapping[str, Any]) -> None:
        """A round has ended and is kept."""
        for client in sorted(cluster_of.keys() - self.cluster_of.keys()):
            log.info("round %d client %d: joined, in cluster %d", t, client, cluster_of[client])
        self.cluster_of = cluster_of
        received = kept.get("accuracy", {}).get("received")
        self.accuracy = received["mean"] if received else self.accuracy
        log.info("round %d: done, %d clusters, accuracy %s", t, kept["clusters"], self.accuracy)
        self.trained += bool(kept["sampled"])
        self._write("playing")

    def finished(self) -> None:
        """All rounds are played."""
        log.info("finished")
        self._write("finished")

    def _write(self, phase: str) -> None:
        last = self.backend.reply_errors[-1] if self.backend.reply_errors else None
        clients = {
            str(c): {"identity": identity, "cluster": self.cluster_of.get(c), "alive": c in self.members.nodes}
            for identity, c in self.members.number_of.items()
        }
        write(
            self.folder,
            {
                "phase": phase,
                "round": min(self.trained, self.n_rounds),
                "rounds": self.n_rounds,
                "deadline": self.backend.deadline,
                "accuracy": self.accuracy,
                "clients": clients,
                "last_error": last and f"round {last.round} client {last.client}: {last.what}",
            },
        )


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace the file in one step."""
    write_atomically(folder / FILE, json.dumps({**content, "at": time.time()}, indent=2).encode() + b"\n")


def read(folder: Path) -> dict[str, Any] | None:
    """The status, or None where no federation has been."""
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else None


def failed(folder: Path, error: Exception) -> None:
    """The server stops because of an error."""
    log.error("stopped: %s: %s", type(error).__name__, error)
    write(folder, {**(read(folder) or {}), "phase": "failed", "last_error": f"{type(error).__name__}: {error}"})
