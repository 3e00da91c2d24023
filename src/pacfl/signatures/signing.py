"""Samples in memory -> a signature with what must be known to compare it."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from scipy.stats import binom

from pacfl.errors import DataError
from pacfl.features.encoders import digest
from pacfl.features.reading import Array, Reading, Samples
from pacfl.features.schema import CONSTANT
from pacfl.privacy import private_class_signatures, private_signature
from pacfl.signatures import column_arrays
from pacfl.signatures.class_arrays import as_stored
from pacfl.signatures.keys import key_id, read_key
from pacfl.signatures.labels import MOST_CLASSES, MOST_NAME, class_names, hashed, with_hashed_names
from pacfl.signatures.sigfile import MOST_AXES, NAMES, SignatureFile
from pacfl.subspace import (
    ClassSignatures,
    DependenceWarning,
    Neighbours,
    RankWarning,
    class_signatures,
    neighbours,
    signature,
    split_half_angles,
)
from pacfl.subspace.classes import FEWEST
from pacfl.subspace.columns import FEWEST as FEWEST_ROWS
from pacfl.subspace.columns import RANK as RANK_OF_TABLES
from pacfl.subspace.columns import ColumnAngles, column_angles, with_constant
from pacfl.subspace.dependence import PERMUTATIONS
from pacfl.subspace.signature import RANK

FALSE_ALARMS: Final = 0.01  # share of federations of independent samples in which some client passes for dependent
MOST_COLUMNS_BYTES: Final = 1 << 19  # of names of columns, which are for people to read: half of a file's header


def sign(client: str, samples: Samples, rank: int, how: Reading) -> SignatureFile:
    """The signature of samples that were read, with their classes if they have labels; errors name the client."""
    x, labels, columns, groups = samples
    per_class = labels if how.per_class is not None else None
    with named(client), warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # the file has the number of directions
        table = None if how.schema is None or per_class is not None else _table(x, labels, groups, how)
        if how.schema is not None:
            x, columns = with_constant(x), _with_constant(columns)
        basis = signature(x, rank, per_class).astype(np.float32)
        angles = split_half_angles(x, rank, per_class, groups=groups)
        made = SignatureFile(
            *(basis, rank, per_class is not None, how.identity(), x.shape[0], angles),
            encoder=None if how.encoder is None else digest(how.encoder),
            columns=column_names(columns),
            schema=None if how.schema is None else how.schema.sha256,
            shape=sample_shape(x),
            table=table,
        )
        return made if labels is None or per_class is not None else replace(made, **_classes(x, labels, groups, how))


def default_rank(how: Reading) -> int:
    """Directions in a signature of data that are read so."""
    return RANK if how.schema is None else RANK_OF_TABLES


def dependence(client: str, samples: Samples, how: Reading) -> Neighbours | None:
    """How neighbouring samples, or blocks of them, depend on each other; None where their groups were named."""
    if samples.groups is not None and how.blocks is None:
        return None
    with named(client):
        return neighbours(samples.x, samples.labels, samples.groups)


def warn_of_dependence(found: Mapping[str, Neighbours | None], blocks: int | None = None) -> None:
    """Warn once of all clients whose neighbouring samples depend on each other; not of so few as chance explains."""
    dependent = {name: one for name, one in found.items() if one is not None and one.dependent}
    if not dependent or binom.sf(len(dependent) - 1, len(found), 1 / (PERMUTATIONS + 1)) > FALSE_ALARMS:
        return
    name, first = next(iter(dependent.items()))
    others = f" and in {len(dependent) - 1} of {len(found) - 1} others" if len(dependent) > 1 else ""
    what, remedy = "samples", "say which belong together with --group or --blocks (in Python: groups)"
    if blocks is not None:
        what, remedy = f"blocks of {blocks} samples", "make blocks longer, or name groups with --group"
    warnings.warn(
        f"{name}{others}: neighbouring {what} depend on each other (mean {'squared ' if first.squared else ''}cosine "
        f"{first.cosine:.2f}, in random order {first.by_chance:.2f}). Noise is then underestimated, and clusters may "
        f"be due to chance; {remedy}. If the order means nothing, as in a file sorted by class, shuffle it",
        DependenceWarning,
        stacklevel=3,
    )


def sign_privately(
    client: str,
    samples: Samples,
    rank: int,
    how: Reading,
    epsilon: float,
    delta: float,
    classes: Sequence[str] | None = None,
) -> SignatureFile:
    """The signature of samples with differential privacy for each, with their classes if they have labels.

    classes: all that any client may have, which labelled samples need: which of them a client has is private.
    """
    x, labels, columns, groups = samples
    if groups is not None:
        raise DataError(
            f"{client}: a private signature hides single samples, not groups of them, and its noise is not measured on "
            "samples; leave out groups or epsilon"
        )
    if how.preprocess == "normalise":
        raise DataError(
            f"{client}: normalising takes mean and standard deviation of all samples, which would not be private; "
            "preprocess 'raw' or 'unit' with epsilon"
        )
    if (labels is None) != (classes is None):
        raise DataError(
            f"{client}: private signatures of classes need labels and all classes that the federation has agreed on, "
            "so that it is not shown which of them a client has; give both, as with --labels and --classes, or neither"
        )
    with named(client):
        if how.schema is not None:
            x, columns = with_constant(x), _with_constant(columns)
        if labels is None or classes is None:
            made = private_signature(x, rank, epsilon, delta)
        else:
            agreed = class_names(classes, len(classes))
            made = private_class_signatures(x, class_names(labels, x.shape[0]), agreed, rank, epsilon, delta)
        whole = math.prod(x.shape[1:]) == len(made.basis)  # many features are reduced to fewer
        signed = SignatureFile(
            *(made.basis.astype(np.float32), rank, False, how.identity(), None, made.split_half_angles, made.guarantee),
            encoder=None if how.encoder is None else digest(how.encoder),
            columns=column_names(columns) if whole else None,
            schema=None if how.schema is None else how.schema.sha256,
            shape=sample_shape(x) if whole else None,
        )
        return signed if made.classes is None else replace(signed, **_stored_classes(made.classes, how))


def sample_shape(x: Array) -> tuple[int, ...] | None:
    """The shape of one sample that has several axes, as images have; None for tables."""
    return tuple(x.shape[1:]) if 2 < x.ndim <= MOST_AXES + 1 else None


def column_names(columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Names of columns as a file stores them: printable, on one line, not too long; None where all are too much."""
    if columns is None:
        return None
    printable = ("".join(c if c.isprintable() else " " for c in name) for name in columns)
    short = tuple(" ".join(name.split())[:MOST_NAME] for name in printable)
    return short if sum(len(name.encode()) + 3 for name in short) <= MOST_COLUMNS_BYTES else None


def _with_constant(columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if columns is None else (*columns, CONSTANT)


def _classes(x: Array, labels: Array, groups: Array | None, how: Reading) -> dict[str, Any]:
    """The fields of a signature with classes."""
    whole = labels.dtype.kind in "iu" and labels.shape == (x.shape[0],)  # names of integers are these
    names = labels if whole else class_names(labels, x.shape[0])
    made = class_signatures(x, names, how.minimum_count or FEWEST, groups)
    return _stored_classes(made, how)


def _table(x: Array, labels: Array | None, groups: Array | None, how: Reading) -> ColumnAngles:
    """The columns of a table, class by class if it has labels, with names of classes as they are shown to others."""
    names = None if labels is None else class_names(labels, len(x))
    if names is not None and how.hash_labels is not None:
        names = hashed(names, read_key(how.hash_labels))
    zeros = None if how.schema is None else how.schema.zeros
    return column_arrays.as_stored(column_angles(x, names, groups, max(how.minimum_count or 0, FEWEST_ROWS), zeros))


def _stored_classes(made: ClassSignatures, how: Reading) -> dict[str, Any]:
    """The same as a file stores it, with names hashed if asked."""
    if len(made) > MOST_CLASSES:
        raise ValueError(f"{len(made)} classes are more than the {MOST_CLASSES} a signature holds; are these labels?")
    if how.hash_labels is None:
        return {"classes": as_stored(made)}
    key = read_key(how.hash_labels)
    return {"classes": as_stored(with_hashed_names(made, key)), "key": key_id(key), "keyed": (NAMES,)}


@contextmanager
def named(client: str) -> Iterator[None]:
    """Errors of the mathematics name the client, or its file."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(f"{client}: {error}") from None
