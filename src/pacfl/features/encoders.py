"""Encoders: samples of any kind -> features whose angles mean something.

Angles compare the directions in which samples lie and vary. Raw signals that are shifted in time, and texts, have no
direction of their own; their spectra and n-grams have. An encoder treats every sample on its own: it can be agreed on
before anybody sees data, the noise that halves of the samples show stays right, and so does privacy.
"""

import hashlib
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pacfl import plugins
from pacfl.subspace.sparse import as_dense, is_sparse, lengths_of_sparse, scaled

Array = NDArray[Any]
Encoder = Callable[[Any], Any]  # (n, ...) numbers, or (n,) texts -> (n, ...) numbers, or a sparse matrix

VERSIONS: Final = {"spectrum": 2, "ngrams": 1, "standardise": 1}  # another one where the numbers change that they give
COLUMNS: Final = 1 << 15  # of n-grams: 384 KB in a signature of rank 3
LENGTHS: Final = (3, 4, 5)  # characters of an n-gram
WORDS: Final = re.compile(r"\w+|[^\w\s]")


def spectrum(x: Array) -> Array:
    """Signals (n, steps) or (n, steps, channels) -> the root of each frequency's share of the power of its channel.

    The mean of a window is removed first, and a Hann taper hides its ends. Shares are a distribution, and the angle
    between the roots of two distributions is a distance between them (Bhattacharyya, 1943). Offset and gain of a
    channel do not count, and faint frequencies count little; a silent channel is 0. (n, steps // 2 · channels).
    """
    shapes = _standardised(_signals(x, "spectrum", fewest=4))
    taper = np.hanning(shapes.shape[1] + 2)[1:-1, None]
    amplitudes = np.abs(np.fft.rfft(shapes * taper, axis=1)[:, 1:])
    lengths = np.linalg.norm(amplitudes, axis=1, keepdims=True)
    return np.asarray((amplitudes / np.where(lengths > 0, lengths, 1.0)).reshape(len(x), -1))


def standardise(x: Array) -> Array:
    """Signals with mean 0 and standard deviation 1 in every channel of every sample; silent channels are 0.

    What is left of (n, steps) or (n, steps, channels), or of images (n, h, w, channels), is its shape.
    """
    return _standardised(_signals(x, "standardise", fewest=2)).reshape(x.shape)


def ngrams(x: Array) -> csr_array:
    """Texts (n,) -> counts of their character n-grams in hashed columns, every text of length 1: (n, 2¹⁵), sparse.

    Words are in lower case; n-grams of 3 to 5 characters end at a word, whose spaces count. No vocabulary is shared:
    the checksum of an n-gram is its column, and its sign, so that those in one column cancel out on average.
    """
    if x.ndim != 1 or x.dtype.kind not in "UO":
        raise ValueError(
            f"ngrams encodes texts, got {_what(x)}; give .txt, .jsonl, a folder of .txt files, or a column with --text"
        )
    found = [_hashed(str(text)) for text in x]
    ends = np.cumsum([0, *(len(columns) for columns, _ in found)])
    columns, signs = (np.concatenate([part[i] for part in found]) for i in (0, 1))
    counts = csr_array((signs, columns, ends), shape=(len(x), COLUMNS))
    counts.sum_duplicates()
    lengths = lengths_of_sparse(counts)
    return scaled(counts, 1 / np.where(lengths > 0, lengths, 1.0))


BUILT_IN: Final[Mapping[str, Encoder]] = {"spectrum": spectrum, "ngrams": ngrams, "standardise": standardise}


def encode(name: str, x: Array) -> Any:
    """Samples (n, ...) in the feature space of an encoder: a built-in one, or package.module:function."""
    encoder = _find(name)
    if name in BUILT_IN:
        return encoder(x)
    made, first = _called(name, encoder, x), _called(name, encoder, x[:1])
    n = x.shape[0]
    if made.shape[0] != n or made.dtype.kind not in "uifb" or made.ndim < 2:
        raise ValueError(
            f"encoder {name!r} made an array of shape {made.shape} and dtype {made.dtype} of {n} samples; "
            "it must return one row of numbers for each"
        )
    if made[:1].shape != first.shape or not np.allclose(as_dense(made[:1]), as_dense(first), rtol=1e-3, atol=1e-5):
        raise ValueError(
            f"encoder {name!r} encodes a sample differently when it comes alone; it must treat every sample on its "
            "own, without statistics of the others and without chance"
        )
    return made


def feature_names(name: str, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    """What the features of a built-in encoder are, for samples of this shape; None where they have no names."""
    if name != "spectrum":
        return None
    channels = shape[2] if len(shape) == 3 else 1
    cycles = range(1, shape[1] // 2 + 1)
    if channels == 1:
        return tuple(f"{k} cycles" for k in cycles)
    return tuple(f"channel {c}, {k} cycles" for k in cycles for c in range(channels))


def digest(name: str) -> str:
    """SHA-256 of what an encoder does, in hexadecimal digits: signatures of equal ones can be compared.

    Of a built-in one: its name and version. Of another: its import path, the code of its package, and the files that
    its attribute `files` names, as the weights of a network.
    """
    encoder = _find(name)
    if name in BUILT_IN:
        return _built_in_digest(name)
    path = plugins.import_path("encoders", name)
    assert path is not None
    parts = [path, plugins.source_digest(path.split(":")[0].split(".")[0])]
    parts += [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in getattr(encoder, "files", ())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def name_of(sha256: str) -> str | None:
    """The built-in encoder with this digest."""
    return next((name for name in BUILT_IN if _built_in_digest(name) == sha256), None)


def in_words(sha256: str | None) -> str:
    """An encoder that a file names by its digest only."""
    return "none" if sha256 is None else name_of(sha256) or f"not built in, SHA-256 {sha256[:12]}..."


def _built_in_digest(name: str) -> str:
    return hashlib.sha256(f"pacfl {name} {VERSIONS[name]}".encode()).hexdigest()


def _find(name: str) -> Encoder:
    plugins.search_in(Path.cwd())
    found = plugins.find("encoders", name, BUILT_IN)
    if not callable(found):
        raise ValueError(f"encoder {name!r} is {type(found).__name__}, not a function; name a function of samples")
    return found  # type: ignore[no-any-return]  # what the import path leads to


def _called(name: str, encoder: Encoder, x: Array) -> Any:
    try:
        made = encoder(x)
    except Exception as error:  # the function may do anything
        raise ValueError(f"encoder {name!r} fails: {type(error).__name__}: {error}") from error
    return made.tocsr() if is_sparse(made) else np.asarray(made)


def _standardised(signals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every channel of every sample (n, steps, channels) with mean 0 and standard deviation 1, or 0 if it is silent."""
    centred = signals - signals.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    negligible = 1e-12 * np.abs(signals).max(axis=1, keepdims=True)
    return np.asarray(np.where(deviation > negligible, centred / np.maximum(deviation, 1e-300), 0.0))


def _signals(x: Array, encoder: str, fewest: int) -> NDArray[np.float64]:
    """Samples (n, steps, channels) of numbers."""
    if is_sparse(x) or x.dtype.kind not in "uifb" or x.ndim < 2:
        raise ValueError(f"{encoder} encodes signals (n, steps) or (n, steps, channels), got {_what(x)}")
    if x.ndim > 3 and encoder == "spectrum":
        raise ValueError(f"spectrum encodes signals (n, steps) or (n, steps, channels), got shape {x.shape}")
    signals = x.astype(np.float64).reshape(len(x), -1, x.shape[-1] if x.ndim > 2 else 1)
    if signals.shape[1] < fewest:
        raise ValueError(
            f"{encoder} needs at least {fewest} steps in a sample, got shape {x.shape}; the axes are samples, steps, "
            "channels"
        )
    return signals


def _what(x: Any) -> str:
    if is_sparse(x) or x.dtype.kind in "uifb":
        return f"numbers of shape {x.shape}"
    return "texts" if x.dtype.kind in "UO" else f"dtype {x.dtype}"


def _hashed(text: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Columns and signs of all n-grams of a text."""
    words = [_of_word(word) for word in WORDS.findall(unicodedata.normalize("NFKC", text).casefold())]
    if not words:
        return np.empty(0, np.int64), np.empty(0)
    hashes = np.concatenate(words)
    return hashes % COLUMNS, np.where(hashes >> 31, -1.0, 1.0)


@cache
def _of_word(word: str) -> NDArray[np.int64]:
    """Checksums of the n-grams of a word, 32 bits each."""
    padded = f" {word} "
    grams = (padded[i : i + n] for n in LENGTHS for i in range(len(padded) - n + 1))
    return np.array([zlib.crc32(gram.encode("utf-8", "surrogatepass")) for gram in grams], np.int64)
