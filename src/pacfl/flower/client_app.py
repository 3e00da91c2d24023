"""The ClientApp of a deployed site.

Flower starts a process for every message, and most of its time is spent on imports. This module imports nothing that
training needs: the warm worker beside the SuperNode handles the message, or this process if there is no worker.
"""

from flwr.app import Context, Message

from pacfl.flower import warm
from pacfl.flower.message_types import register


def reply(message: Message, context: Context) -> Message:
    """Handle a message in the warm worker, or here."""
    message_type = message.metadata.message_type
    worker = context.node_config.get("worker")
    content = warm.request(str(worker), message_type, message.content, context) if worker else None
    if content is None:
        from pacfl.flower.client_handlers import handle
        from pacfl.flower.site import load_client

        content = handle(message_type, message.content, context, load_client)
    return Message(content, reply_to=message)


app = register(reply)
