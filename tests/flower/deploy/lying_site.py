"""A hostile site: its SuperNode and its key are genuine, its worker's replies are not."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from pacfl.flower import warm
from pacfl.flower.client_handlers import handle
from pacfl.flower.message_types import SIGNATURE, TRAIN
from pacfl.flower.site import load_client


def with_array(content: RecordDict, name: str, array: np.ndarray) -> RecordDict:
    content["arrays"] = ArrayRecord({**content["arrays"], name: Array(array)})
    return content


def with_round(content: RecordDict, t: int) -> RecordDict:
    content["about"] = ConfigRecord({**content["about"], "round": t})
    return content


# One after the other, then honest replies
FALSE_REPLIES = {
    SIGNATURE: [
        lambda c: with_array(c, "basis", np.zeros(2**26, np.float32)),  # 256 MiB, which Flower sends as one chunk of 5
        lambda c: with_array(c, "basis", np.random.default_rng(0).random(2**26, np.float32)),  # 256 MiB really sent
    ],
    TRAIN: [
        lambda c: with_array(c, "w", np.full(2410, np.nan, np.float32)),
        lambda c: with_array(c, "w", np.zeros(2409, np.float32)),
        lambda c: with_array(c, "w", np.full(2410, 1e20, np.float32)),
        lambda c: with_round(c, 77),
    ],
}


@contextmanager
def hostile_worker(site: Path) -> Iterator[dict[str, int]]:
    """Take the place of a site's worker; the number of false replies of each type."""
    script = site / "start.sh"
    lines = script.read_text().splitlines(keepends=True)
    script.write_text("".join(line for line in lines if "pacfl.flower.warm" not in line))
    sent = dict.fromkeys(FALSE_REPLIES, 0)
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(site / "worker.sock"))
        listening.listen()
        listening.settimeout(0.5)
        thread = threading.Thread(target=_serve, args=(listening, sent, over))
        thread.start()
        try:
            yield sent
        finally:
            over.set()
            thread.join()


def _serve(listening: socket.socket, sent: dict[str, int], over: threading.Event) -> None:
    while not over.is_set():
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        connection.settimeout(None)
        with connection, connection.makefile("rwb") as stream:
            content, about = warm.deserialise(stream)
            kind = about["message_type"]
            context = Context(0, 0, about["node_config"], RecordDict(), about["run_config"])
            reply = handle(kind, content, context, load_client)
            if sent.get(kind, 0) < len(FALSE_REPLIES.get(kind, ())):
                reply = FALSE_REPLIES[kind][sent[kind]](reply)
                sent[kind] += 1
            stream.write(warm.serialise(reply, {}))
