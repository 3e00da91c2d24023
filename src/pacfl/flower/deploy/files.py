"""The files of a deployment, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

ENVIRONMENT = """\
umask 077
cd "$(dirname "$0")"
export FLWR_HOME="$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 RAY_USAGE_STATS_ENABLED=0
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
"""


def operator(port: int) -> str:
    """What the operator's scripts begin with: Flower wants the certificate by its whole path, wherever this is now."""
    return f"""{ENVIRONMENT}
mkdir -p flwr
cat > flwr/config.$$ <<END
[superlink]
default = "server"

[superlink.server]
address = "127.0.0.1:{port}"
root-certificates = "$PWD/ca.crt"
END
mv flwr/config.$$ flwr/config.toml
"""


def superlink(bind: str, port: int) -> str:
    """Start script of the server."""
    return f"""#!/bin/sh
# The server. Wants python on PATH: activate the environment that has pacfl first.
set -eu
{ENVIRONMENT}
exec python -m pacfl.flower.deploy.superlink \\
  --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \\
  --enable-supernode-auth --database state.db --host {bind} --port {port} \\
  --disable-runtime-dependency-installation
"""


def supernode(server: str, port: int, own_port: int, partition: int, n_clients: int) -> str:
    """Start script of a site."""
    return f"""#!/bin/sh
# One site. Wants flower-supernode on PATH: activate the environment that has pacfl first.
# What load_data(context) is to find in context.node_config stands in the file site.config, as data="/where/they/are".
# most-epsilon=2.0 most-delta=1e-4 there is the privacy budget of all signatures of this site together.
set -eu
{ENVIRONMENT}
# A worker that has everything imported: without it each message waits until Python has loaded torch anew.
worker="$PWD/worker.sock"
python -m pacfl.flower.warm "$worker" --with $$ &

exec flower-supernode --root-certificates ca.crt --auth-supernode-private-key node.key \\
  --superlink {server}:{port} --host 127.0.0.1 --port "${{SITE_PORT:-{own_port}}}" \\
  --node-config "partition-id={partition} num-partitions={n_clients} \\
memory=\\"$PWD/memory\\" worker=\\"$worker\\" $(cat site.config)"
"""


def register(port: int) -> str:
    """Script that lets a site in."""
    return f"""#!/bin/sh
# Let a site in by its public key: ./register.sh /path/to/node.pub
set -eu
key="$(realpath "$1")"
{operator(port)}exec flwr supernode register "$key" server --format json
"""


def start_run(port: int) -> str:
    """Script that begins, or goes on."""
    return f"""#!/bin/sh
# Begin the federation, or go on with it from its last round. ../app/pyproject.toml has the settings.
set -eu
{operator(port)}exec flwr run ../app server --format json "$@"
"""


def app(settings: Mapping[str, Mapping[str, Any]], seed: int) -> str:
    """The Flower app of this federation."""
    lines = [
        "# The federation as a Flower app. The two components are pacfl's; a module named by federation.task that lies",
        "# beside this file travels to the sites with it.",
        "[project]",
        'name = "federation"',
        'version = "1.0.0"',
        'description = "A federation of pacfl"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "",
        "[tool.flwr.app]",
        'publisher = "local"',
        "",
        "[tool.flwr.app.components]",
        'serverapp = "pacfl.flower.server_app:app"',
        'clientapp = "pacfl.flower.client_app:app"',
        "",
        "[tool.flwr.app.config]",
        f"seed = {seed}",
        'settings = ""  # overrules what stands below, as "algorithm.rank = 5; learning.lr = 0.05"',
    ]
    for section, values in settings.items():
        lines += ["", f"[tool.flwr.app.config.{section}]", *(f"{key} = {_toml(v)}" for key, v in values.items())]
    return "\n".join(lines) + "\n"


def readme(server: str, port: int, sites: Sequence[int]) -> str:
    """What an operator has to know."""
    return f"""# This federation

The server is {server}:{port}; {len(sites)} sites are prepared. Nothing here but this file may be shown to others: keys
and certificates are readable by you only, and `.gitignore` keeps all of it out of repositories. Leave it so.

- `authority/` is yours, best kept off line: the key that signs server certificates.
- `server/` belongs on the server: its certificate and key, `start.sh`, `register.sh`, `run.sh`; later its database, and
  the federation in `federation/`.
- `sites/N/` belongs to site N, and to nobody else once it is there: its key, the certificate of the authority,
  `start.sh`; later what the client remembers, in `memory/`.
- `app/` belongs on the server, beside `server/`: the settings of the federation.

First try, all of it on this machine: `pacfl deploy up .`, then `pacfl status server/federation`, and at the end
`pacfl deploy down .`.

For real: copy `server/` and `app/` to the server and each `sites/N/` to its site over a channel that you trust
(`rsync -a` keeps the permissions), and delete your copy of the site's key. Better still, a site makes its own key with
`ssh-keygen -t ecdsa -b 384 -N "" -C "" -f node.key` and sends you `node.key.pub` only.

1. On the server: `./start.sh`, as a service that is started again when it ends.
2. On the server, once for each site: `./register.sh SITE.pub`.
3. At each site: `./start.sh`, as a service likewise.
4. On the server: `./run.sh`. After a crash the same command goes on from the last round that was finished.
5. `pacfl status federation` in the server's folder tells rounds, clusters, who is alive and the last error.
"""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        repr(value)
        if isinstance(value, int | float)
        else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
