"""What a federation folder stores of classes: the signatures of each client's, and how they were compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import squareform

from pacfl.signatures.class_arrays import restored, shapes, stored
from pacfl.subspace import ClassSignatures, Clustering
from pacfl.subspace.class_clustering import DIRECTIONS, ClassClusters
from pacfl.subspace.classes import RANK
from pacfl.subspace.clustering import InputsCut
from pacfl.subspace.pairs import ClassNoise, ClassPairs

UNLABELLED: Final = -1  # instead of a number of classes
SCALARS: Final = ("null_height", "heights", "separation", "reproducibility", "calibration", "directions", "weakly")

State = Mapping[str, NDArray[Any]]


def settings_of(clustering: Clustering) -> dict[str, Any]:
    """The part for JSON."""
    classes, inputs = clustering.classes, clustering.inputs
    of_classes = None
    if classes is not None:
        of_classes = {**{key: getattr(classes, key) for key in SCALARS}, "names": list(classes.noise.names)}
    of_inputs = None if inputs is None else {"threshold": inputs.threshold, "reference_scale": inputs.reference_scale}
    return {"classes": of_classes, "inputs": of_inputs}


def arrays_of(made: Sequence[ClassSignatures | None], clustering: Clustering) -> dict[str, Any]:
    """The part for arrays; those of nothing are left out."""
    arrays: dict[str, Any] = {}
    labelled = [own for own in made if own is not None]
    if labelled:
        parts = [stored(own) for own in labelled]
        arrays["classes_of"] = np.array([UNLABELLED if own is None else len(own) for own in made])
        arrays["class_names"] = np.array([name for own in labelled for name in own.names], dtype=np.str_)
        arrays["class_counts"] = np.concatenate([own.counts for own in labelled])
        arrays["class_directions"] = np.concatenate([directions for directions, _ in parts], axis=1)
        arrays["class_angles"] = np.concatenate([angles for _, angles in parts], axis=1)
    if clustering.classes is not None:
        classes = clustering.classes
        arrays["class_pairs"] = np.stack([squareform(part, checks=False) for part in classes.pairs.parts])
        arrays["class_variances"], arrays["class_typical"] = classes.noise.variances, classes.noise.typical
        arrays["class_reference"], arrays["class_limits"] = classes.noise.reference, classes.limits
        arrays["class_excess"], arrays["class_spread"] = classes.noise.excess, classes.noise.spread
    if clustering.inputs is not None:
        arrays["inputs_labels"] = clustering.inputs.labels
    return arrays


def signatures_from(state: State, n: int, features: int, private: bool) -> tuple[ClassSignatures | None, ...]:
    """The class signatures of each client, checked as those of signature files are."""
    if "classes_of" not in state:
        return (None,) * n
    numbers, counts, names = state["classes_of"], state["class_counts"], state["class_names"]
    directions, angles = state["class_directions"], state["class_angles"]
    ends = np.cumsum(np.maximum(numbers, 0))
    total = int(ends[-1])
    if numbers.shape != (n,) or numbers.dtype.kind != "i" or numbers.min() < UNLABELLED:
        raise ValueError("it has no valid number of classes for each client")
    if (directions.shape, angles.shape) != shapes(total, features) or not (names.shape == counts.shape == (total,)):
        raise ValueError("its classes have no valid shape")
    made: list[ClassSignatures | None] = []
    for number, end in zip(numbers.tolist(), ends.tolist(), strict=True):
        own = slice(end - max(number, 0), end)
        if number == UNLABELLED:
            made.append(None)
            continue
        listed, sizes = [str(name) for name in names[own]], counts[own].tolist()
        made.append(restored(listed, sizes, directions[:, own], angles[:, own], private))
    return tuple(made)


def clusters_from(settings: Mapping[str, Any] | None, state: State) -> ClassClusters | None:
    """How classes were compared; None where they were not."""
    if settings is None:
        return None
    given = dict(settings)
    arrays = (state[f"class_{part}"] for part in ("variances", "typical", "excess", "reference", "spread"))
    noise = ClassNoise(tuple(given.pop("names")), *arrays)
    noise = replace(noise, spread=np.broadcast_to(noise.spread, noise.typical.shape))  # formats to 5 had one for all
    pairs = ClassPairs(*(squareform(part) for part in state["class_pairs"]))
    given |= {key: tuple(given[key]) for key in ("heights", "directions")}
    return ClassClusters(labels=state["labels"], pairs=pairs, noise=noise, limits=state["class_limits"], **given)


def inputs_from(settings: Mapping[str, Any] | None, state: State) -> InputsCut | None:
    """How the same clients are cut by their inputs; None where inputs decided nothing beside classes."""
    return None if settings is None else InputsCut(labels=state["inputs_labels"], **settings)


def are_valid(clustering: Clustering, made: Sequence[ClassSignatures | None]) -> bool:
    """Whether comparisons of classes belong to these clients, and can be extended by newcomers."""
    classes, cut, n = clustering.classes, clustering.inputs, len(clustering.labels)
    if len(made) != n or (classes is None and cut is not None):
        return False
    if cut is not None and not _is_cut(cut, n):
        return False
    if classes is None:
        return True
    noise, scale = classes.noise, clustering.reference_scale
    known = {name for own in made if own is not None for name in own.names}
    variances = noise.variances
    of_noise = [noise.typical, noise.excess, noise.reference, noise.spread]
    floats = [variances, *of_noise, classes.limits, *classes.pairs.parts]
    scalars = [classes.calibration, classes.null_height]
    return (
        all(array.dtype.kind == "f" and not np.isnan(array).any() for array in floats)
        and all(isinstance(x, float) and x == x for x in scalars)
        and all(x is None or isinstance(x, int | float) for x in (classes.separation, classes.reproducibility))
        and all(isinstance(height, float) for height in classes.heights)
        and classes.directions in DIRECTIONS
        and isinstance(classes.weakly, bool)
        and all(isinstance(name, str) for name in noise.names)
        and len(set(noise.names)) == len(noise.names)
        and known <= set(noise.names)
        and variances.shape == (n, len(noise.names), RANK)
        and noise.typical.shape == noise.excess.shape == noise.reference.shape == variances.shape[1:]
        and noise.spread.shape == variances.shape[1:]
        and classes.limits.ndim == 1
        and len(classes.limits) > 0
        and all(part.shape == (n, n) and np.isfinite(part).all() and (part >= 0).all() for part in classes.pairs.parts)
        and bool((variances > 0).all() and (classes.limits > 0).all())
        and all((array > 0).all() and (array is noise.excess or np.isfinite(array).all()) for array in of_noise)
        and 0 < classes.calibration < np.inf
        and bool((noise.spread >= 1).all())
        and scale is not None
    )


def _is_cut(cut: InputsCut, n: int) -> bool:
    labels, scale = cut.labels, cut.reference_scale
    return (
        labels.shape == (n,)
        and labels.dtype.kind in "ui"
        and set(labels.tolist()) - {-1} == set(range(int(labels.max()) + 1))
        and isinstance(cut.threshold, float)
        and 0 <= cut.threshold < np.inf
        and (scale is None or (isinstance(scale, float) and 0 < scale < np.inf))
    )
