"""The types of messages between a server and its clients, as Flower names them."""

from collections.abc import Callable
from typing import Final

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

IDENTITY: Final = "query.identity"
SIGNATURE: Final = "query.signature"
TRAIN: Final = "train"
EVALUATE: Final = "evaluate"
PAUSED: Final = 1001  # the code of an error reply that is none: the site's operator has paused it
# Of secure aggregation: before the training, and after it
KEYS: Final = "query.keys"
SHARES: Final = "query.shares"
CONFIRM: Final = "query.confirm"
REVEAL: Final = "query.reveal"
MESSAGE_TYPES: Final = (IDENTITY, SIGNATURE, KEYS, SHARES, TRAIN, CONFIRM, REVEAL, EVALUATE)


def register(handle: Callable[[Message, Context], Message]) -> ClientApp:
    """A ClientApp in which one function handles all types."""
    app = ClientApp()
    for message_type in MESSAGE_TYPES:
        category, *action = message_type.split(".")
        getattr(app, category)(*action)(handle)
    return app
