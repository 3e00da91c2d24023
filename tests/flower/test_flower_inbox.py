"""Replies that come over the network: none takes more memory than an honest one, holds up others or hides them."""

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

from pacfl.flower.inbox import BESIDE_ARRAYS, PIECES, Inbox

pytestmark = pytest.mark.usefixtures("identity")

MIB = 2**20
Piece = bytes | Callable[[], bytes] | None  # what was uploaded, what it is made of when it is wanted, or nothing yet


class Runtime:
    """What a SuperLink keeps for its ServerApp. It hands each reply out once, as the true one does."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[Message, ObjectTree]] = {}
        self.pieces: dict[str, Piece] = {}
        self.forgotten: list[str] = []
        self.pulled = 0  # bytes

    def upload(self, answering: str, content: RecordDict) -> Message:
        asked = Message(RecordDict(), 7, "train")
        asked.metadata.__dict__["_message_id"] = answering
        reply = Message(content, reply_to=asked)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        self.replies[answering] = reply, get_object_tree(reply)
        self.pieces |= {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
        return reply

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:  # noqa: N802 - Flower's name
        come = [self.replies.pop(one) for one in request.message_ids if one in self.replies]
        return PullAppMessagesResponse(
            messages_list=[message_to_proto(remove_content_from_message(reply)) for reply, _ in come],
            message_object_trees=[tree for _, tree in come],
        )

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802
        piece = self.pieces[request.object_id]
        content = piece() if callable(piece) else piece
        self.pulled += len(content or b"")
        return PullObjectResponse(
            object_found=True, object_available=content is not None, object_content=content or b""
        )

    def ConfirmMessageReceived(self, request: object) -> None:  # noqa: N802
        self.forgotten.append(request.message_object_id)  # type: ignore[attr-defined]


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


def test_an_honest_reply_comes_as_it_was_sent_and_is_forgotten() -> None:
    runtime = Runtime()
    sent = runtime.upload("a", honest())
    assert inbox(runtime).look({"a", "b"}) == {"a": honest()}
    assert runtime.forgotten == [sent.metadata.message_id]


def test_a_gigabyte_is_refused_before_much_of_it_is_taken_in() -> None:
    """205 pieces of 5 MiB, as Flower cuts them, made only when they are asked for."""
    runtime = Runtime()
    reply = runtime.upload("a", honest())
    chunks = [f"{i:064x}" for i in range(205)]
    for i, name in enumerate(chunks):
        runtime.pieces[name] = lambda i=i: ArrayChunk(memoryview(bytes([i]) * (5 * MIB))).deflate()
    tree = ObjectTree(object_id=reply.metadata.message_id, children=[ObjectTree(object_id=name) for name in chunks])
    runtime.replies["a"] = reply, tree
    limit = 64 * MIB
    assert inbox(runtime, limit).look({"a"}) == {"a": "reply refused: has more than 67,108,864 bytes of arrays"}
    assert runtime.pulled < limit + BESIDE_ARRAYS + 6 * MIB
    assert runtime.forgotten == [reply.metadata.message_id]


def test_a_small_piece_that_is_named_a_million_times_is_refused() -> None:
    """What was sent are 10 KB; put together it would be 4 GB."""
    runtime = Runtime()
    array = array_of(runtime.upload("a", honest()))
    told = {"dtype": "float32", "shape": [10**9], "stype": "numpy.ndarray", "arraychunk_ids": [0] * 10**5}
    forged = add_header_to_object_body(json.dumps(told, separators=(",", ":")).encode(), array)
    runtime.pieces[array.object_id] = forged
    assert inbox(runtime).look({"a"}) == {"a": "reply refused: has more than 1,048,576 bytes of arrays"}


def test_much_beside_the_arrays_is_refused() -> None:
    runtime = Runtime()
    runtime.upload("a", RecordDict({"about": ConfigRecord({"round": 3, "name": "x" * 2 * MIB})}))
    assert inbox(runtime).look({"a"}) == {"a": "reply refused: has more than 1,048,576 bytes beside its arrays"}


def test_more_pieces_than_could_be_pulled_in_time_are_refused_unseen() -> None:
    runtime = Runtime()
    reply = runtime.upload("a", honest())
    children = [ObjectTree(object_id=f"{i:064x}") for i in range(PIECES + 17)]
    runtime.replies["a"] = reply, ObjectTree(object_id=reply.metadata.message_id, children=children)
    assert inbox(runtime).look({"a"}) == {"a": "reply refused: has 1,018 pieces, at most 1,016 are wanted"}
    assert runtime.pulled == 0


@pytest.mark.parametrize("broken", ["named", "kind", "body"])
def test_a_reply_that_cannot_be_read_does_not_hide_the_others(broken: str) -> None:
    runtime = Runtime()
    array = array_of(runtime.upload("a", honest()))
    told = {"dtype": "float32", "shape": [9], "stype": "numpy.ndarray", "arraychunk_ids": [5]}
    forged = {
        "named": add_header_to_object_body(json.dumps(told).encode(), array),
        "kind": ArrayChunk(memoryview(b"a piece in the place of an array")).deflate(),
        "body": add_header_to_object_body(b"[[[[", array),
    }
    runtime.pieces[array.object_id] = forged[broken]
    runtime.upload("b", honest(1))
    come = inbox(runtime).look({"a", "b"})
    assert str(come["a"]).startswith("reply cannot be read: ")
    assert come["b"] == honest(1)


def test_bytes_that_are_no_piece_are_refused() -> None:
    runtime = Runtime()
    runtime.pieces[array_of(runtime.upload("a", honest())).object_id] = b"nothing of Flower's"
    assert inbox(runtime).look({"a"}) == {"a": "reply refused: has a piece that is none of Flower's"}


def test_a_reply_whose_upload_has_stopped_holds_up_nobody_and_comes_when_it_goes_on() -> None:
    runtime = Runtime()
    array = array_of(runtime.upload("a", honest()))
    late = runtime.pieces[array.object_id]
    runtime.pieces[array.object_id] = None
    runtime.upload("b", honest(1))
    looking = inbox(runtime)
    assert looking.look({"a", "b"}) == {"b": honest(1)}
    assert looking.look({"a"}) == {}
    runtime.pieces[array.object_id] = late
    assert looking.look({"a"}) == {"a": honest()}
