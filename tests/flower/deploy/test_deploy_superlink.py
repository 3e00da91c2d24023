"""The SuperLink refuses requests that are larger than Flower's own, whoever sends them."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.middleware import Middleware

from pacfl.flower.deploy.superlink import LARGEST_REQUEST, RequestLimit, refusal


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


def status_of(app: object, content: bytes | AsyncIterator[bytes]) -> int:
    """The HTTP status of the reply to an anonymous request."""

    async def post() -> int:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://superlink") as client:
            kind = {"content-type": "application/protobuf"}
            return (await client.post("/v1/fleet/push-object", content=content, headers=kind)).status_code

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
