"""Signatures of tables whose columns come in different orders -> the same order; different columns are refused."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pacfl.errors import DataError
from pacfl.signatures.sigfile import SignatureFile

Columns = tuple[str, ...]

MOST_SHOWN: Final = 20  # columns in a message


def aligned(clients: Mapping[str, SignatureFile], columns: Columns | None = None) -> dict[str, SignatureFile]:
    """The clients with their features in the order of `columns`, or of the first client that names its own.

    Clients that name no columns stay as they are. An error names which columns are missing, and in whom.
    """
    named = {name: one.columns for name, one in clients.items() if one.columns is not None}
    if columns is not None:
        named = {"the federation": columns, **named}
    if len({frozenset(own) for own in named.values()}) > 1:
        raise _different(named)
    order = columns or next(iter(named.values()), None)
    return {name: one if order is None else _permuted(name, one, order) for name, one in clients.items()}


def _permuted(name: str, client: SignatureFile, order: Columns) -> SignatureFile:
    own = client.columns
    if own is None or own == order:
        return client
    if client.directions_key is not None:
        raise DataError(
            f"{name}: its columns come in another order, and keyed directions cannot be reordered; sign it again with "
            f"columns in this order: {', '.join(order[:MOST_SHOWN])}{', ...' if len(order) > MOST_SHOWN else ''}"
        )
    twice = next((column for column in own if own.count(column) > 1 or order.count(column) > 1), None)
    if twice is not None:
        raise DataError(
            f"{name}: its columns come in another order, and {twice!r} names several of them; rename all but one"
        )
    place = {column: j for j, column in enumerate(own)}
    rows = [place[column] for column in order]
    classes = client.classes
    if classes is not None:
        classes = replace(classes, directions=classes.directions[:, rows])
    return replace(client, basis=client.basis[rows], classes=classes, columns=order)


def _different(named: Mapping[str, Columns]) -> DataError:
    """Who lacks what; the shorter of who has it and who has not."""
    found = []
    for column in dict.fromkeys(column for own in named.values() for column in own):
        lacking = [name for name, own in named.items() if column not in own]
        having = [name for name, own in named.items() if column in own]
        if lacking:
            only = len(having) < len(lacking)
            found.append(
                f"{column!r} is {'only in' if only else 'missing in'} {', '.join(having if only else lacking)}"
            )
    return DataError(
        f"tables must have the same columns: {'; '.join(found)}. Rename them, or leave them out with --drop"
    )
