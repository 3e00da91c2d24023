"""Which chapter of Python's manual is a passage from? A data set of token ids, and a model that embeds them.

The text is in Python's own library (pydoc_data.topics), so nothing has to be downloaded.
"""

import re
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from torch import Tensor, nn

from pacfl import Dataset, from_arrays

CHAPTERS = ("specialnames", "compound", "types", "formatstrings", "string-methods", "debugger")
WORDS = 1000  # of the vocabulary; 0 stands for all others
LENGTH = 24  # words of a passage


def load(folder: Path) -> Dataset:  # noqa: ARG001 - pacfl passes the folder with data; this data set needs none
    """Passages (n, LENGTH) of token ids; every fifth is for testing."""
    texts = [re.findall(r"[a-z]+", topics[chapter].lower()) for chapter in CHAPTERS]
    common = Counter(word for text in texts for word in text).most_common(WORDS - 1)
    number = {word: i + 1 for i, (word, _) in enumerate(common)}
    x, y = [], []
    for chapter, text in enumerate(texts):
        ids = [number.get(word, 0) for word in text]
        passages = [ids[start : start + LENGTH] for start in range(0, len(ids) - LENGTH, LENGTH)]
        x += passages
        y += [chapter] * len(passages)
    test = np.arange(len(y)) % 5 == 0
    x, y = np.array(x), np.array(y)
    return from_arrays(x[~test], y[~test], x[test], y[test], name="passages")


class Classifier(nn.Module):
    """The mean of the words' embeddings, and a linear layer."""

    def __init__(self, shape: tuple[int, ...], n_classes: int) -> None:  # noqa: ARG002 - any length
        """Embed every word in 16 numbers."""
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.classifier = nn.Linear(16, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of passages (n, LENGTH) of token ids."""
        logits: Tensor = self.classifier(self.embedding(tokens).mean(dim=1))
        return logits
