"""What `run.sh` does before it asks for a run: `python -m pacfl.flower.deploy.starting APP FOLDER`."""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pacfl.errors import DeployError
from pacfl.flower import health
from pacfl.flower.deploy import approval


def settings(app: Path) -> dict[str, Any]:
    """The settings in the folder of an app."""
    try:
        content: dict[str, Any] = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
        found: dict[str, Any] = content["tool"]["flwr"]["app"]["config"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise DeployError(f"{app / 'pyproject.toml'} has no settings of a federation: {error}") from None
    return found


def federation(asked: Mapping[str, Any], server: Path) -> Path:
    """The folder in which a server stores the federation of an app with these settings."""
    return server / Path(asked.get("federation", {}).get("folder", "federation")).expanduser()


def main(app: Path, server: Path) -> None:
    """Refuse an app that is not approved here; the status says that a run starts, not how the last one ended."""
    if why := approval.refusal(server.absolute(), approval.build(app)):
        sys.exit(why)
    health.starting(federation(settings(app), server))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
