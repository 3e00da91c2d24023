"""The log of a federation: lines for people, or a line of JSON for each event."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

log = logging.getLogger("pacfl")

Format = Literal["text", "json"]
TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


def info(message: str, event: str, **about: object) -> None:
    """Log an event; about: what programs should not have to read from the message."""
    _note(logging.INFO, message, event, about)


def warning(message: str, event: str, **about: object) -> None:
    """Log an event that an operator should look at."""
    _note(logging.WARNING, message, event, about)


def error(message: str, event: str, **about: object) -> None:
    """Log why the federation stops."""
    _note(logging.ERROR, message, event, about)


def _note(level: int, message: str, event: str, about: dict[str, object]) -> None:
    log.log(level, "%s", message, extra={"about": {"event": event, **about}})


class JsonLines(logging.Formatter):
    """A line of JSON for each record: when, level, event and what belongs to it, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        about = getattr(record, "about", {"event": "other"})
        when = {"at": round(record.created, 3), "level": record.levelname.lower()}
        return json.dumps({**when, **about, "message": record.getMessage()})


@contextmanager
def log_to(path: Path, form: Format) -> Iterator[None]:
    """Write the log to a file too, with the time."""
    handlers: list[logging.Handler] = [logging.FileHandler(path), logging.StreamHandler()]
    log.setLevel(logging.INFO)
    for handler in handlers:
        handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT))
        log.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
