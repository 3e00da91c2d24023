"""The keys that a SuperLink knows: the operator lists, registers and unregisters them on the server's machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListNodesResponse,
    RegisterNodeRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from pacfl.errors import DeployError
from pacfl.flower.client_registry import fingerprint
from pacfl.flower.deploy import keys

CREATE: Final = 'ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f node.key && mv node.key.pub node.pub'
SECONDS: Final = 30.0  # for a reply


class ServerDownError(DeployError):
    """The server does not run on this machine."""


@dataclass(frozen=True)
class SiteKey:
    """A key that is registered."""

    node: int  # Flower's id
    name: str
    fingerprint: str


def public_key(path: Path) -> bytes:
    """A site's public key in PEM, as Flower compares it, from a file as ssh-keygen writes it."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except FileNotFoundError:
        raise DeployError(f"{path}: there is no such file; expected the node.pub of a site") from None
    except (ValueError, UnsupportedAlgorithm):
        raise DeployError(
            f"{path}: is not a public key; expected a node.pub, which a site makes by: {CREATE}"
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise DeployError(f"{path}: is a key of another type, expected one of an elliptic curve; make it by: {CREATE}")
    return public_key_to_bytes(key)


def registered(server: Path) -> list[SiteKey]:
    """All keys that may sign in, of a server in this folder that runs on this machine."""
    reply = ListNodesResponse.FromString(_call(server, "list-nodes", ListNodesRequest().SerializeToString()))
    known = [node for node in reply.nodes_info if node.status != "unregistered" and node.public_key]
    return [SiteKey(node.node_id, node.name, fingerprint(node.public_key)) for node in known]


def register(server: Path, key: bytes, name: str) -> bool:
    """Let a key sign in under a name; whether it was unknown before."""
    known = {one.fingerprint: one.name for one in registered(server)}
    if (here := known.get(fingerprint(key))) is not None:
        if here == name:
            return False
        raise DeployError(
            f"the key {fingerprint(key)} is registered as {here!r}, not as {name!r}; each site has its own"
        )
    _call(server, "register-node", RegisterNodeRequest(public_key=key, name=name).SerializeToString())
    return True


def unregister(server: Path, node: int) -> None:
    """Refuse a key from now on."""
    _call(server, "unregister-node", UnregisterNodeRequest(node_id=node).SerializeToString())


def _call(server: Path, action: str, request: bytes) -> bytes:
    address, authority = keys.own_address(server / "flwr"), server / "ca.crt"
    try:
        with httpx.Client(verify=keys.trusting(authority), timeout=SECONDS, trust_env=False) as client:
            reply = client.post(
                f"https://{address}/v1/control/{action}",
                content=request,
                headers={
                    "content-type": "application/protobuf",
                    "authorization": f"Bearer {keys.control_token(server / 'flwr')}",
                },
            )
    except httpx.TransportError as error:
        raise ServerDownError(f"no server of {server} answers at {address} on this machine: {error}") from None
    if reply.status_code in (502, 503):
        raise ServerDownError(f"the server at {address} is not ready")
    if reply.is_error:
        raise DeployError(f"the server at {address} refused {action}: {reply.status_code} {reply.text[:500]}")
    return reply.content
