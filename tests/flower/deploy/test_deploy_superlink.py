"""The SuperLink serves sites everywhere and the operator on this machine, and refuses requests that are too large."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.middleware import Middleware

from pacfl.errors import DeployError
from pacfl.flower.deploy import keys, superlink
from pacfl.flower.deploy.superlink import LARGEST_REQUEST, Guard, RequestLimit, TokenPlugin, permitted, refusal

SERVER, SITE = "192.0.2.7", "198.51.100.9"


@pytest.mark.parametrize(
    ("path", "client", "expected"),
    [
        ("/v1/fleet/pull-messages", SITE, True),
        ("/health", SITE, True),
        *(
            (path, client, client != SITE)
            for path in (
                "/v1/control/start-run",
                "/v1/runtime/acquire-task",
                "/docs",
                "/openapi.json",
                "/",
                "/v1/fleet",
            )
            for client in ("127.0.0.1", "::1", SERVER, SITE)
        ),
    ],
)
def test_others_than_sites_are_served_on_the_own_machine_only(path: str, client: str, expected: bool) -> None:
    """A connection to an address of one's own machine has this address at both ends."""
    assert permitted({"path": path, "client": (client, 1234), "server": (SERVER, 8443)}) == expected


def test_a_request_without_an_address_is_that_of_a_stranger() -> None:
    assert not permitted({"path": "/v1/control/start-run", "server": (SERVER, 8443)})


@pytest.mark.parametrize("path", ["/v1/control/list-runs", "/v1/fleet/%2e%2e/control/list-runs"])
@pytest.mark.parametrize("address", ["127.0.0.1", SITE])
def test_the_operators_interface_opens_to_the_token_on_the_server_only(
    path: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application is Flower's own."""
    from flwr.superlink import extensions, main

    monkeypatch.setattr(extensions, "get_middleware", lambda: (Middleware(Guard),))
    monkeypatch.setattr(main, "load_control_authn_plugin", lambda: TokenPlugin("right"))
    app = main.create_app()
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}, {"host": "x/v1/fleet/y?"}):
        assert status_of(app, b"", path, headers, address) in (401, 403, 404)
    opened = status_of(app, b"", path, {"authorization": "Bearer right"}, address) == 200
    assert opened == ((path, address) == ("/v1/control/list-runs", "127.0.0.1"))


def test_the_token_is_where_flowers_commands_look_for_it(tmp_path: Path) -> None:
    from flwr.cli.constant import ACCESS_TOKEN_STORE_KEY, AUTHN_TYPE_STORE_KEY
    from flwr.supercore.credential_store.file_credential_store import FileCredentialStore

    keys.write_control_token(tmp_path, "127.0.0.1:8443")
    store = FileCredentialStore(tmp_path / keys.CREDENTIALS)
    assert store.get(ACCESS_TOKEN_STORE_KEY % "127.0.0.1:8443") == keys.control_token(tmp_path).encode()
    assert store.get(AUTHN_TYPE_STORE_KEY % "127.0.0.1:8443") == b"oidc"
    assert len(keys.control_token(tmp_path)) > 40
    (tmp_path / keys.CREDENTIALS).write_text("{}")
    with pytest.raises(DeployError, match="writes another"):
        keys.control_token(tmp_path)


def test_a_server_that_gives_its_tasks_to_anybody_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["superlink", "--port", "1"])
    with pytest.raises(DeployError, match="of an earlier pacfl"):
        superlink.main()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"content-length": "0"}, None),
        ({"content-length": "100"}, None),
        ({"content-length": "101"}, 413),
        ({"content-length": "-1"}, 413),
        ({"content-length": "many"}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
def test_a_request_is_refused_by_its_declared_size(headers: dict[str, str], status: int | None) -> None:
    assert refusal([(key.encode(), value.encode()) for key, value in headers.items()], 100) == status


def test_flowers_chunks_and_apps_are_small_enough() -> None:
    from flwr.common.constant import FAB_MAX_SIZE, FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

    assert max(FAB_MAX_SIZE, FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE) + 2**20 < LARGEST_REQUEST


def test_the_limit_applies_before_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.superlink import extensions, main

    monkeypatch.setattr(extensions, "get_middleware", lambda: (Middleware(RequestLimit, 1000),))
    app = main.create_app()
    assert status_of(app, b"x" * 1001) == 413
    assert status_of(app, endless()) == 411
    assert status_of(app, b"x" * 1000) not in (411, 413)


async def endless() -> AsyncIterator[bytes]:
    yield b"x" * 10


def status_of(
    app: object,
    content: bytes | AsyncIterator[bytes],
    path: str = "/v1/fleet/push-object",
    headers: dict[str, str] | None = None,
    address: str = "127.0.0.1",
) -> int:
    """The HTTP status of the reply to a request from an address."""

    async def post() -> int:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 1234))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://superlink") as client:
            kind = {"content-type": "application/protobuf", **(headers or {})}
            return (await client.post(path, content=content, headers=kind)).status_code

    return asyncio.run(post())


class Cyclic:
    """Freed by the collection of cycles only."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize(("passed", "collected"), [(50, False), (51, True)])
def test_garbage_of_requests_is_collected_after_some_bytes(passed: int, collected: bool) -> None:
    left: list[weakref.ref[Cyclic]] = []

    async def app(scope: object, receive: object, send: object) -> None:  # noqa: ARG001 - as a server calls it
        left.append(weakref.ref(Cyclic()))

    scope = {"type": "http", "headers": [(b"content-length", str(passed).encode())]}
    gc.disable()
    try:
        asyncio.run(RequestLimit(app, collect_after=50)(scope, None, None))  # type: ignore[arg-type]
        assert (left[0]() is None) == collected
    finally:
        gc.enable()
