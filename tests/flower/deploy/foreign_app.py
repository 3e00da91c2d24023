"""An app that is not the federation's: it takes what it can reach, and says where it ran."""

from pathlib import Path

SETTINGS = """\
[project]
name = "foreign"
version = "1.0.0"
description = "Not of this federation"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "outsider"

[tool.flwr.app.components]
serverapp = "foreign:server"
clientapp = "foreign:client"

[tool.flwr.app.config]
"""

CODE = """\
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()


def loot():
    return "\\n".join(p.read_text() for p in Path.cwd().glob("*") if p.name in ("node.key", "train.csv", "server.key"))


@server.main()
def main(grid, context):
    taken = [loot()]
    messages = [Message(RecordDict(), node, "query", ttl=25.0) for node in grid.get_node_ids()]
    for reply in grid.send_and_receive(messages, timeout=20.0):
        taken.append(f"refused, code {reply.error.code}" if reply.has_error() else str(reply.content["loot"]["all"]))
    Path("EVIDENCE").write_text("\\n".join(taken))


@client.query()
def query(message, context):
    return Message(RecordDict({"loot": ConfigRecord({"all": loot()})}), reply_to=message)
"""


def write_foreign_app(folder: Path, evidence: Path) -> Path:
    """The app; its server part writes all that it could read into a file."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "foreign.py").write_text(CODE.replace("EVIDENCE", str(evidence)))
    return folder
