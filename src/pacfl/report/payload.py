"""Plain data -> what the page's script reads: numbers in JSON, long arrays in base64."""

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.experiment.summary import in_percent
from pacfl.report.dendrogram import drawing, heat, neighbours
from pacfl.report.experiments import Experiment
from pacfl.report.summary import ClientClustering, Clients, RunSummary, SignatureFederation
from pacfl.subspace import Explanation
from pacfl.subspace.diagnosis import RECOMMENDED
from pacfl.subspace.explanation import as_picture, block_means

FINEST: Final = 65534  # steps between zero and the largest angle: below a hundredth of a degree
UNKNOWN: Final = 65535  # instead of a step: the two share no class
MOST_LISTED: Final = 20  # classes of an explanation
MOST_PIXELS: Final = 32  # of a side of its picture; means of blocks where an image has more


def payload(experiments: Sequence[Experiment], federations: Sequence[SignatureFederation] = ()) -> dict[str, Any]:
    """All that the page draws. A federation of signatures is an experiment without protocols."""
    return {"experiments": [*map(_experiment, experiments), *map(_federation, federations)]}


def _federation(federation: SignatureFederation) -> dict[str, Any]:
    run = {"row": 0, "seed": 0, "hash": federation.hash, "scores": {}}
    return {
        "title": federation.name,
        "protocols": [],
        "rows": [federation.name],
        "clients": {"0": _clients(federation.clients)},
        "runs": [{**run, "clustering": _clustering(federation.clustering)}],
        "reasons": federation.reasons,
        "diagnosis": _diagnosis(federation),
        "placements": list(federation.placements),
    }


def _diagnosis(federation: SignatureFederation) -> dict[str, Any]:
    """How clusters differ: in words, and what carries the difference for some pairs."""
    k = len(federation.clustering.clustering.numbers)
    return {
        "words": federation.diagnosis.words,
        "clusters": k,
        "all": len(federation.explanations) == k * (k - 1) // 2,
        "pairs": [_explanation(one) for one in federation.explanations],
    }


def _explanation(found: Explanation) -> dict[str, Any]:
    """What the page shows of an explanation: a limited number of classes, and a small picture of images."""
    picture = as_picture(found.contributions)
    return {
        "clusters": [found.a, found.b],
        "kind": found.kind,
        "recommendation": RECOMMENDED[found.kind],
        "size": found.size,
        "words": found.words,
        "classes": [[one.name, one.size] for one in found.classes[:MOST_LISTED]],
        "relabelled": [[one.a, one.b, one.size, one.left] for one in found.relabelled[:MOST_LISTED]],
        "shares": [[one.name, one.a, one.b] for one in found.shares[:MOST_LISTED]],
        "features": [[one.name, one.share, one.above_noise, one.factor] for one in found.features],
        "picture": None if picture is None else _picture(picture),
    }


def _picture(values: NDArray[Any]) -> dict[str, Any]:
    small = block_means(values, MOST_PIXELS)
    return packed(np.rint(255 * small / max(float(small.max()), 1e-300)), "uint8")


def _experiment(experiment: Experiment) -> dict[str, Any]:
    runs = [(i, run) for i, row in enumerate(experiment.rows) for run in row.runs]
    clients = {run.seed: run.clients for _, run in reversed(runs)}
    return {
        "title": experiment.title,
        "protocols": list(experiment.protocols),
        "metric": experiment.metric,
        "higherIsBetter": experiment.higher_is_better,
        "curves": [experiment.metric, *experiment.metrics, "loss"],
        "shares": [name for name in (experiment.metric, *experiment.metrics) if in_percent(name)],
        "rows": [" ".join(filter(None, (row.algorithm, row.training, row.progress))) for row in experiment.rows],
        "clients": {str(seed): _clients(of_seed) for seed, of_seed in sorted(clients.items())},
        "runs": [{"row": i, **_run(run)} for i, run in runs],
    }


def _clients(clients: Clients) -> dict[str, Any]:
    named = clients.names != tuple(f"client {c}" for c in range(len(clients.names)))
    true_clusters = list(dict.fromkeys(name for name in clients.true_cluster if name is not None))
    index = [-1 if name is None else true_clusters.index(name) for name in clients.true_cluster]
    return {
        "n": len(clients.names),
        "names": list(clients.names) if named else None,
        "train": packed(clients.train, "uint32"),
        "labels": packed(clients.labels, "uint32"),
        "trueClusters": true_clusters,
        "trueCluster": packed(np.array(index), "int32"),
    }


def _run(run: RunSummary) -> dict[str, Any]:
    protocols = list(run.scores)
    return {
        "hash": run.hash,
        "seed": run.seed,
        "algorithm": run.settings["algorithm"]["name"],
        "rounds": [evaluation.round for evaluation in run.evaluations],
        "megabits": [evaluation.megabits for evaluation in run.evaluations],
        "curves": {
            name: {p: [evaluation.means.get(name, {}).get(p) for evaluation in run.evaluations] for p in protocols}
            for name in (run.metric, *run.metrics, "loss")
        },
        "scores": {p: packed(values, "float32") for p, values in run.scores.items()},
        "worstTenth": dict(run.worst_tenth),
        "clusters": run.clusters,
        "ari": run.ari,
        "clusterOf": packed(run.cluster_of, "int32"),
        "sent": [run.bytes_down, run.bytes_up, run.megabits],
        "clustering": None if run.clustering is None else _clustering(run.clustering),
    }


def _clustering(of_clients: ClientClustering) -> dict[str, Any]:
    clustering, shown = of_clients.clustering, of_clients.compared
    tree = drawing(shown.merges)
    square = heat(shown.distances, tree.order)
    top = float(np.nanmax(square)) or 1.0
    near, distances = neighbours(shown.distances)
    return {
        "clients": packed(of_clients.clients, "int32"),
        "order": packed(tree.order, "int32"),
        "walls": tree.walls.tolist(),  # exact: they decide who is in which cluster
        "tops": tree.tops.tolist(),
        "feet": packed(tree.feet, "float32"),
        "starts": packed(tree.starts, "float32"),
        "heat": packed(np.where(np.isnan(square), UNKNOWN, np.rint(square / top * FINEST)), "uint16"),
        "perStep": top / FINEST,
        "near": packed(near, "int32"),
        "nearDistances": packed(distances, "float32"),
        "labels": packed(clustering.labels, "int32"),
        "what": shown.what,
        "linkage": clustering.linkage,
        "threshold": shown.threshold,
        "scale": shown.scale,
        "inNoise": shown.in_noise,
        "noise": shown.noise,
        "chance": shown.chance,
        "evidence": dict(clustering.evidence),
        "newcomers": list(of_clients.newcomers),
        "mergeSuggestions": [
            {"client": merge.newcomer, "clusters": list(merge.clusters), "distances": list(merge.distances)}
            for merge in of_clients.merge_suggestions
        ],
        "mergeUnit": of_clients.merge_unit,
    }


def packed(array: NDArray[Any], kind: str) -> dict[str, Any]:
    """An array as text that a page can unpack without parsing every number."""
    little = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<"))
    return {"kind": kind, "shape": list(little.shape), "bytes": base64.b64encode(little.tobytes()).decode()}
