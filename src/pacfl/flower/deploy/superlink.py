"""Flower's SuperLink, with limits on the memory that requests take: `python -m pacfl.flower.deploy.superlink`.

Options are those of flower-superlink. Flower reads a request into memory before it authenticates the sender, and three
copies of its reply stay there until Python collects cycles. Its own requests are small: arrays are sent in chunks of
5 MiB, apps have at most 10 MB.
"""

import gc
from collections.abc import Iterable
from typing import Final

from flwr.superlink import extensions
from flwr.superlink.cli import flower_superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_REQUEST: Final = 2**24  # bytes
COLLECT_AFTER: Final = 2**24  # bytes of requests and replies


class RequestLimit:
    """Middleware that refuses requests of unknown or too large size before their body is read."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_REQUEST, collect_after: int = COLLECT_AFTER) -> None:
        """Wrap an application."""
        self.app, self.largest, self.collect_after = app, largest, collect_after
        self.passed = 0  # bytes since the last collection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on small requests, and collect garbage after some bytes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = refusal(scope["headers"], self.largest)
        if status is not None:
            response = PlainTextResponse(f"expected at most {self.largest} bytes", status, {"connection": "close"})
            await response(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            self.passed += len(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, counted)
        self.passed += length(dict(scope["headers"]))
        if self.passed > self.collect_after:
            self.passed = 0
            gc.collect()


def refusal(headers: Iterable[tuple[bytes, bytes]], largest: int) -> int | None:
    """The status that refuses a request: 411 for one of unknown length, 413 for one that is too long."""
    given = dict(headers)
    if b"transfer-encoding" in given:
        return 411
    return None if 0 <= length(given) <= largest else 413


def length(headers: dict[bytes, bytes]) -> int:
    """Bytes that a request declares; -1 if that is not a number."""
    declared = headers.get(b"content-length", b"0")
    return int(declared) if declared.isdigit() else -1


def main() -> None:
    """Run the SuperLink until it is stopped."""
    extensions.get_middleware = lambda: (Middleware(RequestLimit),)
    gc.freeze()  # imported modules stay, and need not be searched
    flower_superlink()


if __name__ == "__main__":
    main()
