"""A federation of real processes on this machine, which are stopped when the block is left."""

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from pacfl.experiment.store import RunFolder
from pacfl.flower import health
from pacfl.flower.client_registry import fingerprint
from pacfl.flower.deploy import keys, layout, loopback, processes


@dataclass(frozen=True)
class Loopback:
    """A deployment and its status."""

    folder: Path

    def start(self, sites: list[int]) -> None:
        """The server, some sites, and a run."""
        loopback.start_server(self.folder)
        for i in sites:
            self.join(i)
        loopback.begin(self.folder)

    def join(self, i: int) -> None:
        loopback.join(self.folder, str(i))

    def kill(self, name: str) -> None:
        """Without warning, as by a power failure."""
        processes.stop(self.folder, name, signal.SIGKILL)

    def part(self, name: str, program: str) -> int | None:
        """The id of a program that a process has started, if it runs."""
        family = processes.descendants(processes.running(self.folder).get(name, 0))
        for process in family:
            with suppress(psutil.Error):
                if program in " ".join(process.cmdline()):
                    return process.pid
        return None

    @property
    def status(self) -> dict[str, Any]:
        return health.read(loopback.federation(self.folder)) or {"phase": None, "round": -1, "clients": {}}

    @property
    def records(self) -> list[dict[str, Any]]:
        return RunFolder(loopback.federation(self.folder)).records()

    def identity(self, i: int) -> str:
        key = load_ssh_public_key((self.folder / "sites" / str(i) / "node.pub").read_bytes())
        return fingerprint(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    def number(self, i: int) -> int | None:
        """The server's id of a site."""
        found = [int(c) for c, client in self.status["clients"].items() if client["fingerprint"] == self.identity(i)]
        return found[0] if found else None

    def cluster(self, i: int) -> int | None:
        number = self.number(i)
        cluster = None if number is None else self.status["clients"][str(number)]["cluster"]
        return cluster if cluster is None else int(cluster)

    def log(self, i: int) -> str:
        return (self.folder / "sites" / str(i) / "supernode.log").read_text(errors="replace")

    def peak_memory(self) -> dict[str, int]:
        """Peak memory of the server's two processes, SuperLink and ServerApp, in MiB."""
        server = processes.running(self.folder)[loopback.SERVER]
        peaks = {}
        for pid in (server, *(child.pid for child in processes.descendants(server))):
            with suppress(OSError):  # it may have ended
                command = Path(f"/proc/{pid}/cmdline").read_text()
                name = next((n for n in ("superlink", "serverapp") if n in command), "others")
                peaks[name] = int(re.findall(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0]) // 1024
        return peaks

    def wait(self, what: str, until: Callable[[], bool], seconds: float) -> float:
        """Seconds until a condition holds."""
        start = time.monotonic()
        while not until():
            if time.monotonic() - start > seconds:
                raise AssertionError(f"{what}: not within {seconds:.0f} s; status {json.dumps(self.status)}")
            time.sleep(0.2)
        return time.monotonic() - start

    def wait_for_round(self, t: int, seconds: float) -> float:
        """Wait until as many rounds are finished."""
        return self.wait(f"round {t}", lambda: len(self.records) >= t, seconds)


@contextmanager
def deployed(folder: Path, sites: int, settings: dict[str, dict[str, Any]]) -> Iterator[Loopback]:
    """A deployment that is not running yet."""
    layout.make(folder, [str(i) for i in range(sites)], settings=settings)
    try:
        yield Loopback(folder)
    finally:
        list(loopback.down(folder))


def rejected_node(sites: Loopback, kind: str) -> str:
    """Connect without a key, with one that nobody registered, or one that a site is using; the error."""
    folder = sites.folder / "rejected" / kind.replace(" ", "-")
    folder.mkdir(parents=True)
    plan = layout.load(sites.folder)
    command = [
        str(Path(sys.executable).parent / "flower-supernode"),
        *("--root-certificates", str(sites.folder / "server" / "ca.crt")),
        *("--superlink", f"127.0.0.1:{plan.port}", "--host", "127.0.0.1", "--port", str(layout.free_ports(1)[0])),
        *("--max-retries", "1"),
    ]
    if kind == "unknown":
        keys.write_node_key(folder)
    key = sites.folder / "sites" / "0" / "node.key" if kind == "in use" else folder / "node.key"
    command += [] if kind == "none" else ["--auth-supernode-private-key", str(key)]
    log = folder / "log"
    environment = {**loopback._environment(), "FLWR_HOME": str(folder / "flwr")}
    processes.start(sites.folder, f"rejected-{kind}", command, environment, log)
    try:
        sites.wait(
            f"a node with a key {kind} is refused",
            lambda: f"rejected-{kind}" not in processes.running(sites.folder) or "ERROR" in log.read_text(),
            90,
        )
        time.sleep(1.0)
    finally:
        processes.stop(sites.folder, f"rejected-{kind}")
    text = " ".join(re.sub(r"\x1b\[\d+m", "", log.read_text(errors="replace")).split())
    found = re.search(r"Exit Code: (\d+) (.{0,1000}?)(For more information|Traceback|$)", text)
    return f"Flower's code {found[1]}, {found[2].strip()}" if found else text[-300:]
