"""A warm worker: a process beside a SuperNode that has everything imported, and handles each message in a fork.

It is started with the SuperNode (`python -m pacfl.flower.warm SOCKET --with PID`), ends with it, and listens on a
Unix socket that only its owner can open. Messages are JSON and the bytes of arrays; nothing is unpickled.
"""

import argparse
import json
import os
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict

from pacfl.errors import WorkerError
from pacfl.flower.watching import is_alive, when_ended

LARGEST_HEADER = 2**24


def request(path: str, message_type: str, content: RecordDict, context: Context) -> RecordDict | None:
    """The worker's reply to a message; None if there is no worker."""
    about = {
        "message_type": message_type,
        "paths": sys.path,  # the app that Flower has just installed is there
        "run_config": dict(context.run_config),
        "node_config": dict(context.node_config),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            return None
        connection.sendall(serialise(content, about))
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            reply, outcome = deserialise(stream)
    if "error" in outcome:
        raise WorkerError(str(outcome["error"]))
    return reply


def serve(path: Path, companion: int) -> None:
    """Handle messages until the companion has ended."""
    import pacfl.algorithms
    import pacfl.data
    import pacfl.flower.client_handlers
    import pacfl.flower.site  # noqa: F401 - this process is there to have everything imported

    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.umask(0o177)
        listening.bind(str(path))
        os.umask(before)
        listening.listen()
        listening.settimeout(1.0)
        while is_alive(companion):
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                connection = None
            if connection is not None:
                with connection:
                    _reply_in_fork(connection, companion)
            _reap()
    path.unlink(missing_ok=True)


def _reply_in_fork(connection: socket.socket, companion: int) -> None:
    """Without its companion nobody wants the reply, and the process that waits for it here would wait for ever."""
    if os.fork():
        return
    when_ended(companion, lambda: os._exit(1))
    try:
        connection.settimeout(None)
        with connection.makefile("rwb") as stream:
            stream.write(_reply(stream))
    finally:
        os._exit(0)


def _reply(stream: Any) -> bytes:
    from pacfl.flower.client_handlers import handle
    from pacfl.flower.site import load_client

    try:
        content, about = deserialise(stream)
        sys.path[:] = about["paths"]
        context = Context(0, 0, about["node_config"], RecordDict(), about["run_config"])
        return serialise(handle(about["message_type"], content, context, load_client), {})
    except Exception as error:
        return serialise(RecordDict(), {"error": f"{type(error).__name__}: {error}"})


def serialise(content: RecordDict, about: Mapping[str, Any]) -> bytes:
    """Records as bytes: the length of a header, the header in JSON, the arrays."""
    arrays = {
        record: [[name, a.dtype, list(a.shape), a.stype, len(a.data)] for name, a in values.items()]
        for record, values in content.array_records.items()
    }
    header = {
        "about": about,
        "arrays": arrays,
        "configs": {name: dict(record) for name, record in content.config_records.items()},
        "metrics": {name: dict(record) for name, record in content.metric_records.items()},
    }
    text = json.dumps(header).encode()
    blobs = [a.data for values in content.array_records.values() for a in values.values()]
    return b"".join([struct.pack(">Q", len(text)), text, *blobs])


def deserialise(stream: Any) -> tuple[RecordDict, dict[str, Any]]:
    """The records, and `about`."""
    (length,) = struct.unpack(">Q", _exactly(stream, 8))
    if length > LARGEST_HEADER:
        raise WorkerError(f"a header has {length:,} bytes, expected at most {LARGEST_HEADER:,}")
    header = json.loads(_exactly(stream, length))
    content = RecordDict()
    for record, values in header["arrays"].items():
        arrays = {name: Array(d, tuple(shape), s, _exactly(stream, n)) for name, d, shape, s, n in values}
        content[record] = ArrayRecord(arrays)
    for record, values in header["configs"].items():
        content[record] = ConfigRecord(values)
    for record, values in header["metrics"].items():
        content[record] = MetricRecord(values)
    return content, header["about"]


def _exactly(stream: Any, n: int) -> bytes:
    content: bytes = stream.read(n)
    if len(content) != n:
        raise WorkerError("the worker ended before it had replied")
    return content


def _reap() -> None:
    """Collect forks that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Handle messages beside a SuperNode, with everything imported.")
    parser.add_argument("socket", type=Path)
    parser.add_argument("--with", dest="companion", type=int, required=True, metavar="PID", help="end when it ends")
    given = parser.parse_args()
    serve(given.socket, given.companion)
