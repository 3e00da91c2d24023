"""The kinds of messages between a server and its clients, as Flower names them."""

from collections.abc import Callable
from typing import Final

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

IDENTITY: Final = "query.identity"
SIGNATURE: Final = "query.signature"
TRAIN: Final = "train"
EVALUATE: Final = "evaluate"


def registered(handle: Callable[[Message, Context], Message]) -> ClientApp:
    """A ClientApp in which one function answers all kinds."""
    app = ClientApp()
    app.query("identity")(handle)
    app.query("signature")(handle)
    app.train()(handle)
    app.evaluate()(handle)
    return app
