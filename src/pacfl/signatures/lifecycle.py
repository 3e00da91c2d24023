"""Clients that leave a federation, or send a new signature."""

from collections.abc import Collection

from pacfl.errors import DataError
from pacfl.signatures.explaining import some_of
from pacfl.signatures.federation import Federation


def leave(federation: Federation, names: Collection[str]) -> Federation:
    """The federation without some clients. Nobody else moves, and no cluster gets another number.

    A cluster that all have left stays empty; the numbers after the last that has clients are free again, so that
    leaving undoes joining.
    """
    unknown = [name for name in names if name not in federation.names]
    if unknown:
        raise DataError(
            f"{', '.join(unknown)}: not in the federation, nothing was changed; its clients are "
            f"{some_of(federation.names)}"
        )
    rest = [i for i, name in enumerate(federation.names) if name not in names]
    if not rest:
        raise DataError("nobody would be left in the federation, nothing was changed; delete its folder instead")
    return federation.subset(rest)
