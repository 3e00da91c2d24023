"""The ClientApp of a deployed site.

Flower starts a process for every message, and most of its time is spent on imports. This module imports nothing that
training needs: the warm worker beside the SuperNode handles the message, or this process if there is no worker.
"""

from pathlib import Path

from flwr.app import Context, Message, RecordDict

from pacfl.flower import outbox, warm
from pacfl.flower.message_types import register


def reply(message: Message, context: Context) -> Message:
    """Handle a message, and record the reply at the site before Flower gets it; errors are replies, too."""
    t = outbox.round_of(message.metadata.group_id)
    try:
        content = _content(message, context)
    except Exception as error:
        # As Flower words it for the server
        _record(context, outbox.ERROR, t, f"{type(error)}:<'{error}'>".encode())
        raise
    _record(context, message.metadata.message_type, t, warm.serialise(content, {}))
    return Message(content, reply_to=message)


def _content(message: Message, context: Context) -> RecordDict:
    """The reply of the warm worker, or of this process if there is none."""
    message_type = message.metadata.message_type
    worker = context.node_config.get("worker")
    content = warm.request(str(worker), message_type, message.content, context) if worker else None
    if content is None:
        from pacfl.flower.client_handlers import handle
        from pacfl.flower.site import load_client

        content = handle(message_type, message.content, context, load_client)
    return content


def _record(context: Context, kind: str, t: int | None, content: bytes) -> None:
    if path := context.node_config.get("sent"):
        outbox.note(Path(str(path)), kind, t, content)


app = register(reply)
