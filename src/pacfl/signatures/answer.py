"""What a federation is, in one sentence: its groups, how far apart they are, and what differs."""

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from pacfl.signatures.explaining import explanations, some_of
from pacfl.subspace.diagnosis import cluster_pairs, evidence_on
from pacfl.subspace.explanation import what_differs

if TYPE_CHECKING:
    from pacfl.signatures.federation import Federation

MOST_GROUPS: Final = 4  # that are listed
MOST_NAMES: Final = 6  # of each
MOST_PAIRS: Final = 15  # of clusters that are all explained; of more, some with their nearest other
MOST_CARRIERS: Final = 2  # of differences, in words
WORDS: Final = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


def answer(federation: "Federation") -> str:
    """As "Two groups: A, B and C, D, 12 times the sampling noise apart; what differs: age"."""
    left = list(federation.not_judged())
    none = f" In no group: {some_of(left, MOST_NAMES)}, which cannot be judged." if left else ""
    groups = [names for names in federation.clusters() if names]
    if not groups:
        return f"No group: none of the {len(left)} clients can be judged."
    if len(groups) == 1:
        return f"One group: {some_of(groups[0], MOST_NAMES)}{_inside(federation, len(groups[0]))}.{none}"
    number = WORDS[len(groups)] if len(groups) < len(WORDS) else str(len(groups))
    listed = ""
    if len(groups) <= MOST_GROUPS:
        *others, last = (some_of(names, MOST_NAMES) for names in groups)
        listed = f": {'; '.join(others)} and {last}" if len(others) > 1 else f": {others[0]} and {last}"
    else:
        fewest, most = min(map(len, groups)), max(map(len, groups))
        many = f"{fewest} to {most} clients" if fewest < most else f"{most} client{'' if most == 1 else 's'} each"
        listed = f" of {many}"
    return f"{number} groups{listed}, {_apart(federation, len(groups))}.{none}"


def _inside(federation: "Federation", n: int) -> str:
    """How the clients of the only group differ."""
    if n < 2:
        return ""
    shares = [one for one in federation.diagnosis.differences if one.kind == "labels"]
    if shares:
        return f", whose class shares differ by {_times(shares[0].size)}"
    return ", which differ by no more than noise"


def _apart(federation: "Federation", n_groups: int) -> str:
    sizes = [pair.size for pair in federation.diagnosis.pairs if pair.kind != "none"]
    if not sizes:
        return "which differ by no more than noise"
    least = "" if n_groups == 2 else "at least "
    apart = f"{least}{_times(min(sizes))} apart"
    pairs = cluster_pairs(evidence_on(federation.clients(), federation.clustering), MOST_PAIRS)
    carriers = Counter(map(what_differs, explanations(federation, islice(pairs, MOST_PAIRS))))
    named = [words for words, _ in carriers.most_common() if words][:MOST_CARRIERS]
    return f"{apart}; what differs: {'; '.join(named)}" if named else apart


def _times(size: float) -> str:
    return f"{size:.{0 if size >= 10 else 1}f} times the sampling noise"
