"""Signatures under a key of the clients: their directions, transformed so that only angles can be seen, and back.

`pacfl.privacy.keyed` has the transform. All directions of a federation get the same one: bases, and those of classes.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pacfl.errors import DataError
from pacfl.privacy.keyed import keyed, unkeyed
from pacfl.signatures.class_arrays import as_stored
from pacfl.signatures.keys import key_id
from pacfl.signatures.sigfile import DIRECTIONS, SignatureFile
from pacfl.subspace import ClassSignatures

if TYPE_CHECKING:
    from pacfl.signatures.federation import Federation


def keyed_signature(client: str, made: SignatureFile, key: bytes) -> SignatureFile:
    """The same signature, whose directions show nothing without the key; noise for privacy stays in it as it is."""
    if made.directions_key is not None:
        raise DataError(f"{client}: its directions are keyed already, with key {made.directions_key}")
    if made.table is not None:
        raise DataError(
            f"{client}: columns of a table with a schema are compared one by one, by their means and their spread, "
            "which no transform of directions hides; leave out --key, or sign with --epsilon, without columns"
        )
    if made.key is not None and made.key != key_id(key):
        raise DataError(
            f"{client}: names of classes are hashed with key {made.key}, directions would be keyed with {key_id(key)}; "
            "a federation has one key: give the same file to --hash-labels and --key"
        )
    classes = None if made.classes is None else _keyed_classes(made.classes, key)
    basis = keyed(made.basis, key).astype(np.float32)
    return replace(made, basis=basis, classes=classes, key=key_id(key), keyed=(*made.keyed, DIRECTIONS))


def _keyed_classes(made: ClassSignatures, key: bytes) -> ClassSignatures:
    return as_stored(replace(made, directions=keyed(made.directions, key, axis=1)))


def unkeyed_federation(federation: "Federation", key: bytes) -> "Federation":
    """The same federation with the directions that its clients had before they applied the key."""
    used = federation.settings.directions
    if used is None:
        raise DataError("directions of this federation are not keyed; leave out --key")
    if used != key_id(key):
        raise DataError(
            f"directions of this federation are keyed with key {used}, this is {key_id(key)}; give that one"
        )
    return replace(
        federation,
        bases=tuple(unkeyed(basis, key).astype(np.float32) for basis in federation.bases),
        classes=tuple(
            None if own is None else replace(own, directions=unkeyed(own.directions, key, axis=1))
            for own in federation.classes
        ),
        settings=replace(federation.settings, directions=None),
    )
