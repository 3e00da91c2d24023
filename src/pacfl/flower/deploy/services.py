"""Services that keep a server, its run and its sites running: units of systemd, and files of Docker Compose."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pacfl import __version__

COMPOSE: Final = "compose.yaml"
SERVER, SUPERVISOR, SITE = (f"pacfl-{what}@.service" for what in ("server", "supervisor", "site"))
ELSEWHERE: Final = "/opt/pacfl/bin"  # of the environment that has pacfl, on machines that are not this one

UNIT = """\
# mkdir -p ~/.config/systemd/user && cp pacfl-*@.service ~/.config/systemd/user/ && systemctl --user daemon-reload
# systemctl --user enable --now "pacfl-{what}@$(systemd-escape --path "$PWD").service"   in this folder
# loginctl enable-linger                                                                  to start with the machine
[Unit]
Description={description} in %f
After=network-online.target{after}
Wants=network-online.target{after}
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory=%f
# The environment that has pacfl comes first
Environment="PATH={binaries}:/usr/local/bin:/usr/bin:/bin"
ExecStart={command}
UMask=0077
NoNewPrivileges=yes
Restart=always
RestartSec=10
TimeoutStopSec=60

[Install]
WantedBy=default.target
"""


def server_unit(here: bool) -> str:
    """The unit of a server; here: it runs on this machine."""
    return _unit("server", "Server of the federation", '/bin/sh "%f/start.sh"', here)


def supervisor_unit(here: bool) -> str:
    """The unit that starts the run of a server, and starts it again."""
    command = '/usr/bin/env pacfl deploy supervise "%f"'
    return _unit("supervisor", "Supervisor of the federation", command, here, " pacfl-server@%i.service")


def site_unit(here: bool) -> str:
    """The unit of a site."""
    return _unit("site", "Site of a federation", '/bin/sh "%f/start.sh"', here)


def _unit(what: str, description: str, command: str, here: bool, after: str = "") -> str:
    binaries = str(Path(sys.executable).parent) if here else ELSEWHERE
    return UNIT.format(what=what, description=description, command=command, binaries=binaries, after=after)


# A site and a server trust their own machine, so that containers share its network: what a port is open to stays as
# start.sh says, and the operator's commands work on the machine itself
_COMMON: Final[dict[str, Any]] = {
    "image": f"pacfl:{__version__}",
    "build": {
        "context": ".",
        "dockerfile_inline": f"FROM python:3.11-slim\nRUN pip install --no-cache-dir 'pacfl[flower]=={__version__}'\n",
    },
    "network_mode": "host",
    "user": "${PACFL_USER:-1000:1000}",
    "environment": {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
    "init": True,
    "read_only": True,
    "tmpfs": ["/tmp"],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "restart": "unless-stopped",
    "stop_grace_period": "60s",
}
_HEADER = """\
# Docker Compose: docker compose up -d --build, in this folder, with PACFL_USER="$(id -u):$(id -g)" in the environment.
# (JSON is YAML.) {more}
"""


def server_compose() -> str:
    """A server and its supervisor, which is healthy as long as `pacfl status` finds no problem."""
    own = {
        **_COMMON,
        "working_dir": "/federation/server",
        "volumes": [".:/federation/server", "../app:/federation/app:ro"],
    }
    check = {"test": ["CMD", "pacfl", "status", "federation"], "interval": "5m", "timeout": "60s", "retries": 1}
    supervisor = {"command": ["pacfl", "deploy", "supervise", "."], "depends_on": ["server"], "healthcheck": check}
    services = {"server": {**own, "command": ["./start.sh"]}, "supervisor": {**own, **supervisor}}
    return _compose("app/ has to be beside this folder.", {"services": services})


def site_compose(name: str) -> str:
    """A site."""
    own = {**_COMMON, "working_dir": "/site", "volumes": [".:/site"], "command": ["./start.sh"]}
    return _compose(
        'Add the folder that site.config names to volumes: "/srv/tables:/srv/tables:ro"',
        {"services": {f"site-{name.lower()}": own}},
    )


def whole_compose(sites: Sequence[str]) -> str:
    """Server, supervisor and sites, on one machine."""
    folders = ["server", *(f"sites/{name}" for name in sites)]
    return _compose("The whole federation on one machine.", {"include": [f"{one}/{COMPOSE}" for one in folders]})


def _compose(more: str, content: dict[str, Any]) -> str:
    return _HEADER.format(more=more) + json.dumps(content, indent=2) + "\n"
