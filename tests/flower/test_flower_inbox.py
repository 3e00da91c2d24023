"""Replies over the network: none takes more memory than an honest one, delays others or hides them."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.app.message.arraychunk import ArrayChunk
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import (
    add_header_to_object_body,
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

from pacfl.flower.inbox import LARGEST_REST, MOST_OBJECTS, Inbox

pytestmark = pytest.mark.usefixtures("identity")

MIB = 2**20
Object = bytes | Callable[[], bytes] | None  # uploaded, made when it is pulled, or not uploaded yet


class Runtime:
    """The SuperLink's replies for its ServerApp. It delivers each once, as the real one does."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[Message, ObjectTree]] = {}
        self.objects: dict[str, Object] = {}
        self.confirmed: list[str] = []
        self.pulled = 0  # bytes

    def upload(self, message: str, content: RecordDict) -> Message:
        asked = Message(RecordDict(), 7, "train")
        asked.metadata.__dict__["_message_id"] = message
        reply = Message(content, reply_to=asked)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        self.replies[message] = reply, get_object_tree(reply)
        self.objects |= {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
        return reply

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:  # noqa: N802 - Flower's name
        replies = [self.replies.pop(one) for one in request.message_ids if one in self.replies]
        return PullAppMessagesResponse(
            messages_list=[message_to_proto(remove_content_from_message(reply)) for reply, _ in replies],
            message_object_trees=[tree for _, tree in replies],
        )

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802
        stored = self.objects[request.object_id]
        content = stored() if callable(stored) else stored
        self.pulled += len(content or b"")
        return PullObjectResponse(
            object_found=True, object_available=content is not None, object_content=content or b""
        )

    def ConfirmMessageReceived(self, request: object) -> None:  # noqa: N802
        self.confirmed.append(request.message_object_id)  # type: ignore[attr-defined]


def inbox(runtime: Runtime, largest: int = MIB) -> Inbox:
    grid = HttpGrid(token="t")
    grid._client = runtime
    grid.set_run(Run.create_empty(1))
    return Inbox(grid, largest)


def honest(seed: int = 0, n: int = 1000) -> RecordDict:
    w = np.random.default_rng(seed).normal(size=n).astype(np.float32)
    return RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "about": ConfigRecord({"round": 3})})


def array_of(reply: Message) -> Array:
    array: Array = reply.content["arrays"]["w"]
    return array


def test_an_honest_reply_is_received_as_sent_and_confirmed() -> None:
    runtime = Runtime()
    sent = runtime.upload("a", honest())
    assert inbox(runtime).receive({"a", "b"}) == {"a": honest()}
    assert runtime.confirmed == [sent.metadata.message_id]


def test_a_gigabyte_is_refused_before_much_of_it_is_pulled() -> None:
    """205 chunks of 5 MiB, as Flower makes them, created when they are pulled."""
    runtime = Runtime()
    reply = runtime.upload("a", honest())
    chunks = [f"{i:064x}" for i in range(205)]
    for i, name in enumerate(chunks):
        runtime.objects[name] = lambda i=i: ArrayChunk(memoryview(bytes([i]) * (5 * MIB))).deflate()
    tree = ObjectTree(object_id=reply.metadata.message_id, children=[ObjectTree(object_id=name) for name in chunks])
    runtime.replies["a"] = reply, tree
    limit = 64 * MIB
    assert inbox(runtime, limit).receive({"a"}) == {"a": "reply refused: has more than 67,108,864 bytes of arrays"}
    assert runtime.pulled < limit + LARGEST_REST + 6 * MIB
    assert runtime.confirmed == [reply.metadata.message_id]


def test_a_small_chunk_that_is_named_a_hundred_thousand_times_is_refused() -> None:
    """4 KB are sent; assembled they would be 400 MB."""
    runtime = Runtime()
    array = array_of(runtime.upload("a", honest()))
    header = {"dtype": "float32", "shape": [10**9], "stype": "numpy.ndarray", "arraychunk_ids": [0] * 10**5}
    forged = add_header_to_object_body(json.dumps(header, separators=(",", ":")).encode(), array)
    runtime.objects[array.object_id] = forged
    assert inbox(runtime).receive({"a"}) == {"a": "reply refused: has more than 1,048,576 bytes of arrays"}


def test_much_beside_the_arrays_is_refused() -> None:
    runtime = Runtime()
    runtime.upload("a", RecordDict({"about": ConfigRecord({"round": 3, "name": "x" * 2 * MIB})}))
    assert inbox(runtime).receive({"a"}) == {"a": "reply refused: has more than 1,048,576 bytes beside its arrays"}


def test_a_reply_of_too_many_objects_is_refused_before_any_is_pulled() -> None:
    runtime = Runtime()
    reply = runtime.upload("a", honest())
    children = [ObjectTree(object_id=f"{i:064x}") for i in range(MOST_OBJECTS + 17)]
    runtime.replies["a"] = reply, ObjectTree(object_id=reply.metadata.message_id, children=children)
    assert inbox(runtime).receive({"a"}) == {"a": "reply refused: has 1,018 objects, expected at most 1,016"}
    assert runtime.pulled == 0


@pytest.mark.parametrize("broken", ["named", "kind", "body"])
def test_a_reply_that_cannot_be_read_does_not_hide_the_others(broken: str) -> None:
    runtime = Runtime()
    array = array_of(runtime.upload("a", honest()))
    header = {"dtype": "float32", "shape": [9], "stype": "numpy.ndarray", "arraychunk_ids": [5]}
    forged = {
        "named": add_header_to_object_body(json.dumps(header).encode(), array),
        "kind": ArrayChunk(memoryview(b"a chunk in the place of an array")).deflate(),
        "body": add_header_to_object_body(b"[[[[", array),
    }
    runtime.objects[array.object_id] = forged[broken]
    runtime.upload("b", honest(1))
    received = inbox(runtime).receive({"a", "b"})
    assert str(received["a"]).startswith("reply cannot be read: ")
    assert received["b"] == honest(1)


def test_bytes_that_are_not_an_object_are_refused() -> None:
    runtime = Runtime()
    runtime.objects[array_of(runtime.upload("a", honest())).object_id] = b"nothing of Flower's"
    assert inbox(runtime).receive({"a"}) == {"a": "reply refused: has an object that is not of Flower's format"}


def test_a_reply_whose_upload_has_stopped_delays_nobody_and_is_received_once_complete() -> None:
    runtime = Runtime()
    array = array_of(runtime.upload("a", honest()))
    late = runtime.objects[array.object_id]
    runtime.objects[array.object_id] = None
    runtime.upload("b", honest(1))
    box = inbox(runtime)
    assert box.receive({"a", "b"}) == {"b": honest(1)}
    assert box.receive({"a"}) == {}
    runtime.objects[array.object_id] = late
    assert box.receive({"a"}) == {"a": honest()}
