"""Whose models are these? Models that were made for a site carry the fingerprint of its key."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pacfl.errors import DataError

PUBLIC: Final = "node.pub"  # of a site, in its folder, beside the folder of its models
HASH: Final = "SHA256:"  # before every fingerprint
FINGERPRINT: Final = "fingerprint"  # in what export.json says of a client


def fingerprint(key: bytes) -> str:
    """The fingerprint of a public key in OpenSSH's form, as `ssh-keygen -l` prints it."""
    return HASH + b64encode(hashlib.sha256(b64decode(key.split()[1])).digest()).decode().rstrip("=")


def fingerprint_of(folder: Path) -> str | None:
    """The fingerprint of the key in the folder of a site; None if it is no site."""
    try:
        return fingerprint((folder / PUBLIC).read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, IndexError):
        raise DataError(f"{folder / PUBLIC}: is not a public key as ssh-keygen writes it") from None


def check_site(models: Path, client: str | None, clients: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a model in the folder of a site that was made for another one.

    models: the folder of an export; client: whose model is to be used, None for that of a cluster.
    """
    made_for = clients.get(client, {}).get(FINGERPRINT) if client is not None else None
    here = fingerprint_of(models.absolute().parent)
    if None not in (made_for, here) and made_for != here:
        raise DataError(
            f"{models}: the models were made for {client!r} with the key {made_for}, and this site has the key {here}; "
            "use its own. If its key has changed since, the operator of the server delivers them again: pacfl deploy "
            "deliver"
        )
