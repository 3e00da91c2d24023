"""What left a site: a record that is only ever appended to, written before Flower gets a reply."""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Final

FILE: Final = "sent.jsonl"  # in the folder of a site
ERROR: Final = "error"  # the kind of a reply that says what went wrong
REFUSED: Final = "refused"  # of one that says that the operator has not approved the app
PAUSED: Final = "paused"


def note(path: Path, kind: str, t: int | None, content: bytes) -> None:
    """Append a line durably. Without it nothing may leave, so an error is the caller's."""
    line = {
        "at": round(time.time(), 3),
        "round": None if t is None else t + 1,
        "kind": kind,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)


def round_of(group_id: str) -> int | None:
    """The round that a message of Flower names, from 0."""
    return int(group_id) if group_id.isdecimal() else None
