"""Flower's SuperNode, which runs approved apps only: `python -m pacfl.flower.deploy.supernode`.

Options are those of flower-supernode. An app that is not approved is refused before any of it is unpacked, with a
reply that says so to the server, and stored for the operator of the site to look at.
"""

import logging
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.fab import Fab
from flwr.supercore.object_store import ObjectStore
from flwr.supercore.run import Run
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.nodestate import NodeState

from pacfl.flower import message_types, outbox
from pacfl.flower.deploy import approval, executor, pausing
from pacfl.flower.deploy.superlink import needs_secret, replace

REFUSAL = "the site has not approved this app with these settings; its operator runs: pacfl deploy approve FOLDER"
PAUSED = "the site is paused by its operator"
log = logging.getLogger("flwr")


def only_approved(pull: Callable[..., int | None], folder: Path) -> Callable[..., int | None]:
    """Flower's function that takes a message in, for messages of approved apps."""

    def checked(*, get_run: Callable[[int], Run], get_fab: Callable[[str, int], Fab], **others: Any) -> int | None:
        if pausing.is_paused(folder):
            return decline(folder, **others)
        runs: dict[int, Run] = {}

        def run_of(run: int) -> Run:
            return runs.setdefault(run, get_run(run))

        def app_of(name: str, run: int) -> Fab:
            content = get_fab(name, run).content
            why = approval.refusal(folder, content, run_of(run).override_config)
            if why is not None:
                log.error("run %d refused: %s", run, why)
                approval.propose(folder, content, approval.REFUSED)
                outbox.note(folder / outbox.FILE, outbox.REFUSED, None, REFUSAL.encode())
            # Flower asks is_approved about apps with a license
            return Fab(approval.digest(content), content, {"valid_license": "none", "refusal": why or ""})

        return pull(get_run=run_of, get_fab=app_of, **{**others, "trusted_entities": {"operator": "of this site"}})

    return checked


def decline(
    folder: Path,
    *,
    receive: Callable[[], tuple[Message, ObjectTree] | None],
    state: NodeState,
    object_store: ObjectStore,
    **_: object,
) -> int | None:
    """Take a message in and reply that the site is paused; none of it is read, and no app is started."""
    received = receive()
    if received is None:
        return None
    message, _ = received
    log.info("paused: a %s message is not answered", message.metadata.message_type)
    outbox.note(folder / outbox.FILE, outbox.PAUSED, outbox.round_of(message.metadata.group_id), PAUSED.encode())
    flower = import_module("flwr.supernode.start_client_internal")
    flower._insert_message(Message(Error(message_types.PAUSED, PAUSED), reply_to=message), state, object_store)
    return message.metadata.run_id


def is_approved(fab: Fab, trusted_entities: object) -> bool:  # noqa: ARG001 - as Flower calls it
    """Whether the app was found approved when it came."""
    return not fab.verifications["refusal"]


def main() -> None:
    """Run the SuperNode until it is stopped."""
    needs_secret()
    flower = import_module("flwr.supernode.start_client_internal")
    replace(flower, "_pull_and_store_message", only_approved(flower._pull_and_store_message, Path.cwd()))
    replace(flower, "_verify_fab", is_approved)
    replace(flower, "FAB_VERIFICATION_ERROR", Error(ErrorCode.INVALID_FAB, REFUSAL))
    executor.end_with_it()
    flower_supernode()
    # Flower logs an error of its connection (TLS, a server that forgot the site) and returns, and a thread of it would
    # hold this process for ever, connected to nobody
    log.error("the connection to the server ended, see above: stopping, to be started again")
    logging.shutdown()
    os._exit(1)


if __name__ == "__main__":
    main()
