"""Sentiment of sentences from four sources, rated by people: the sdist of vaderSentiment."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pacfl.data.readers.collected import Collected, every_fifth
from pacfl.data.readers.packages import member, unpacked
from pacfl.data.readers.search import reading
from pacfl.features.encoders import ngrams

FILES: Final = ("vader[sS]entiment-3*.tar.gz",)
COLUMNS: Final = 1024  # few enough for models without sparse layers
SOURCES: Final = {
    "Amazon": "amazonReviewSnippets_GroundTruth.txt",
    "films": "movieReviewSnippets_GroundTruth.txt",
    "New York Times": "nytEditorialSnippets_GroundTruth.txt",
    "tweets": "tweets_GroundTruth.txt",
}


def collected(paths: Sequence[Path]) -> Collected:
    """Whether a sentence is positive, from hashed n-grams; clients are sources.

    Sentences of one review or article are a group.
    """
    archive = member(paths[0], "hutto_ICWSM_2014.tar.gz")
    texts, positive, client, group = [], [], [], []
    with reading(paths[0], "rated sentences"):
        files = unpacked(archive, tuple(SOURCES.values()))
        for source, name in SOURCES.items():
            for line in files[name].decode("utf-8", "replace").splitlines():
                number, rating, text = line.split("\t", 2)
                texts.append(text)
                positive.append(float(rating) > 0)
                client.append(source)
                group.append(f"{source} {number.split('_')[0]}")
    whose, groups = np.array(client), np.unique(group, return_inverse=True)[1]
    y = np.array(positive).astype(np.int64)
    return Collected(partial(features, texts), y, whose, every_fifth(whose, groups), groups)


def features(texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, 1024): the columns of n-grams folded onto fewer, every text of length 1."""
    hashed = ngrams(np.array(texts, dtype=object))
    folded = csr_array((hashed.data, hashed.indices % COLUMNS, hashed.indptr), shape=(len(texts), COLUMNS))
    dense = folded.toarray().astype(np.float32)
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    return np.asarray(dense / np.where(lengths > 0, lengths, 1), dtype=np.float32)
