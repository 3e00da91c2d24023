"""Replies on their way to the server, taken in piece by piece.

Flower's own `pull_messages` takes in every reply whole, whatever its size, waits for pieces that a client has announced
and does not send, and loses the replies that came together with one that cannot be read: its server hands each out
once. Here no reply takes more memory than an honest one, holds up the others, or hides them.
"""

import json
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

BESIDE_ARRAYS: Final = 2**20  # bytes of a reply that are not those of arrays: names, scores, lists of pieces
PIECES: Final = 1000  # of which a reply may consist, beside one for each
BYTES_A_PIECE: Final = 2**16  # of its arrays

Content = RecordDict | str  # of a reply, or what is wrong with it


@dataclass(eq=False)
class Parcel:
    """A reply that was announced, and what has come of it."""

    message: str
    missing: list[str]  # pieces, those that are pulled first at the end
    pieces: dict[str, bytes] = field(default_factory=dict)
    arrays: int = 0  # bytes
    beside: int = 0


@dataclass(eq=False)
class Inbox:
    """Replies to messages of one kind."""

    grid: Grid
    largest: int  # bytes of arrays in an honest reply
    parcels: dict[str, Parcel] = field(default_factory=dict)  # by the message that they answer

    def look(self, wanted: set[str]) -> dict[str, Content]:
        """What has come in full, by the message that it answers."""
        if not isinstance(self.grid, HttpGrid):  # a simulation: its replies are in memory already
            return {m.metadata.reply_to_message_id: _content(m) for m in self.grid.pull_messages(wanted)}
        come = self._announced(self.grid, wanted - self.parcels.keys())
        for one, parcel in self.parcels.items():
            try:
                if self._filled(self.grid, parcel):
                    come[one] = self._opened(parcel)
            except (InvalidReplyError, ObjectPullError) as refusal:
                come[one] = f"reply refused: {refusal}"
        for one in come.keys() & self.parcels.keys():
            _forget(self.grid, self.parcels.pop(one).message)
        return come

    def _announced(self, grid: HttpGrid, wanted: set[str]) -> dict[str, Content]:
        """Take note of new replies; those that are refused for what they announce."""
        refused: dict[str, Content] = {}
        if not wanted:
            return refused
        most = PIECES + self.largest // BYTES_A_PIECE
        told = grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=wanted))
        for reply, tree in zip(told.messages_list, told.message_object_trees, strict=True):
            one, message = reply.metadata.reply_to_message_id, reply.metadata.message_id
            pieces = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
            if len(pieces) > most:
                refused[one] = f"reply refused: has {len(pieces):,} pieces, at most {most:,} are wanted"
                _forget(grid, message)
            elif one in wanted:
                self.parcels[one] = Parcel(message, pieces[::-1])
        return refused

    def _filled(self, grid: HttpGrid, parcel: Parcel) -> bool:
        """Pull what is there; whether nothing is missing any more."""
        pull = make_pull_object_fn_protobuf(grid._runtime_client.PullObject, grid.node, grid.run.run_id)
        while parcel.missing:
            try:
                piece = pull(parcel.missing[-1])
            except ObjectUnavailableError:
                return False
            parcel.pieces[parcel.missing.pop()] = piece
            if _kind(piece) == "ArrayChunk":
                parcel.arrays += len(piece)
            else:
                parcel.beside += len(piece)
            self._weigh(parcel.arrays, parcel.beside)
        return True

    def _weigh(self, arrays: int, beside: int) -> None:
        if arrays > self.largest + BESIDE_ARRAYS:
            raise InvalidReplyError(f"has more than {self.largest:,} bytes of arrays")
        if beside > BESIDE_ARRAYS:
            raise InvalidReplyError(f"has more than {BESIDE_ARRAYS:,} bytes beside its arrays")

    def _opened(self, parcel: Parcel) -> Content:
        try:
            self._weigh(_unfolded(parcel.pieces), 0)
            return _content(cast(Envelope, inflate_object_from_contents(parcel.message, parcel.pieces)))
        except InvalidReplyError:
            raise
        except Exception as error:  # Flower's readers have errors of many kinds for pieces that do not fit together
            return f"reply cannot be read: {type(error).__name__}: {error}"


def _unfolded(pieces: dict[str, bytes]) -> int:
    """Bytes of all arrays once they are put together: an array may name the same piece again and again."""
    total = 0
    for piece in pieces.values():
        kind, chunks, _ = get_object_head_values_from_object_content(piece)
        if kind == "Array":
            named = json.loads(get_object_body(piece, Array))["arraychunk_ids"]
            total += sum(len(pieces[chunks[i]]) for i in named)
    return total


def _kind(piece: bytes) -> str:
    try:
        kind: str = get_object_head_values_from_object_content(piece)[0]
    except ValueError:
        raise InvalidReplyError("has a piece that is none of Flower's") from None
    return kind


def _content(reply: Envelope) -> Content:
    if not reply.has_error():
        return reply.content
    reason = " ".join((reply.error.reason or "").split())  # its end says what happened, after where it did
    return f"error {reply.error.code}: {reason[-500:]}"


def _forget(grid: Any, message: str) -> None:
    """The server need not keep it."""
    grid._runtime_client.ConfirmMessageReceived(
        ConfirmMessageReceivedRequest(node=grid.node, run_id=grid.run.run_id, message_object_id=message)
    )
