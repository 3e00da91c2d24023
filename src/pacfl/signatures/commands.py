"""What the commands on signatures and federations of them do. The command line only parses and prints."""

import unicodedata
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from pacfl.errors import DataError
from pacfl.features import encoders
from pacfl.features.reading import Array, Reading, read_samples
from pacfl.features.tables import stem_of
from pacfl.files import locked
from pacfl.folders import Kind, required
from pacfl.signatures import figures, sigfile
from pacfl.signatures.federation import Federation, Joined, Progress, federate, join
from pacfl.signatures.folder import check_output, load, save
from pacfl.signatures.keying import keyed_signature, unkeyed_federation
from pacfl.signatures.keys import read_key
from pacfl.signatures.lifecycle import Replaced, leave, replace_client
from pacfl.signatures.sigfile import NOT_LABELLED, SignatureFile
from pacfl.signatures.signing import default_rank, dependence, sign, sign_privately, warn_of_dependence
from pacfl.subspace import ClassSignatures, Compare, Explanation, Linkage, Measure
from pacfl.subspace.classes import RANK as DIRECTIONS_OF_CLASS
from pacfl.subspace.explanation import Between

SUFFIX: Final = ".sig"
DELTA: Final = 1e-5
UNPRINTABLE: Final = ("Cc", "Cs")  # categories of characters: controls, and bytes that are no text
SITES_JOIN: Final[Mapping[Kind, str]] = dict.fromkeys(
    ("server", "deployment"), "sites send their signatures to the server themselves"
)
ENOUGH_SAMPLES: Final = 10  # per direction: with fewer, directions resemble single samples


class FewSamplesWarning(UserWarning):
    """A signature of so few samples that it may show parts of them."""


def sign_file(
    path: Path,
    output: Path,
    *,
    rank: int | None = None,
    reading: Reading | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    classes: Sequence[str] | None = None,
    key: Path | None = None,
    on_progress: Progress = lambda *_: None,
) -> SignatureFile:
    """Write the signature of one client's data, with differential privacy for each of its samples if epsilon is given.

    Without epsilon, data of at most `rank` samples are refused: they would span the signature themselves. classes: with
    epsilon and labels, all classes that any client may have. key: file with the clients' key, which hides directions
    from whoever does not have it; angles stay as they are.
    """
    if output.suffix != SUFFIX:
        raise DataError(f"{output}: a signature file is named NAME.sig, and NAME is the client's name for others")
    if not output.parent.is_dir():
        raise DataError(f"{output}: there is no folder {output.parent}; make it first")
    if epsilon is None and delta is not None:
        raise DataError("--delta belongs to a guarantee of privacy; give --epsilon too")
    if epsilon is None and classes is not None:
        raise DataError(
            "--classes are for a guarantee of privacy: otherwise the labels say which there are; leave it out"
        )
    secret = None if key is None else read_key(key)
    how = replace(reading or Reading(), on_progress=on_progress)
    how.check()
    rank = rank or default_rank(how)
    if epsilon is None:
        samples = read_samples(path, how)
        signed = sign(str(path), samples, rank, how)
        _check_enough_samples(path, samples.labels if signed.per_class else None, samples.x.shape[0], rank)
        _check_enough_of_classes(path, signed.classes, "samples" if samples.groups is None else "groups of samples")
        warn_of_dependence({str(path): dependence(str(path), samples, how)}, how.blocks)
    else:
        _check_private(path, how)
        how = how if how.labels is not None or classes is not None else replace(how, labels="")  # none unless named
        signed = sign_privately(
            str(path), read_samples(path, how), rank, how, epsilon, DELTA if delta is None else delta, classes
        )
    signed = signed if secret is None else keyed_signature(str(path), signed, secret)
    sigfile.write(output, signed)
    return signed


def cluster_files(
    paths: Sequence[Path],
    *,
    rank: int | None = None,
    reading: Reading | None = None,
    compare: Compare = "auto",
    measure: Measure | None = None,
    linkage: Linkage = "average",
    threshold: float | None = None,
    clusters: int | None = None,
    output: Path | None = None,
    force: bool = False,
    pictures: figures.Picture | None = None,
    on_progress: Progress = lambda *_: None,
) -> Federation:
    """The federation of the clients in signature or data files, one file each; stored in the folder `output`.

    compare: the same classes, all inputs, or, with `auto`, classes where clients share labelled ones. rank, reading:
    for data files, which are signed on the way. force: replace a federation in the folder.
    """
    if threshold is not None and clusters is not None:
        raise DataError("give either --threshold or --clusters, not both")
    if compare == "classes" and threshold is not None:
        raise DataError(
            "--threshold in degrees cuts the angles between all inputs; leave it out with --compare classes, "
            "or use --compare inputs"
        )
    if compare == "classes" and linkage != "average":
        raise DataError(f"--compare classes uses average linkage, got {linkage}; use --compare inputs for others")
    if clusters is not None and clusters > len(paths):
        raise DataError(f"--clusters {clusters} is more than there are clients, {len(paths)}")
    if output is None and (force or pictures):
        raise DataError("--force and --pictures apply to a folder; name one with --output")
    if output is not None:
        check_output(output, force)
    clients = _open_clients(paths, rank, reading, on_progress)
    federation = federate(clients, measure, linkage, threshold, clusters, on_progress, compare=compare)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        with locked(output):
            check_output(output, force)  # again: another process may have written to it
            save(federation, output, pictures)
    return federation


def join_files(
    folder: Path,
    paths: Sequence[Path],
    *,
    reading: Reading | None = None,
    pictures: figures.Picture | None = None,
    on_progress: Progress = lambda *_: None,
) -> Joined:
    """The federation in a folder with newcomers in it, written back. Two processes at once wait for each other.

    reading: where samples, labels and groups are in newcomers' data files; the rest is as for the federation. Its
    encoder is needed only where that of the federation is not built in.
    """
    required(folder, "join", "clusters", error=DataError, why=SITES_JOIN)
    with locked(folder):
        federation = load(folder)
        settings, rank = federation.settings, None
        if reading is not None or any(path.suffix != SUFFIX for path in paths):
            reading, rank = _as_the_others(reading or Reading(), settings), settings.rank
        joined = join(federation, _open_clients(paths, rank, reading, on_progress))
        save(joined.federation, folder, pictures)
    return joined


def _as_the_others(reading: Reading, settings: sigfile.SignatureSettings) -> Reading:
    """How newcomers' data are read: as those of the federation were."""
    if settings.per_class:
        raise DataError("the federation's signatures are per class; sign newcomers with --per-class first")
    if reading.labels is None and settings.labels == NOT_LABELLED:
        reading = replace(reading, labels="")  # a schema may name some
    if settings.schema is not None and reading.schema is None:
        raise DataError("the federation's tables were signed with a schema; give the same one with --schema")
    if settings.directions is not None:
        raise DataError(
            f"directions of the federation's signatures are keyed with key {settings.directions}; sign newcomers with "
            "--key first"
        )
    if reading.labels_at is not None and settings.labels.startswith("names hashed"):
        raise DataError(
            "the federation's names of classes are hashed; sign newcomers with --labels and --hash-labels first"
        )
    as_prepared = reading.prepared_as(settings.preprocess)
    return replace(as_prepared, encoder=_same_encoder(settings.encoder, reading.encoder))


def _same_encoder(sha256: str | None, given: str | None) -> str | None:
    """The name of the federation's encoder, of which it has the digest; one that is not built in must be given."""
    name = given if given is not None or sha256 is None else encoders.name_of(sha256)
    if (None if name is None else encoders.digest(name)) == sha256:
        return name
    if name is None:
        raise DataError("the federation's encoder is not built in; name it with --encoder package.module:function")
    raise DataError(
        f"encoder {name!r} is not the one of the federation ({encoders.in_words(sha256)}); its code or its files "
        "differ, and angles would mean nothing"
    )


def explain_pair(
    folder: Path, a: str | int, b: str | int, *, between: Between = "clients", key: Path | None = None
) -> Explanation:
    """Why two clients of the federation in a folder, by name, or two of its clusters, by number, differ.

    key: file with the key of its signatures' directions, where they are keyed.
    """
    federation = load_federation(folder)
    if key is not None:
        federation = unkeyed_federation(federation, read_key(key))
    return federation.explain(a, b, between)


def load_federation(folder: Path) -> Federation:
    """The federation in a folder: who is in it, clusters, evidence, diagnosis."""
    required(folder, "show", "clusters", error=DataError)
    return load(folder)


def leave_federation(folder: Path, names: Collection[str], *, pictures: figures.Picture | None = None) -> Federation:
    """The federation in a folder without some clients, written back. Nobody else moves."""
    required(folder, "leave", "clusters", error=DataError, why=SITES_JOIN)
    with locked(folder):
        federation = leave(load(folder), names)
        save(federation, folder, pictures)
    return federation


def replace_file(folder: Path, path: Path, *, move: bool = False, pictures: figures.Picture | None = None) -> Replaced:
    """The federation in a folder with a new signature of one client, NAME.sig, written back. Nobody else moves.

    move: a client that drifted moves to the cluster in which it would be placed now; otherwise it stays.
    """
    required(folder, "replace", "clusters", error=DataError, why=SITES_JOIN)
    if path.suffix != SUFFIX:
        raise DataError(f"{path}: is no signature file; sign the data first: pacfl sign {path} -o NAME.sig")
    with locked(folder):
        federation = load(folder)
        replaced = replace_client(federation, path.stem, sigfile.read(path), move=move)
        if replaced.federation is not federation:
            save(replaced.federation, folder, pictures)
    return replaced


def _open_clients(
    paths: Sequence[Path], rank: int | None, reading: Reading | None, on_progress: Progress
) -> dict[str, SignatureFile]:
    """Signatures by the clients' names, which are the stems of their files."""
    if all(path.suffix == SUFFIX for path in paths) and (rank is not None or reading is not None):
        raise DataError(
            "signature files are compared as they were made; --rank and the options for reading apply to data files "
            "only, leave them out"
        )
    names = [stem_of(path) if path.is_file() else path.name for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"clients are named by their files, and {', '.join(twice)} occurs twice; rename a file")
    odd = next((name for name in names if any(unicodedata.category(c) in UNPRINTABLE for c in name)), None)
    if odd is not None:
        raise DataError(f"clients are named by their files, and {odd!r} cannot be printed; rename the file")
    clients, neighbouring = {}, {}
    how = replace(reading or Reading(), on_progress=on_progress)
    rank = rank or default_rank(how)
    for name, path in zip(names, paths, strict=True):
        if path.suffix == SUFFIX:
            clients[name] = sigfile.read(path)
        else:
            samples = read_samples(path, how)
            clients[name] = sign(str(path), samples, rank, how)
            neighbouring[str(path)] = dependence(str(path), samples, how)
        on_progress("reading", 1, len(paths))
    warn_of_dependence(neighbouring, how.blocks)
    return clients


def _check_private(path: Path, how: Reading) -> None:
    """Refuse what would show more than is promised."""
    if how.per_class is not None:
        raise DataError(f"{path}: a signature per class shows the number of classes; leave it out with --epsilon")
    if how.minimum_count is not None:
        raise DataError(
            f"{path}: --minimum-count looks at counts, which are private; with --epsilon, classes that noise hides are "
            "left out anyway: leave out --minimum-count"
        )


def _check_enough_samples(path: Path, labels: Array | None, n: int, rank: int) -> None:
    """Refuse samples that the signature would span, and warn of few. Per class, the smallest class counts."""
    what, fewest = "the data have", n
    if labels is not None:
        names, counts = np.unique(labels, return_counts=True)
        what, fewest = f"class {names[counts.argmin()]} has", int(counts.min())
    has = f"{path}: {what} {fewest} sample{'' if fewest == 1 else 's'} at rank {rank}"
    remedy = "sign more samples, lower --rank, or hide every sample with --epsilon"
    if fewest <= rank:
        raise DataError(
            f"{has}: the signature would span the samples themselves, and whoever has it could test "
            f"exactly whether a sample is among them; {remedy}"
        )
    if fewest < ENOUGH_SAMPLES * rank:
        warnings.warn(
            f"{has}, fewer than {ENOUGH_SAMPLES} per direction: directions may resemble single samples; {remedy}",
            FewSamplesWarning,
            stacklevel=3,
        )


def _check_enough_of_classes(path: Path, classes: ClassSignatures | None, what: str) -> None:
    """Warn of classes with few samples, or groups of them."""
    enough = ENOUGH_SAMPLES * DIRECTIONS_OF_CLASS
    if classes is None or not (classes.counts < enough).any():
        return
    k, few = int(classes.counts.argmin()), int((classes.counts < enough).sum())
    warnings.warn(
        f"{path}: {few} of {len(classes)} classes have fewer than {enough} {what}, class {classes.names[k]} has "
        f"{classes.counts[k]}: their directions may resemble single samples; "
        f"leave them out with --minimum-count {enough}",
        FewSamplesWarning,
        stacklevel=3,
    )
