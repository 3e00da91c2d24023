"""The ClientApp of a deployed site.

Flower starts a new process for every message. Importing what learning needs takes most of its time, so this module
imports none of it: where a warm worker runs beside the SuperNode, it does the work, and otherwise this process does.
"""

from flwr.app import Context, Message

from pacfl.flower import warm
from pacfl.flower.message_types import registered


def handle(envelope: Message, context: Context) -> Message:
    """Answer by the warm worker, or without it."""
    kind = envelope.metadata.message_type
    worker = context.node_config.get("worker")
    reply = warm.ask(str(worker), kind, envelope.content, context) if worker else None
    if reply is None:
        from pacfl.flower.answering import answer
        from pacfl.flower.site import home

        reply = answer(kind, envelope.content, context, home)
    return Message(reply, reply_to=envelope)


app = registered(handle)
