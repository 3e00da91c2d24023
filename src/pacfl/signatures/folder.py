"""The folder of a federation: everything in one file that is replaced in one step, and what is derived from it."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
from scipy.spatial.distance import squareform

from pacfl.errors import DataError
from pacfl.files import replaced, write_atomically
from pacfl.folders import CLUSTERS
from pacfl.npz import archive_shapes
from pacfl.signatures import class_state, column_arrays, explaining, figures
from pacfl.signatures.federation import FORMAT, Federation
from pacfl.signatures.placement import Drift, Newcomer, restored
from pacfl.signatures.sigfile import SignatureSettings
from pacfl.subspace import LINKAGES, MEASURES, Clustering
from pacfl.subspace.hierarchy import check_proximity
from pacfl.subspace.proximity import stack

READABLE: Final = (3, 4, 5)  # 3 had no descriptions of clients, 4 nothing about who came and left
STATE: Final = CLUSTERS
SUMMARY: Final = "clusters.json"
FILES: Final = (STATE, SUMMARY, *figures.FILES, ".lock")  # the last one is made by locked()


def check_output(folder: Path, force: bool = False) -> None:
    """Refuse a folder that cannot be written to, or where something would be lost."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a folder")
    place = next((p for p in (folder, *folder.parents) if p.exists()), folder)
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise DataError(f"{folder}: cannot be written, {place} does not permit it; name another folder")
    names = {p.name for p in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(name for name in names if name not in FILES and not _is_unfinished(name))
    if foreign:
        raise DataError(f"{folder}: holds other files ({', '.join(foreign[:3])}); name a new folder")
    if STATE in names and not force:
        raise DataError(
            f"{folder}: holds a federation; add clients to it with 'pacfl join', name a new folder, "
            "or replace it with --force"
        )


def save(federation: Federation, folder: Path, pictures: figures.Picture | None = None) -> None:
    """Write the folder. proximity.npz holds everything and is replaced in one step; the rest is derived from it."""
    clustering = federation.clustering
    rank = max(basis.shape[1] for basis in federation.bases)
    bases = np.zeros((len(federation.bases), federation.settings.features, rank), dtype=np.float32)
    for padded, basis in zip(bases, federation.bases, strict=True):
        padded[:, : basis.shape[1]] = basis
    keys = ("measure", "linkage", "reference_scale", "threshold", "evidence")
    settings = {"format": FORMAT, "signatures": asdict(federation.settings)}
    settings["clients"] = explaining.stored(federation.descriptions)
    settings["newcomers"] = {name: asdict(one) for name, one in federation.newcomers.items()}
    settings["drifted"] = {name: asdict(one) for name, one in federation.drifted.items()}
    settings["clustered"] = federation.clustered
    settings["emptied"] = sorted(set(range(int(clustering.labels.max()) + 1)) - set(clustering.numbers))
    settings |= class_state.settings_of(clustering)
    with replaced(folder / STATE) as file:
        np.savez(
            file,
            names=np.array(federation.names),
            proximity=squareform(clustering.proximity, checks=False),
            labels=clustering.labels,
            noise_scale=clustering.noise_scale,
            bases=bases,
            directions=np.array([basis.shape[1] for basis in federation.bases]),
            settings=np.array(json.dumps(settings | {key: getattr(clustering, key) for key in keys})),
            **class_state.arrays_of(federation.classes, clustering),
            **column_arrays.arrays_of([one.table for one in federation.descriptions]),
        )
    write_atomically(folder / SUMMARY, (json.dumps(federation.summary(), indent=2, allow_nan=False) + "\n").encode())
    for path in folder.iterdir():
        if path.name in figures.FILES or _is_unfinished(path.name):
            path.unlink()  # pictures of what was there before, and what a killed process left
    if pictures is not None:
        figures.draw(federation, folder, pictures)


def load(folder: Path) -> Federation:
    """The federation stored in a folder."""
    try:
        archive_shapes(folder / STATE)
        with (folder / STATE).open("rb") as file, np.load(file, allow_pickle=False) as state:
            settings = json.loads(str(state["settings"]))
            if settings.pop("format") not in READABLE:
                raise DataError(f"{folder}: was written by another release of pacfl; cluster again")
            counts, bases, names = state["directions"], state["bases"], state["names"]
            of_classes, of_inputs = settings.pop("classes"), settings.pop("inputs")
            tables = column_arrays.tables_from(state, len(names), bases.shape[1])
            described = explaining.restored(settings.pop("clients", None), len(names), bases.shape[1], tables)
            emptied = settings.pop("emptied", [])
            newcomers = restored(Newcomer, settings.pop("newcomers", {}))
            drifted = restored(Drift, settings.pop("drifted", {}))
            clustered = settings.pop("clustered", None)
            signed = SignatureSettings(**settings.pop("signatures"))
            federation = Federation(
                names=tuple(str(name) for name in names),
                bases=tuple(basis[:, :count] for basis, count in zip(bases, counts, strict=True)),
                settings=signed,
                clustering=Clustering(
                    proximity=squareform(state["proximity"]),
                    noise_scale=state["noise_scale"],
                    labels=state["labels"],
                    classes=class_state.clusters_from(of_classes, state),
                    inputs=class_state.inputs_from(of_inputs, state),
                    **settings,
                ),
                classes=class_state.signatures_from(state, len(names), bases.shape[1], signed.private),
                descriptions=described,
                newcomers=newcomers,
                drifted=drifted,
                clustered=clustered,
            )
            _check(federation, emptied)
            return federation
    except FileNotFoundError:
        raise DataError(
            f"{folder}: is not a federation folder; make one with 'pacfl cluster ... -o {folder}'"
        ) from None
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{folder / STATE}: cannot be read ({error}); was it damaged?") from None


def _check(federation: Federation, emptied: object) -> None:
    """Refuse a federation whose parts do not belong together."""
    clustering, signed, n = federation.clustering, federation.settings, len(federation.names)
    check_proximity(clustering.proximity)
    _, ranks = stack(federation.bases)
    numbers = [clustering.threshold, *([] if clustering.reference_scale is None else [clustering.reference_scale])]
    valid = {
        "one entry for each client": len(clustering.proximity) == len(ranks) == n,
        "distinct names": len(set(federation.names)) == n,
        "newcomers": {*federation.newcomers, *federation.drifted} <= set(federation.names)
        and (federation.clustered is None or type(federation.clustered) is int),
        "labels": clustering.labels.shape == (n,)
        and clustering.labels.dtype.kind in "ui"
        and isinstance(emptied, list)
        and int(clustering.labels.max()) + 1 == len(emptied) + len(clustering.numbers)
        and sorted([*emptied, *clustering.numbers]) == list(range(int(clustering.labels.max()) + 1))
        and int(clustering.labels.min()) >= -1
        and (clustering.classes is not None or _explained(clustering)),
        "noise_scale": clustering.noise_scale.shape == (n,)
        and bool((np.isfinite(clustering.noise_scale) & (clustering.noise_scale > 0)).all()),
        "threshold": all(isinstance(x, float) and 0 <= x < np.inf for x in numbers) and clustering.reference_scale != 0,
        "measure and linkage": clustering.measure in MEASURES and clustering.linkage in LINKAGES,
        "reasons": isinstance(clustering.evidence.get("reasons"), str)
        and clustering.evidence.get("compare", "inputs") in ("inputs", "classes", "both"),
        "comparison of classes": class_state.are_valid(clustering, federation.classes),
        "settings of its signatures": signed.features == len(federation.bases[0])
        and type(signed.rank) is int
        and signed.rank > 0
        and isinstance(signed.per_class, bool)
        and isinstance(signed.preprocess, str)
        and isinstance(signed.protection, str)
        and isinstance(signed.labels, str)
        and all(
            text is None or isinstance(text, str)
            for text in (signed.encoder, signed.sketch, signed.schema, signed.directions)
        ),
    }
    lacking = [what for what, there in valid.items() if not there]
    if lacking:
        raise ValueError(f"it has no valid {', '.join(lacking)}")


def _explained(clustering: Clustering) -> bool:
    """Whether the evidence says why clients without a cluster have none."""
    why = clustering.evidence.get("not_judged") or {}
    return all(isinstance(why.get(str(i)), str) for i in np.flatnonzero(clustering.labels < 0).tolist())


def _is_unfinished(name: str) -> bool:
    """Whether a file is one of a federation's that was not finished."""
    return name.endswith(".part") and name.startswith(tuple(f".{ours}." for ours in FILES))
