"""Data or signature files -> checked signatures of named clients that may be compared."""

import warnings
from pathlib import Path

import numpy as np

from pacfl.errors import DataError
from pacfl.privacy import private_signature
from pacfl.signatures import reading, sigfile
from pacfl.signatures.reading import Reading
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import RankWarning, signature, split_half_angles


def sign(path: Path, rank: int, how: Reading) -> SignatureFile:
    """The signature of one party's data, and what it must know to be compared."""
    try:
        x, labels = reading.read(path, how)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)  # the number of directions stands in the contents
            basis = signature(x, rank, labels)
        return SignatureFile(
            basis=basis.astype(np.float32),
            rank=rank,
            per_class=labels is not None,
            preprocess=how.identity(),
            samples=len(x),
            split_half_angles=split_half_angles(x, rank, labels),
        )
    except DataError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: {error}") from None


def sign_privately(path: Path, rank: int, how: Reading, epsilon: float, delta: float) -> SignatureFile:
    """The signature of one party's data with (epsilon, delta) differential privacy for each of its samples."""
    if how.preprocess == "normalise":
        raise DataError(
            f"{path}: normalising takes mean and deviation of all samples, which would not be private; "
            "use --preprocess raw or unit with --epsilon"
        )
    if how.per_class is not None:
        raise DataError(f"{path}: a signature per class tells how many classes there are; leave it out with --epsilon")
    try:
        x, _ = reading.read(path, how)
        made = private_signature(x, rank, epsilon, delta)
    except DataError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: {error}") from None
    basis = made.basis.astype(np.float32)
    return SignatureFile(basis, rank, False, how.identity(), None, made.split_half_angles, made.guarantee)


def open_client(path: Path, rank: int, how: Reading) -> SignatureFile:
    """The signature of a client given by a signature file, or made now from its data."""
    return sigfile.read(path) if path.suffix == ".sig" else sign(path, rank, how)


def client_names(paths: list[Path]) -> list[str]:
    """A client's name is its file's stem."""
    names = [path.stem if path.is_file() else path.name for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"clients are named by their files, and {', '.join(twice)} occurs twice; rename a file")
    return names


def check_comparable(clients: dict[str, SignatureFile]) -> None:
    """Refuse signatures that were made differently, and say which and how."""
    for what, of in (
        ("privacy", lambda s: s.protection),
        ("features", lambda s: s.basis.shape[0]),
        ("preprocessing", lambda s: s.preprocess),
        ("per-class decomposition", lambda s: "per class" if s.per_class else "whole"),
    ):
        made: dict[object, list[str]] = {}
        for name, client in clients.items():
            made.setdefault(of(client), []).append(name)
        if len(made) > 1:
            kinds = "; ".join(f"{value}: {_listed(names)}" for value, names in made.items())
            raise DataError(
                f"signatures must be made alike, these differ in {what}: {kinds}. "
                "Angles between them would mean nothing: sign again with the same options"
            )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
