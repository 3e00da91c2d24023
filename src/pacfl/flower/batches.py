"""Many requests in one message, for simulations: a message costs about as long as a small client trains.

On the server a grid in front of Flower's waits for the first question after replies, and then sends all requests since
in few messages. A worker process handles the requests of a message one after the other, each as if it had come alone.
"""

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from flwr.app import ConfigRecord, Context, Error, RecordDict
from flwr.app import Message as Envelope
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from pacfl.flower.client_handlers import ClientLoader, handle
from pacfl.flower.event_log import warning

ACTION: Final = "batch"
BATCH: Final = f"query.{ACTION}"
HEADER: Final = "batch"  # the record with the types of requests, or with the errors of replies
MOST_BYTES: Final = 2**26  # of the arrays in one message, unless a single request has more


@dataclass(eq=False)
class BatchingGrid:
    """A grid on which every client has a node; its messages go to few nodes, which are those of worker processes."""

    grid: Grid
    nodes: Sequence[int]  # one message at a time goes to each, so several for a process keep it busy
    waiting: dict[str, Envelope] = field(default_factory=dict)  # requests that are not sent yet
    sent: dict[str, list[Envelope]] = field(default_factory=dict)  # by the message that they are in
    received: dict[str, Envelope] = field(default_factory=dict)  # replies that nobody has asked for yet

    def push_messages(self, messages: Iterable[Envelope]) -> list[str]:
        """Accept requests; their ids."""
        accepted = {str(uuid4()): message for message in messages}
        for name, message in accepted.items():
            message.metadata.__dict__["_message_id"] = name
        self.waiting |= accepted
        return list(accepted)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Envelope]:
        """The replies to some requests that are there now; before, all waiting requests are sent."""
        self._send()
        for reply in self.grid.pull_messages(list(self.sent)):
            requests = self.sent.pop(reply.metadata.reply_to_message_id)
            self.received |= {r.metadata.reply_to_message_id: r for r in _replies(reply, requests)}
        return [self.received.pop(name) for name in message_ids if name in self.received]

    def _send(self) -> None:
        requests = list(self.waiting.values())
        self.waiting = {}
        n_bytes = sum(_n_bytes(request.content) for request in requests)
        n = min(len(requests), max(len(self.nodes), -(-n_bytes // MOST_BYTES)))
        for i in range(n):
            own = requests[i::n]  # clients that resemble each other are often next to each other
            content = packed([one.content for one in own], {"types": [one.metadata.message_type for one in own]})
            about = own[0].metadata
            node = self.nodes[i % len(self.nodes)]
            (name,) = self.grid.push_messages([Envelope(content, node, BATCH, ttl=about.ttl, group_id=about.group_id)])
            self.sent[name] = own


def batch_app(load: ClientLoader) -> ClientApp:
    """A ClientApp for the messages of a `BatchingGrid`."""
    app = ClientApp()

    def reply(envelope: Envelope, context: Context) -> Envelope:
        return Envelope(answered(envelope.content, context, load), reply_to=envelope)

    app.query(ACTION)(reply)
    return app


def answered(content: RecordDict, context: Context, load: ClientLoader) -> RecordDict:
    """The replies to all requests in a message, and the errors of those that failed."""
    types: Any = content.config_records[HEADER].get("types", [])
    replies, errors = [], {}
    for i, request in enumerate(parts(content, len(types))):
        try:
            replies.append(handle(types[i], request, context, load, durable=False))
        except Exception as error:
            warning(traceback.format_exc(), "request-failed")
            replies.append(RecordDict())
            errors[str(i)] = f"{type(error).__name__}: {error}"
    return packed(replies, errors)


def packed(contents: Iterable[RecordDict], header: Mapping[str, Any]) -> RecordDict:
    """Several contents in one: the number of each is before the names of its records."""
    numbered = {f"{i}.{name}": record for i, one in enumerate(contents) for name, record in one.items()}
    return RecordDict({HEADER: ConfigRecord(dict(header)), **numbered})


def parts(content: RecordDict, n: int) -> list[RecordDict]:
    """The n contents that were packed."""
    found = [RecordDict() for _ in range(n)]
    for name, record in content.items():
        number, dot, own = name.partition(".")
        if dot:
            found[int(number)][own] = record
    return found


def _replies(reply: Envelope, requests: Sequence[Envelope]) -> Iterator[Envelope]:
    """The reply to each request of a message."""
    if reply.has_error():
        yield from (Envelope(reply.error, reply_to=request) for request in requests)
        return
    errors = reply.content.config_records[HEADER]
    for i, (content, request) in enumerate(zip(parts(reply.content, len(requests)), requests, strict=True)):
        if str(i) in errors:
            yield Envelope(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(errors[str(i)])), reply_to=request)
        else:
            yield Envelope(content, reply_to=request)


def _n_bytes(content: RecordDict) -> int:
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())
