"""What the transport checks of a reply: its size, and how many samples it claims. Algorithms check its arrays."""

from math import prod
from typing import Final

from pacfl.errors import InvalidReplyError
from pacfl.federation.checks import ArraySpecs

LARGEST_SITE: Final = 10**8  # training samples that a client may claim
LARGEST_PROFILE: Final = 2**26  # bytes


def check_size(size: object) -> int:
    """A number of training samples, which weighs a client's update."""
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_SITE:
        raise InvalidReplyError(f"claims {size!r} training samples, expected 1 to {LARGEST_SITE:,}")
    return size


def largest_upload(specs: ArraySpecs) -> int:
    """The bytes of a valid upload, at most."""
    return sum(8 * prod(spec.shape) for spec in specs.values())
