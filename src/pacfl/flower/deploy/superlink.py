"""Flower's SuperLink, closed to all but sites and the operator: `python -m pacfl.flower.deploy.superlink`.

Options are those of flower-superlink. Sites are served at all addresses, everything else on this machine only, and
operators by their token. Flower reads a request into memory before it authenticates the sender, and three copies of
its reply stay there until Python collects cycles. Its own requests are small: arrays are sent in chunks of 5 MiB, apps
have at most 10 MB.
"""

import gc
import hmac
import ipaddress
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import uvicorn.config
from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.constant import NodeStatus
from flwr.supercore.state.schema.linkstate_models import Node as StoredNode
from flwr.superlink import extensions
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from sqlalchemy import update
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pacfl.errors import DeployError
from pacfl.flower.deploy import executor, files, keys
from pacfl.flower.deploy.reloading import reloading

LARGEST_REQUEST: Final = 2**24  # bytes
COLLECT_AFTER: Final = 2**24  # bytes of requests and replies
SECRET: Final = "--superexec-auth-secret-file"
OPENING: Final = (  # variables that would open other ways in, or let a sender choose its address
    "FLWR_INTERNAL_GRPC_CONTROL_API",
    "FLWR_INTERNAL_GRPC_FLEET_API",
    "FORWARDED_ALLOW_IPS",
)


class Guard:
    """Middleware that serves sites everywhere, and others on this machine only."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is permitted."""
        if scope["type"] == "lifespan" or permitted(scope):
            await self.app(scope, receive, send)
        else:
            response = PlainTextResponse("operators work on the server itself", 403, {"connection": "close"})
            await response(scope, receive, send)


def permitted(scope: Scope) -> bool:
    """Whether a request is that of a site, or comes from this machine."""
    if scope["path"] == "/health" or scope["path"].startswith("/v1/fleet/"):
        return True
    client, server = scope.get("client"), scope.get("server")
    if client is None:
        return False
    return ipaddress.ip_address(client[0]).is_loopback or (server is not None and client[0] == server[0])


class TokenPlugin(NoOpControlAuthnPlugin):
    """The operator is whoever has the token. The account is Flower's only one."""

    def __init__(self, token: str) -> None:
        """Expect a token."""
        self.token = token

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        """Compare the token, in a time that does not depend on it."""
        given = str(dict(metadata).get(ACCESS_TOKEN_KEY, ""))
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return False, None
        return super().validate_tokens_in_metadata(metadata)

    def refresh_tokens(self, metadata: Sequence[tuple[str, str | bytes]]) -> tuple[None, None]:  # noqa: ARG002
        """A token is valid until it is replaced."""
        return None, None


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


def freeing_keys(create: Callable[..., int]) -> Callable[..., int]:
    """Flower's function that registers a key, for keys that were unregistered, too: it stores them for ever."""

    # Parameters are called as Flower calls them: it gives them by name
    def created(
        state: SqlLinkState, owner_aid: str, owner_name: str, public_key: bytes, *rest: Any, **others: Any
    ) -> int:
        former = (StoredNode.public_key == public_key, StoredNode.status == NodeStatus.UNREGISTERED)
        with state.session() as session:
            session.execute(update(StoredNode).where(*former).values(public_key=None))
        return create(state, owner_aid, owner_name, public_key, *rest, **others)

    return created


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


def replace(owner: Any, name: str, value: Any) -> None:
    """Put a part of ours in the place of one of Flower's; an error where Flower has none of the name."""
    getattr(owner, name)
    setattr(owner, name, value)


def needs_secret() -> None:
    """Refuse to start where everybody on this machine could take the tasks of the executor."""
    if SECRET not in sys.argv:
        raise DeployError(
            f"start.sh does not give {SECRET}: it is of an earlier pacfl, and would let every user of this machine "
            "take its tasks; write another with 'pacfl deploy init', and copy your keys and data to it"
        )


def main() -> None:
    """Run the SuperLink until it is stopped."""
    needs_secret()
    for name in OPENING:
        os.environ.pop(name, None)
    flower = import_module("flwr.superlink.cli.flower_superlink")
    options, _ = flower._parse_args_run_superlink().parse_known_args()
    home = Path(os.environ["FLWR_HOME"])
    if not (home / keys.CREDENTIALS).exists():
        keys.write_control_token(home, files.own_address(options.host, options.port))
    token = keys.control_token(home)
    replace(flower, "load_control_authn_plugin", lambda: TokenPlugin(token))
    replace(extensions, "get_middleware", lambda: (Middleware(RequestLimit), Middleware(Guard)))
    executor.end_with_it()
    replace(uvicorn.config, "create_ssl_context", reloading(uvicorn.config.create_ssl_context))
    replace(SqlLinkState, "create_node", freeing_keys(SqlLinkState.create_node))
    gc.freeze()  # imported modules stay, and need not be searched
    flower.flower_superlink()


if __name__ == "__main__":
    main()
