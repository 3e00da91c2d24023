"""The SuperLink takes no request that is larger than Flower's own are, whoever sends it."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.middleware import Middleware

from pacfl.flower.deploy.superlink import LARGEST_REQUEST, Bounded, refusal


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
def test_a_request_is_judged_by_what_it_declares(headers: dict[str, str], status: int | None) -> None:
    assert refusal([(key.encode(), value.encode()) for key, value in headers.items()], 100) == status


def test_flowers_pieces_and_apps_are_small_enough() -> None:
    from flwr.common.constant import FAB_MAX_SIZE, FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

    assert max(FAB_MAX_SIZE, FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE) + 2**20 < LARGEST_REQUEST


def test_flowers_own_application_is_guarded_before_anybody_is_authenticated(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.superlink import extensions, main

    monkeypatch.setattr(extensions, "get_middleware", lambda: (Middleware(Bounded, 1000),))
    app = main.create_app()
    assert asked(app, b"x" * 1001) == 413
    assert asked(app, endless()) == 411
    assert asked(app, b"x" * 1000) not in (411, 413)


async def endless() -> AsyncIterator[bytes]:
    yield b"x" * 10


def asked(app: object, content: bytes | AsyncIterator[bytes]) -> int:
    """The status with which a request of nobody in particular is answered."""

    async def post() -> int:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://superlink") as client:
            kind = {"content-type": "application/protobuf"}
            return (await client.post("/v1/fleet/push-object", content=content, headers=kind)).status_code

    return asyncio.run(post())


class Cyclic:
    """What only a search for cycles finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize(("passed", "cleared"), [(50, False), (51, True)])
def test_what_requests_leave_behind_is_cleared_after_some_bytes(passed: int, cleared: bool) -> None:
    left: list[weakref.ref[Cyclic]] = []

    async def app(scope: object, receive: object, send: object) -> None:  # noqa: ARG001 - as a server calls it
        left.append(weakref.ref(Cyclic()))

    scope = {"type": "http", "headers": [(b"content-length", str(passed).encode())]}
    gc.disable()
    try:
        asyncio.run(Bounded(app, left_behind=50)(scope, None, None))  # type: ignore[arg-type]
        assert (left[0]() is None) == cleared
    finally:
        gc.enable()
