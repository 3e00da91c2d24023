"""Plain data -> what the page's script reads: numbers in JSON, long arrays in base64."""

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.report.dendrogram import drawing, heat, neighbours
from pacfl.report.experiments import Experiment
from pacfl.report.facts import Alike, Clients, Grouped, Played

FINEST: Final = 65535  # steps between no angle and the largest: below a hundredth of a degree


def payload(experiments: Sequence[Experiment], federations: Sequence[Alike] = ()) -> dict[str, Any]:
    """All that the page draws. A federation that learnt nothing is an experiment without protocols."""
    return {"experiments": [*map(_experiment, experiments), *map(_federation, federations)]}


def _federation(alike: Alike) -> dict[str, Any]:
    return {
        "title": alike.name,
        "protocols": [],
        "rows": [alike.name],
        "people": {"0": _people(alike.clients)},
        "runs": [{"row": 0, "seed": 0, "hash": alike.hash, "accuracy": {}, "clustering": _clustering(alike.grouped)}],
    }


def _experiment(experiment: Experiment) -> dict[str, Any]:
    runs = [(i, run) for i, row in enumerate(experiment.rows) for run in row.runs]
    people = {run.seed: run.clients for _, run in reversed(runs)}
    return {
        "title": experiment.title,
        "protocols": list(experiment.protocols),
        "rows": [f"{row.algorithm} {row.learning}".strip() for row in experiment.rows],
        "people": {str(seed): _people(clients) for seed, clients in sorted(people.items())},
        "runs": [{"row": i, **_run(run)} for i, run in runs],
    }


def _people(clients: Clients) -> dict[str, Any]:
    named = clients.names != tuple(f"client {c}" for c in range(len(clients.names)))
    groups = list(dict.fromkeys(group for group in clients.groups if group is not None))
    index = [-1 if group is None else groups.index(group) for group in clients.groups]
    return {
        "n": len(clients.names),
        "names": list(clients.names) if named else None,
        "train": packed(clients.train, "uint32"),
        "labels": packed(clients.labels, "uint32"),
        "groups": groups,
        "group": packed(np.array(index), "int32"),
    }


def _run(run: Played) -> dict[str, Any]:
    protocols = list(run.accuracy)
    return {
        "hash": run.hash,
        "seed": run.seed,
        "algorithm": run.settings["algorithm"]["name"],
        "rounds": [judgement.round for judgement in run.judgements],
        "megabits": [judgement.megabits for judgement in run.judgements],
        "curves": {
            what: {p: [getattr(judgement, what).get(p) for judgement in run.judgements] for p in protocols}
            for what in ("accuracy", "loss")
        },
        "accuracy": {p: packed(values, "float32") for p, values in run.accuracy.items()},
        "worst_tenth": dict(run.worst_tenth),
        "clusters": run.clusters,
        "ari": run.ari,
        "cluster_of": packed(run.cluster_of, "int32"),
        "sent": [run.bytes_down, run.bytes_up, run.megabits],
        "clustering": None if run.grouped is None else _clustering(run.grouped),
    }


def _clustering(grouped: Grouped) -> dict[str, Any]:
    drawn = drawing(grouped.merges)
    square = heat(grouped.proximity, drawn.order)
    top = float(square.max()) or 1.0
    near, angles = neighbours(grouped.proximity)
    return {
        "clients": packed(grouped.clients, "int32"),
        "order": packed(drawn.order, "int32"),
        "walls": drawn.walls.tolist(),  # exact: they decide which cluster is whose
        "tops": drawn.tops.tolist(),
        "feet": packed(drawn.feet, "float32"),
        "starts": packed(drawn.starts, "float32"),
        "heat": packed(np.rint(square / top * FINEST), "uint16"),
        "degrees_per_step": top / FINEST,
        "near": packed(near, "int32"),
        "near_angles": packed(angles, "float32"),
        "labels": packed(grouped.labels, "int32"),
        "measure": grouped.measure,
        "linkage": grouped.linkage,
        "threshold": grouped.threshold,
        "unit": grouped.reference_scale,
        "evidence": dict(grouped.evidence),
        "newcomers": list(grouped.newcomers),
        "bridges": [
            {"client": bridge.newcomer, "clusters": list(bridge.clusters), "distances": list(bridge.distances)}
            for bridge in grouped.bridges
        ],
    }


def packed(array: NDArray[Any], kind: str) -> dict[str, Any]:
    """An array as text that a page can unpack without reading every number."""
    little = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<"))
    return {"kind": kind, "shape": list(little.shape), "bytes": base64.b64encode(little.tobytes()).decode()}
