"""Why clients that were compared class by class are in these clusters: in numbers, and in a few sentences."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from pacfl.subspace.class_clustering import ClassClusters
from pacfl.subspace.clustering import Clustering
from pacfl.subspace.guarantee import MOST_EXCESS
from pacfl.subspace.hierarchy import Labels
from pacfl.subspace.threshold import Evidence, Finding
from pacfl.subspace.weighted import GROUP

DISSOLVED: Final = 0.5  # below which Hennig calls a cluster dissolved


def class_evidence(
    classes: ClassClusters,
    labels: Labels,
    groups: Labels,
    not_judged: Mapping[str, str],
    n_clusters: int | None,
    caveats: Sequence[str],
    inputs: Clustering | None,
    error_rate: float,
) -> dict[str, Any]:
    """Why these clusters, ready for JSON.

    groups (n,): of clients that chains of compared pairs connect. not_judged: clients in no cluster, and why. inputs:
    clusters of the same clients by inputs, where these decide beside classes.
    """
    pairs = compared(classes, groups, inputs is not None)
    found = int(labels.max(initial=-1)) + 1
    n_groups = len(np.unique(groups[(labels >= 0) & (groups >= 0)]))
    reasons = _reasons(classes, found, pairs, len(not_judged), n_groups, n_clusters, error_rate)
    doubts = (
        ["the number of clusters was given"] if n_clusters else [*caveats, *_doubts(classes, n_groups, pairs, inputs)]
    )
    doubt = "; ".join(dict.fromkeys(doubts)) or None
    if n_clusters is not None:
        return {
            "finding": "given",
            "reasons": reasons,
            "guaranteed": False,
            "not_guaranteed_because": doubt,
            "compare": "classes",
            "pairs": pairs,
            "not_judged": dict(not_judged),
        }
    stable = classes.reproducibility is None or classes.reproducibility >= DISSOLVED
    finding: Finding = "distinct" if stable else "gradual"
    if found == 1:
        finding = "homogeneous"
    elif found == 0 or (found == n_groups and inputs is None):  # nothing was compared, or none of what is apart
        finding = "undetermined"
    evidence = Evidence(
        finding=finding,
        reasons=reasons if doubt is None else f"{reasons} This error rate is not guaranteed: {doubt}.",
        error_rate=error_rate,
        floor=classes.reference,
        floors_from="clients",
        guaranteed=doubt is None,
        not_guaranteed_because=doubt,
        null_height=classes.null_height,
        null_limits=tuple(float(limit) for limit in classes.limits if np.isfinite(limit)),
        heights=classes.heights,
        separation=classes.separation,
        reproducibility=classes.reproducibility,
        cuts=(),
        compare="both" if pairs["inputs"] else "classes",
        pairs=pairs,
        not_judged=dict(not_judged),
    )
    content: dict[str, Any] = json.loads(json.dumps(asdict(evidence)))
    return content


def _doubts(classes: ClassClusters, n_groups: int, pairs: Mapping[str, int], inputs: Clustering | None) -> list[str]:
    """What speaks against the error rate in this federation."""
    doubts = []
    within = float(np.sqrt(classes.calibration))
    if within > 1 + MOST_EXCESS:
        doubts.append(f"classes within clusters differ by {within:.2f} times the noise, which may be too low")
    if n_groups > 1 and inputs is None:
        doubts.append(f"nothing was compared between {n_groups} groups of clients, which have no class in common")
    if pairs["inputs"] and inputs is not None and inputs.evidence["not_guaranteed_because"]:
        doubts.append(f"by inputs: {inputs.evidence['not_guaranteed_because']}")
    return doubts


def compared(classes: ClassClusters, groups: Labels, also_inputs: bool) -> dict[str, int]:
    """How many pairs of clients were compared by classes, by inputs, and by neither."""
    n = len(groups)
    upper = np.triu(np.ones((n, n), dtype=bool), 1)
    by_classes = int(((classes.pairs.weights > 0) & upper).sum())
    apart = (np.not_equal.outer(groups, groups) | (groups < 0)[:, None] | (groups < 0)) & upper
    silent = (groups >= 0) & (classes.labels < 0)  # labelled, and without evidence: inputs are not asked
    apart[silent], apart[:, silent] = False, False
    by_inputs = int(apart.sum()) if also_inputs else 0
    return {"classes": by_classes, "inputs": by_inputs, "none": n * (n - 1) // 2 - by_classes - by_inputs}


def _reasons(
    classes: ClassClusters,
    found: int,
    pairs: Mapping[str, int],
    not_judged: int,
    n_groups: int,
    given: int | None,
    error_rate: float,
) -> str:
    """The evidence in a few sentences."""
    compared = f"{pairs['classes']} of {sum(pairs.values())} pairs of clients were compared class by class"
    if pairs["inputs"]:
        compared += f", {pairs['inputs']} that no chain of compared classes connects by their inputs"
    if pairs["none"]:
        compared += f"; {pairs['none']} share no class that can be compared and carry no evidence"
    many = "One cluster" if found == 1 else f"{found} clusters"
    left = "" if not not_judged else f" {not_judged} cannot be judged and joined nobody."
    if given is not None:
        return f"The number of clusters was given. {compared}.{left}"
    limits = classes.limits[np.isfinite(classes.limits)]
    by_chance, outcome, stability = "", "", ""
    if len(limits):
        some, first = (
            (f"Groups of {GROUP} clients", limits[GROUP.bit_length() - 1]) if classes.weakly else ("Clients", limits[0])
        )
        by_chance = (
            f" {some} of one distribution would differ by up to {first:.2f} times the noise, large groups of "
            f"them by {limits[-1]:.2f}, in all but {100 * error_rate:g}% of cases"
        )
        outcome = ", and all do." if found <= 1 else "."
    if found > 1 and classes.separation is not None:
        outcome = f"; the two most similar clusters exceed what chance explains {classes.separation:.2f} times."
    if found > 1 and classes.reproducibility is not None:
        stability = (
            " Random halves of the clients reproduce each cluster with a mean overlap of "
            f"{classes.reproducibility:.1%} or more."
        )
    elif found > 1:
        stability = " There are too few clients to see whether halves of them give the same clusters."
    joint = f" {n_groups} groups of clients have no class in common that can be compared." if n_groups > 1 else ""
    return f"{many}: {compared}.{joint}{by_chance}{outcome}{stability}{left}"
