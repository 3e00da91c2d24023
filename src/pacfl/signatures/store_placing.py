"""How far the clustering of a store has come, in a file, so that it resumes after a kill."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pacfl.files import replaced
from pacfl.subspace import Clustering, Measure
from pacfl.subspace.landmarks import Placing


def store_placing(path: Path, key: str, placing: Placing) -> None:
    """Write how far a clustering has come."""
    first = placing.first
    arrays: dict[str, Any] = {
        "key": np.array(key),
        "sample": placing.sample,
        "labels": placing.labels.astype(np.int32),
        "distances": placing.distances,
        "members": np.concatenate([np.empty(0, dtype=np.intp), *placing.members]),
        "sizes": np.array([len(members) for members in placing.members], dtype=np.intp),
        "new": np.array(placing.new, dtype=np.intp),
        "numbers": np.array([placing.limit, placing.row, placing.rounds, first.threshold, first.reference_scale]),
        "proximity": first.proximity,
        "noise_scale": first.noise_scale,
        "first_labels": first.labels,
        "evidence": np.array(json.dumps(first.evidence)),
    }
    with replaced(path, durable=False) as file:
        np.savez(file, **arrays)


def stored_placing(path: Path, key: str, measure: Measure) -> Placing | None:
    """How far a clustering of the same store had come; None if there is none."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            if str(stored["key"]) != key:
                return None
            limit, row, rounds, threshold, reference = stored["numbers"].tolist()
            first = Clustering(
                measure,
                "average",
                stored["proximity"],
                stored["noise_scale"],
                reference,
                threshold,
                stored["first_labels"],
                json.loads(str(stored["evidence"])),
            )
            members = (
                tuple(np.split(stored["members"], np.cumsum(stored["sizes"])[:-1])) if len(stored["sizes"]) else ()
            )
            labels, new = stored["labels"].astype(np.intp), tuple(stored["new"].tolist())
            return Placing(
                first, stored["sample"], limit, labels, stored["distances"], members, new, int(row), int(rounds)
            )
    except (ValueError, KeyError, OSError, zipfile.BadZipFile):
        return None  # it is not there, or was damaged: clustering begins anew
