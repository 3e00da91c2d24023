"""Flower's SuperLink, with a limit on what it takes in: `python -m pacfl.deploy.superlink`, options as of Flower's.

Flower reads a request into memory before it asks who has sent it. Its own requests are small: arrays travel in pieces
of 5 MiB, apps have at most 10 MB.
"""

from collections.abc import Iterable
from typing import Final

from flwr.superlink import extensions
from flwr.superlink.cli import flower_superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LARGEST_REQUEST: Final = 2**24  # bytes


class Bounded:
    """Refuses requests that are too large, or do not say how large they are, before their body is read."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_REQUEST) -> None:
        """Stand before an application."""
        self.app, self.largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is small enough."""
        status = refusal(scope["headers"], self.largest) if scope["type"] == "http" else None
        if status is None:
            await self.app(scope, receive, send)
            return
        said = PlainTextResponse(f"at most {self.largest} bytes are wanted", status, {"connection": "close"})
        await said(scope, receive, send)


def refusal(headers: Iterable[tuple[bytes, bytes]], largest: int) -> int | None:
    """The status that refuses a request: 411 for one of unknown length, 413 for one that is too long."""
    told = dict(headers)
    if b"transfer-encoding" in told:
        return 411
    length = told.get(b"content-length", b"0")
    return None if length.isdigit() and int(length) <= largest else 413


def main() -> None:
    """Run the SuperLink until it is stopped."""
    extensions.get_middleware = lambda: (Middleware(Bounded),)
    flower_superlink()


if __name__ == "__main__":
    main()
