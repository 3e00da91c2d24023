"""Replies over the network, received object by object.

Flower sends a reply as a tree of objects: records, arrays, chunks of arrays. Its own `pull_messages` reads every reply
completely, whatever its size, waits for objects that were announced and do not come, and loses the replies that came
together with an invalid one, because the SuperLink delivers each reply once. Here no reply takes more memory than an
honest one, delays others, or hides them.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final, cast

from flwr.app import Array, RecordDict
from flwr.app import Message as Envelope
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    inflate_object_from_contents,
)
from flwr.superlink.grid.http_grid import HttpGrid

from pacfl.errors import InvalidReplyError
from pacfl.flower.message_types import PAUSED

LARGEST_REST: Final = 2**20  # bytes of a reply beside its arrays: names, scores, lists of objects
MOST_OBJECTS: Final = 1000  # of a reply, and one more for each
BYTES_PER_OBJECT: Final = 2**16  # of its arrays

Content = RecordDict | str  # of a reply, or what is wrong with it
IS_PAUSED: Final = "the operator of the site has paused it"


@dataclass(eq=False)
class PendingReply:
    """A reply that was announced, and what was received of it."""

    message: str
    missing: list[str]  # objects; the last is pulled next
    objects: dict[str, bytes] = field(default_factory=dict)
    arrays: int = 0  # bytes
    rest: int = 0


@dataclass(eq=False)
class Inbox:
    """Replies to messages of one type."""

    grid: Grid
    largest: int  # bytes of arrays in an honest reply
    pending: dict[str, PendingReply] = field(default_factory=dict)  # by the message that they reply to

    def receive(self, expected: set[str]) -> dict[str, Content]:
        """The replies that are complete now, by the message that they reply to."""
        if not isinstance(self.grid, HttpGrid):  # a simulation: its replies are in memory already
            return {m.metadata.reply_to_message_id: _content(m) for m in self.grid.pull_messages(expected)}
        received = self._announced(self.grid, expected - self.pending.keys())
        for sent, reply in self.pending.items():
            try:
                if self._pull(self.grid, reply):
                    received[sent] = self._assemble(reply)
            except (InvalidReplyError, ObjectPullError) as refusal:
                received[sent] = f"reply refused: {refusal}"
        for sent in received.keys() & self.pending.keys():
            _confirm(self.grid, self.pending.pop(sent).message)
        return received

    def _announced(self, grid: HttpGrid, expected: set[str]) -> dict[str, Content]:
        """Note new replies; those that are refused for their number of objects."""
        refused: dict[str, Content] = {}
        if not expected:
            return refused
        most = MOST_OBJECTS + self.largest // BYTES_PER_OBJECT
        response = grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=expected))
        for reply, tree in zip(response.messages_list, response.message_object_trees, strict=True):
            sent, message = reply.metadata.reply_to_message_id, reply.metadata.message_id
            objects = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
            if len(objects) > most:
                refused[sent] = f"reply refused: has {len(objects):,} objects, expected at most {most:,}"
                _confirm(grid, message)
            elif sent in expected:
                self.pending[sent] = PendingReply(message, objects[::-1])
        return refused

    def _pull(self, grid: HttpGrid, reply: PendingReply) -> bool:
        """Pull the objects that are available; whether the reply is complete."""
        pull = make_pull_object_fn_protobuf(grid._runtime_client.PullObject, grid.node, grid.run.run_id)
        while reply.missing:
            try:
                content = pull(reply.missing[-1])
            except ObjectUnavailableError:
                return False
            reply.objects[reply.missing.pop()] = content
            if _kind(content) == "ArrayChunk":
                reply.arrays += len(content)
            else:
                reply.rest += len(content)
            self._check_size(reply.arrays, reply.rest)
        return True

    def _check_size(self, arrays: int, rest: int) -> None:
        if arrays > self.largest + LARGEST_REST:
            raise InvalidReplyError(f"has more than {self.largest:,} bytes of arrays")
        if rest > LARGEST_REST:
            raise InvalidReplyError(f"has more than {LARGEST_REST:,} bytes beside its arrays")

    def _assemble(self, reply: PendingReply) -> Content:
        try:
            self._check_size(_assembled_size(reply.objects), 0)
            return _content(cast(Envelope, inflate_object_from_contents(reply.message, reply.objects)))
        except InvalidReplyError:
            raise
        except Exception as error:  # Flower's readers raise many types for objects that do not fit together
            return f"reply cannot be read: {type(error).__name__}: {error}"


def collect_replies(grid: Grid, sent: set[str], deadline: float, poll: float, largest: int = 0) -> dict[str, Content]:
    """Wait for replies of at most `largest` bytes of arrays each; what came, by the message that it replies to."""
    inbox = Inbox(grid, largest)
    received: dict[str, Content] = {}
    end = time.monotonic() + deadline
    while sent - received.keys():
        # Errors of the server itself have no sender: only the message that they reply to says which client it is
        received |= inbox.receive(sent - received.keys())
        if time.monotonic() >= end:
            break
        if sent - received.keys():
            time.sleep(poll)
    return received


def _assembled_size(objects: dict[str, bytes]) -> int:
    """Bytes of all arrays once they are assembled: an array may name the same chunk again and again."""
    total = 0
    for content in objects.values():
        kind, chunks, _ = get_object_head_values_from_object_content(content)
        if kind == "Array":
            named = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            total += sum(len(objects[chunks[i]]) for i in named)
    return total


def _kind(content: bytes) -> str:
    try:
        kind: str = get_object_head_values_from_object_content(content)[0]
    except ValueError:
        raise InvalidReplyError("has an object that is not of Flower's format") from None
    return kind


def _content(reply: Envelope) -> Content:
    if not reply.has_error():
        return reply.content
    if reply.error.code == PAUSED:
        return IS_PAUSED
    reason = " ".join((reply.error.reason or "").split())  # its end says what happened
    return f"error {reply.error.code}: {reason[-500:]}"


def _confirm(grid: Any, message: str) -> None:
    """Let the SuperLink delete a reply."""
    grid._runtime_client.ConfirmMessageReceived(
        ConfirmMessageReceivedRequest(node=grid.node, run_id=grid.run.run_id, message_object_id=message)
    )
