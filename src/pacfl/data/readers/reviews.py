"""Sentiment of sentences from four sources, rated by people: the sdist of vaderSentiment."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from pacfl.data.readers.collected import Collected, every_fifth
from pacfl.data.readers.ngrams import hashed_words
from pacfl.data.readers.packages import member, unpacked
from pacfl.data.readers.search import reading

FILES: Final = ("vader[sS]entiment-3*.tar.gz",)
SOURCES: Final = {
    "Amazon": "amazonReviewSnippets_GroundTruth.txt",
    "films": "movieReviewSnippets_GroundTruth.txt",
    "New York Times": "nytEditorialSnippets_GroundTruth.txt",
    "tweets": "tweets_GroundTruth.txt",
}


def collected(paths: Sequence[Path]) -> Collected:
    """Whether a sentence is positive, from hashed words and pairs of words; clients are sources.

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
    return Collected(partial(hashed_words, texts), y, whose, every_fifth(whose, groups), groups)
