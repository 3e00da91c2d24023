"""Text as numbers without a vocabulary: words and endings, hashed into columns."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

COLUMNS: Final = 1024


def hashed_words(texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, 1024): words and pairs of words, each text of length 1."""
    counts = _hashed(_words(text) for text in texts)
    norms = np.linalg.norm(counts, axis=1, keepdims=True)
    return (counts / np.where(norms > 0, norms, 1)).astype(np.float32)


def hashed_endings(texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, 1024): the last letter, the last two, and so on, each in its column."""
    return _hashed([text[-n:] for n in range(1, len(text) + 1)] for text in texts)


def _words(text: str) -> list[str]:
    words = re.findall(r"[a-z']+|[:;=][-']?[()dp]|[!?]", text.lower())
    return [*words, *(f"{a} {b}" for a, b in pairwise(words))]


def _hashed(grams: Iterable[Iterable[str]]) -> NDArray[np.float32]:
    rows = [[crc32(gram.encode()) % COLUMNS for gram in of_text] for of_text in grams]
    counts = np.zeros((len(rows), COLUMNS), dtype=np.float32)
    for own, columns in zip(counts, rows, strict=True):
        np.add.at(own, columns, 1)
    return counts
