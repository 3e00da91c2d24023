"""Signatures and federations in words and tables."""

import json
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import out
from pacfl.signatures import federation as federations
from pacfl.signatures.federation import Federation
from pacfl.signatures.sigfile import SignatureFile


def print_federation(federation: Federation, folder: Path | None, as_json: bool) -> None:
    """Who is with whom, how far from the others, and why one may think so."""
    if as_json:
        print(json.dumps(federation.summary()))
        return
    clustering = federation.clustering
    scale = clustering.reference_scale
    table = Table(title=f"{len(federation.clusters())} clusters of {len(federation.names)} clients")
    for heading in ("cluster", "clients", "angle inside", "to the nearest other", "who"):
        table.add_column(heading, justify="left" if heading == "who" else "right")
    rows = zip(federation.clusters(), federations.widths(federation), strict=True)
    for k, (names, (inside, outside)) in enumerate(rows):
        who = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        outer = "-" if outside is None else f"{outside:.2f}°"
        table.add_row(str(k), str(len(names)), f"{inside:.2f}°", outer, escape(who))
    out.print(table)
    out.print(
        f"Threshold {clustering.threshold:.4g}° on {clustering.measure} angles, {clustering.linkage} linkage"
        + ("" if scale is None else f"; noise of a typical client {scale:.3g}°"),
        highlight=False,
    )
    out.print(clustering.evidence["reasons"], highlight=False)
    if folder is not None:
        out.print(f"Kept in {escape(str(folder))}", highlight=False)


def print_contents(signature: SignatureFile, title: str) -> None:
    """All that a signature file says."""
    contents = signature.contents()
    own = contents.pop("self_angles")
    privacy = contents.pop("privacy")
    if privacy is not None:
        contents["samples"] = "not told"
        contents |= {"private": f"epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g} for each sample"}
        contents["reduced by"] = privacy["reduction"]
    table = Table(title=escape(title), show_header=False)
    table.add_row("basis", f"{contents.pop('features')} features by {contents.pop('directions')} directions, float32")
    for key, value in contents.items():
        table.add_row(key.replace("_", " "), escape(str(value)))
    for measure, angles in own.items():
        floor = (
            f"{np.sqrt(np.mean(np.square(angles))):.3g}° over {len(angles)} comparisons"
            if angles
            else "none: too few samples"
        )
        table.add_row(f"noise floor, {measure}", floor)
    out.print(table)
    out.print("This is all the file says. No sample and no label is in it.", highlight=False)
