"""Is a federation all right? What its operator has to look at, and the exit code that says so to programs.

Nothing here imports Flower: the status of a server can be read wherever pacfl is.
"""

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pacfl.files import write_atomically

FILE: Final = "status.json"
HEARTBEAT: Final = 10.0  # seconds between two signs of life of the server app
LOST: Final = 25.0  # seconds without one after which it is taken for dead
STARTING: Final = 120.0  # seconds within which a run that was asked for starts
SILENCE: Final = 60.0  # seconds beyond two deadlines after which nothing has moved for too long
MOST_MISSED: Final = 3  # rounds in a row
LITTLE_SPACE: Final = (2**30, 0.1)  # bytes, or a share of a disk that is small
CERTIFICATE_DAYS: Final = 30

# Exit codes, the most urgent first
NOT_RUNNING, FAILED, STALLED, DEGRADED, OK = 3, 5, 4, 6, 0
URGENCY: Final = (NOT_RUNNING, FAILED, STALLED, DEGRADED, OK)
RESUME: Final = "resume it with ./run.sh in the server's folder, or with 'pacfl deploy up'"


@dataclass(frozen=True)
class Problem:
    """A sentence about what is wrong and what to do, and the exit code for it."""

    what: str
    code: int


def exit_code(problems: Iterable[Problem]) -> int:
    """The code of the most urgent one.

    >>> exit_code([Problem("a site is missed", DEGRADED), Problem("the run failed", FAILED)]), exit_code([])
    (5, 0)
    """
    return min((p.code for p in problems), key=URGENCY.index, default=OK)


def read(folder: Path) -> dict[str, Any] | None:
    """The status, or None where there is no federation."""
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else None


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace the file in one step, with a sign of life."""
    write_atomically(folder / FILE, json.dumps({**content, "heartbeat": time.time()}, indent=2).encode() + b"\n")


def starting(folder: Path) -> None:
    """A run was asked for: whatever the status says is of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(folder, {**(read(folder) or {}), "phase": "starting", "at": time.time()})


def run_is_due(folder: Path) -> bool:
    """Whether the federation should be running and is not: it never was, or its server app failed or was killed."""
    status = read(folder)
    if status is None or status["phase"] in ("failed", "stopped"):
        return True
    if status["phase"] == "finished":
        return False
    return _since(status, "heartbeat") > (STARTING if status["phase"] == "starting" else LOST)


def described(folder: Path) -> dict[str, Any] | None:
    """The status with all its fields, and how long ago it changed."""
    status = read(folder)
    if status is None:
        return None
    return {"deadline": 0.0, "clients": {}, "round": 0, "rounds": 0, **status, "silent": _since(status, "at")}


def problems(folder: Path) -> list[Problem]:
    """What is wrong with the federation in a folder of its server; nothing if all is well."""
    status = described(folder)
    if status is None:
        return [Problem(f"{folder}: no federation here; start one with ./run.sh or 'pacfl deploy up'", NOT_RUNNING)]
    own = [*_of_run(status), *_of_sites(status)] if status["phase"] != "finished" else [*_undelivered(status)]
    return [*own, *of_disk(folder), *of_certificate(folder.parent / "server.crt")]


def _of_run(status: Mapping[str, Any]) -> Iterator[Problem]:
    phase, silent = status["phase"], status["silent"]
    lost = _since(status, "heartbeat")
    if phase == "failed":
        yield Problem(f"the run failed ({status.get('last_error')}): remove the cause and {RESUME}", FAILED)
    elif phase == "stopped":
        yield Problem(f"the run was stopped before its end: {RESUME}", FAILED)
    elif phase == "starting":
        if silent > STARTING:
            yield Problem(
                f"a run was asked for {silent:.0f} s ago and has not started: see superlink.log, then {RESUME}", STALLED
            )
    elif lost > LOST:
        yield Problem(
            f"the server app gave its last sign of life {lost:.0f} s ago, so it was killed or hangs: {RESUME}", STALLED
        )
    elif phase == "waiting for clients":
        if silent > SILENCE or status.get("failing"):
            yield Problem(
                f"the next round waits for sites: {status.get('waiting_for') or 'too few are connected'}", STALLED
            )
    elif phase == "running" and silent > 2 * status["deadline"] + SILENCE:
        yield Problem(
            f"nothing has moved for {silent:.0f} s, and a round takes at most two deadlines of "
            f"{status['deadline']:g} s: see server.log, then stop the run with 'flwr stop' and {RESUME}",
            STALLED,
        )


def _of_sites(status: Mapping[str, Any]) -> Iterator[Problem]:
    for client in status["clients"].values():
        missed, failure = client.get("missed", 0), client.get("failure")
        if client.get("paused") or client.get("removed") or not missed:
            continue
        if client["cluster"] is None:
            yield Problem(f"site {client['name']} could not join ({failure}): its operator should see to it", DEGRADED)
        elif missed >= MOST_MISSED:
            yield Problem(
                f"site {client['name']} missed the last {missed} rounds ({failure}): its operator should see "
                "supernode.log and restart the site",
                DEGRADED,
            )
    for cluster in status.get("without_update", ()):
        names = [c["name"] for c in status["clients"].values() if c["cluster"] == cluster]
        yield Problem(
            f"cluster {cluster} had no update in the last round: no valid reply of {', '.join(names)}", DEGRADED
        )


def _undelivered(status: Mapping[str, Any]) -> Iterator[Problem]:
    if names := status.get("undelivered"):
        yield Problem(
            f"{', '.join(names)} did not get the models: start the sites, then 'pacfl deploy deliver' and ./run.sh",
            DEGRADED,
        )


def of_disk(folder: Path) -> Iterator[Problem]:
    """Whether the disk of a folder is nearly full."""
    total, _, free = shutil.disk_usage(folder)
    if free < min(LITTLE_SPACE[0], LITTLE_SPACE[1] * total):
        yield Problem(f"the disk of {folder} has {free / 2**20:.0f} MiB left: make room before a round fails", DEGRADED)


def of_certificate(path: Path) -> Iterator[Problem]:
    """Whether a certificate has ended, or ends soon; nothing where there is none."""
    if not path.exists():
        return
    from cryptography import x509  # a deployment has it; who only reads a status may not

    ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    days = (ends - datetime.now(UTC)).days
    if days < CERTIFICATE_DAYS:
        when = f"ends in {days} days" if days >= 0 else "has ended"
        yield Problem(f"the certificate {path} {when} ({ends:%Y-%m-%d}): pacfl deploy renew-certificate", DEGRADED)


def _since(status: Mapping[str, Any], field: str) -> float:
    """Seconds since a time; a clock may have been set back."""
    return max(time.time() - float(status.get(field, status.get("at", 0.0))), 0.0)
