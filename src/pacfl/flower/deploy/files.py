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


# The executor starts the processes of apps; who needs it ends with it, and is started again.
# It signs its requests for tasks, and knows the certificate of whom it asks:
# no other user of the machine gets a task from here, or gives it one.
EXECUTOR = """\
[ -d executor ] || python -m pacfl.flower.deploy.keys executor
python -m pacfl.flower.deploy.superexec --root-certificates {authority} --runtime-api-address {address} \\
  --superexec-auth-secret-file executor/secret --parent-pid $$ &
export PACFL_EXECUTOR=$!
"""
EXECUTED = "--isolation process --superexec-auth-secret-file executor/secret"


def own_address(bind: str, port: int) -> str:
    """The address of the server for its own processes and its operator."""
    return f"{'127.0.0.1' if bind == '0.0.0.0' else bind}:{port}"


def operator(address: str) -> str:
    """The beginning of the operator's scripts: Flower needs the absolute path of the certificate."""
    return f"""{ENVIRONMENT}
mkdir -p flwr
cat > flwr/config.$$ <<END
[superlink]
default = "server"

[superlink.server]
address = "{address}"
root-certificates = "$PWD/ca.crt"
END
mv flwr/config.$$ flwr/config.toml
"""


def superlink(bind: str, port: int) -> str:
    """Start script of the server."""
    return f"""#!/bin/sh
# The server. Needs python on PATH: activate the environment that has pacfl first.
# Apps run here if approved-apps has their SHA-256: 'pacfl deploy approve' writes it.
set -eu
{ENVIRONMENT}
{EXECUTOR.format(authority="ca.crt", address=own_address(bind, port))}
exec python -m pacfl.flower.deploy.superlink \\
  --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \\
  --enable-supernode-auth --database state.db --host {bind} --port {port} \\
  --disable-runtime-dependency-installation {EXECUTED}
"""


def supernode(server: str, port: int, own_port: int, partition: int, n_clients: int) -> str:
    """Start script of a site."""
    return f"""#!/bin/sh
# One site. Needs python on PATH: activate the environment that has pacfl first.
# Apps run here if approved-apps has their SHA-256: 'pacfl deploy approve' shows them and writes it.
# The file site.config has what load_data(context) finds in context.node_config, for example data="/srv/tables".
# signature-key="/srv/federation.key" there hides the directions of signatures from the server (pacfl key).
# most-epsilon=2.0 most-delta=1e-4 there is the privacy budget of all signatures of this site together.
set -eu
{ENVIRONMENT}
# A worker that has everything imported: without it Python imports torch for every message.
worker="$PWD/worker.sock"
python -m pacfl.flower.warm "$worker" --with $$ &

port="${{SITE_PORT:-{own_port}}}"
{EXECUTOR.format(authority="executor/ca.crt", address='"127.0.0.1:$port"')}
exec python -m pacfl.flower.deploy.supernode --root-certificates ca.crt --auth-supernode-private-key node.key \\
  --superlink {server}:{port} --host 127.0.0.1 --port "$port" {EXECUTED} \\
  --ssl-ca-certfile executor/ca.crt --ssl-certfile executor/server.crt --ssl-keyfile executor/server.key \\
  --node-config "partition-id={partition} num-partitions={n_clients} \\
memory=\\"$PWD/memory\\" node-key=\\"$PWD/node.key\\" trusted-sites=\\"$PWD/trusted-sites\\" \\
models=\\"$PWD/models\\" sent=\\"$PWD/sent.jsonl\\" worker=\\"$worker\\" $(cat site.config)"
"""


def register(address: str) -> str:
    """Script that registers a site."""
    return f"""#!/bin/sh
# Register a site by its public key, and the name under which all tables, logs and models show it:
# ./register.sh /path/to/node.pub heidelberg
set -eu
key="$(realpath "$1")"
name="${{2:?the name of the site is missing: ./register.sh KEY NAME}}"
{operator(address)}exec flwr supernode register "$key" server --name "$name" --format json
"""


def start_run(address: str) -> str:
    """Script that starts or resumes the federation."""
    return f"""#!/bin/sh
# Start the federation, or resume it after its last round. ../app/pyproject.toml has the settings.
set -eu
{operator(address)}python -m pacfl.flower.deploy.starting ../app .
exec flwr run ../app server --format json "$@"
"""


def app(settings: Mapping[str, Mapping[str, Any]], seed: int) -> str:
    """The Flower app of this federation."""
    lines = [
        "# The federation as a Flower app. The two components are those of pacfl. Put the module that federation.task",
        "# names beside this file: Flower sends it to the sites.",
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
        'settings = ""  # overrides the settings below: "algorithm.rank = 5; learning.lr = 0.05"',
    ]
    for section, values in settings.items():
        lines += ["", f"[tool.flwr.app.config.{section}]", *(f"{key} = {_toml(v)}" for key, v in values.items())]
    return "\n".join(lines) + "\n"


def readme(server: str, port: int, bind: str, sites: Sequence[str]) -> str:
    """Instructions for the operator."""
    return f"""# This federation

The server is {server}:{port} and listens on {bind}. Show nothing but this file to others: keys,
certificates and the token are readable by you only, and `.gitignore` excludes the folder from
repositories. Sites prepared: {", ".join(sites)}.

- `authority/` is yours, best stored offline: the key that signs server certificates.
- `server/` belongs on the server: its certificate and key, `start.sh`, `register.sh`, `run.sh`, and the
  operator's token in `flwr/credentials.yaml`; later its database, and the federation in `federation/`.
- `sites/NAME/` belongs to the site of this name, and to nobody else once it is there: its key, the certificate of the
  authority, `start.sh`; later the client's memory, in `memory/`, and its models, in `models/`.
- `app/` belongs on the server, beside `server/`: the settings of the federation.

Server and sites run apps only whose SHA-256 is in their `approved-apps`. After each change of `app/`:
`pacfl deploy approve .` here, and `pacfl deploy approve FOLDER` at each site, which shows the change.

To try it on this machine: `pacfl deploy up .`, then `pacfl status server/federation`, and at the end
`pacfl deploy down .`.

To deploy it: copy `server/` and `app/` to the server and each `sites/NAME/` to its site over a channel that
you trust (`rsync -a` preserves the permissions), and delete your copy of the site's key. Better still, a
site creates its own key with `ssh-keygen -t ecdsa -b 384 -N "" -C "" -f node.key` and sends you
`node.key.pub` only.

1. On the server: `./start.sh`, as a service that is started again when it ends: a unit of systemd and a file of
   Docker Compose are beside it, and say how. They start the run, too, and start it again when it has died.
2. On the server, once for each site: `./register.sh NODE.pub NAME`. `ssh-keygen -lf NODE.pub` shows the
   fingerprint of the key, at the site and here.
3. At each site: `pacfl deploy approve .`, then `./start.sh`, as a service likewise.
4. On the server: `./run.sh`. After a crash the same command resumes after the last finished round.
5. `pacfl status federation` in the server's folder shows rounds, clusters, who is alive and the last
   error.
6. At the end each site has the model of its cluster and its personal model in `models/`. For models
   before the end, or once more: `pacfl deploy deliver federation`, and `./run.sh` if the run has ended.
"""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        repr(value)
        if isinstance(value, int | float)
        else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
