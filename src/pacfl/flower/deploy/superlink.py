"""Flower's SuperLink, with limits on the memory that others can take: `python -m pacfl.flower.deploy.superlink`.

Options are those of flower-superlink. Flower reads a request into memory before it asks who has sent it, and what it
has answered stays there, three times over, until Python looks for cycles. Its own requests are small: arrays travel in
pieces of 5 MiB, apps have at most 10 MB.
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
LEFT_BEHIND: Final = 2**24  # bytes of requests and answers after which memory is cleared


class Bounded:
    """Refuses requests that are too large, or do not say how large they are, before their body is read."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_REQUEST, left_behind: int = LEFT_BEHIND) -> None:
        """Stand before an application."""
        self.app, self.largest, self.left_behind = app, largest, left_behind
        self.passed = 0  # bytes since memory was cleared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is small enough, and clear up behind it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = refusal(scope["headers"], self.largest)
        if status is not None:
            said = PlainTextResponse(f"at most {self.largest} bytes are wanted", status, {"connection": "close"})
            await said(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            self.passed += len(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, counted)
        self.passed += length(dict(scope["headers"]))
        if self.passed > self.left_behind:
            self.passed = 0
            gc.collect()


def refusal(headers: Iterable[tuple[bytes, bytes]], largest: int) -> int | None:
    """The status that refuses a request: 411 for one of unknown length, 413 for one that is too long."""
    told = dict(headers)
    if b"transfer-encoding" in told:
        return 411
    return None if 0 <= length(told) <= largest else 413


def length(headers: dict[bytes, bytes]) -> int:
    """Bytes that a request declares; -1 if that is no number."""
    told = headers.get(b"content-length", b"0")
    return int(told) if told.isdigit() else -1


def main() -> None:
    """Run the SuperLink until it is stopped."""
    extensions.get_middleware = lambda: (Middleware(Bounded),)
    gc.freeze()  # what was imported stays, and need not be looked at
    flower_superlink()


if __name__ == "__main__":
    main()
