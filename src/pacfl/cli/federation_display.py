"""Federations in words and tables: who is in which cluster and why, who came, left or drifted."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import out
from pacfl.cli.result_tables import value
from pacfl.experiment.federations import ServerFederation
from pacfl.signatures import Federation, Joined, Newcomer, Replaced
from pacfl.signatures.federation import count
from pacfl.subspace import Diagnosis

MOST_PAIRS: Final = 10  # of clusters whose difference is printed; --json has all
MOST_LISTED: Final = 40  # newcomers; --json has all


def print_federation(
    federation: Federation, folder: Path | None, as_json: bool, more: Mapping[str, object] = MappingProxyType({})
) -> None:
    """The clusters, how far apart they are, and the evidence for them."""
    if as_json:
        print(json.dumps({"kind": "clusters", **federation.summary(), **more}))
        return
    evidence = federation.clustering.evidence
    out.print(f"[bold]{escape(federation.answer)}[/bold]", highlight=False)
    n_clusters, n = len(federation.clustering.numbers), len(federation.names)
    table = Table(title=f"{count(n_clusters, 'cluster')} of {count(n, 'client')}")
    headings, *rows = federation.table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "names" else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)
    out.print(federation.cut(), highlight=False)
    reasons, because = federation.reasons(), evidence.get("not_guaranteed_because")
    out.print(reasons, highlight=False)
    if because and because.lower() not in reasons.lower():
        out.print(f"Not guaranteed: {because}", highlight=False)
    _print_without_cluster(federation.not_judged())
    for name, newcomer in list(federation.newcomers.items())[-MOST_LISTED:]:
        _print_newcomer(name, newcomer)
    _print_suggestions(federation.merge_suggestions())
    for name, drift in federation.drifted.items():
        out.print(f"{escape(name)} {escape(drift.words())}; {drift.fits_now()}", highlight=False)
    print_diagnosis(federation.diagnosis)
    if folder is not None:
        out.print(f"Stored in {escape(str(folder))}", highlight=False)


def print_server(found: ServerFederation, as_json: bool) -> None:
    """The federation of a server: how far it is, its clusters, and the evidence if there are signatures."""
    summary = found.summary()
    if as_json:
        print(json.dumps(summary))
        return
    rounds, score = summary["rounds"], value(summary["score"], summary["metric"])
    out.print(
        f"In {found.folder}: {summary['algorithm']}, {rounds['done']} of {rounds['planned']} rounds, "
        f"{summary['metric']} of the models as received: {score}",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
    if found.signatures is not None:
        print_federation(found.signatures, None, as_json=False)
        return
    table = Table("cluster", "sites", "names")
    for k, names in enumerate(found.clusters()):
        if names:
            table.add_row(str(k), str(len(names)), escape(", ".join(names)))
    out.print(table)


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """The kind of difference, its size, and what to do; for a few clusters, also how each two differ."""
    out.print(f"[bold]Diagnosis:[/bold] {escape(diagnosis.words)}", highlight=False)
    if 1 < len(diagnosis.pairs) <= MOST_PAIRS:
        for pair in diagnosis.pairs:
            out.print(f"  {escape(' '.join(one.words for one in pair.differences))}", highlight=False)


def print_left(federation: Federation, names: Sequence[str], folder: Path, as_json: bool) -> None:
    """The federation without clients that left."""
    if as_json:
        print(json.dumps({"kind": "clusters", "left": list(names), **federation.summary()}))
        return
    out.print(f"{escape(', '.join(names))} left. {escape(federation.answer)}", highlight=False)
    print_diagnosis(federation.diagnosis)
    out.print(f"{federation.size()}, stored in {escape(str(folder))}", highlight=False)


def print_replaced(replaced: Replaced, folder: Path, as_json: bool) -> None:
    """Whether a client drifted, and where it is now."""
    if as_json:
        print(json.dumps({"kind": "clusters", **replaced.summary()}))
        return
    name, drift = escape(replaced.name), replaced.drift
    said = "this is the signature that it had" if replaced.same else drift.words()
    out.print(f"{name}: {escape(said)}", highlight=False)
    if replaced.cluster != replaced.before:
        came = "was in no cluster" if replaced.before < 0 else f"moved from cluster {replaced.before}"
        out.print(f"{name} {came}, and is in cluster {replaced.cluster} now", highlight=False)
    elif replaced.name in replaced.federation.drifted:
        remedy = "; --move moves it there" if drift.fits >= 0 else ""
        out.print(f"{name} stays in cluster {replaced.cluster}; {drift.fits_now()}{remedy}", highlight=False)
    elif drift.drifted:
        out.print(f"{name} stays in cluster {replaced.cluster}, which still fits it best", highlight=False)
    elif replaced.cluster >= 0:
        out.print(f"{name} stays in cluster {replaced.cluster}", highlight=False)
    print_diagnosis(replaced.federation.diagnosis)
    out.print(f"{replaced.federation.size()}, stored in {escape(str(folder))}", highlight=False)


def print_joined(
    joined: Joined, folder: Path, as_json: bool, more: Mapping[str, object] = MappingProxyType({})
) -> None:
    """The newcomers' clusters."""
    if as_json:
        print(json.dumps({"kind": "clusters", **joined.summary(), **more}))
        return
    federation = joined.federation
    for name in joined.placed:
        _print_newcomer(name, federation.newcomers[name])
    _print_without_cluster({n: why for n, why in federation.not_judged().items() if n in joined.placed})
    _print_suggestions({n: k for n, k in federation.merge_suggestions().items() if n in joined.placed})
    print_diagnosis(federation.diagnosis)
    out.print(f"{federation.size()}, stored in {escape(str(folder))}", highlight=False)


def _print_newcomer(name: str, newcomer: Newcomer) -> None:
    """Its cluster, how far from it and from the next one it is, and what speaks against it."""
    if newcomer.cluster >= 0:
        out.print(f"{escape(name)} {newcomer.words()}", highlight=False)
    for warning in newcomer.warnings():
        out.print(f"[bold]warning:[/bold] {escape(name)}: {escape(warning)}", highlight=False)


def _print_suggestions(merges: Mapping[str, tuple[int, int]]) -> None:
    for name, (a, b) in merges.items():
        out.print(f"suggestion: {escape(name)} is close to clusters {a} and {b}; merge them?", highlight=False)


def _print_without_cluster(why: Mapping[str, str]) -> None:
    """Clients in no cluster, and what would help them."""
    for name, reason in why.items():
        out.print(f"{escape(name)} cannot be judged and is in no cluster: {reason}", highlight=False)
