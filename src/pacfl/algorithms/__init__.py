"""The ten algorithms of the paper's comparison, one file each."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final

from pacfl.algorithms.cfl import CFL
from pacfl.algorithms.fedavg import FedAvg
from pacfl.algorithms.fedavg_ft import FedAvgFT
from pacfl.algorithms.fednova import FedNova
from pacfl.algorithms.fedprox import FedProx
from pacfl.algorithms.ifca import IFCA
from pacfl.algorithms.lg_fedavg import LGFedAvg
from pacfl.algorithms.local_only import Solo
from pacfl.algorithms.pacfl import PACFL
from pacfl.algorithms.per_fedavg import PerFedAvg
from pacfl.algorithms.scaffold import Scaffold
from pacfl.federation.algorithm import Algorithm

ALGORITHMS: Final[Mapping[str, type[Algorithm]]] = {
    "solo": Solo,
    "fedavg": FedAvg,
    "fedavg-ft": FedAvgFT,
    "fedprox": FedProx,
    "fednova": FedNova,
    "scaffold": Scaffold,
    "lg-fedavg": LGFedAvg,
    "per-fedavg": PerFedAvg,
    "ifca": IFCA,
    "cfl": CFL,
    "pacfl": PACFL,
}


def build(name: str, **settings: Any) -> Algorithm:
    """An algorithm by its name, with its hyper-parameters by theirs."""
    if name not in ALGORITHMS:
        raise ValueError(f"no algorithm {name!r}{_nearest(name, list(ALGORITHMS))}; there are {', '.join(ALGORITHMS)}")
    known = [f.name for f in fields(ALGORITHMS[name])]
    settings = {key.replace("-", "_"): value for key, value in settings.items()}
    for key in settings:
        if key not in known:
            raise ValueError(
                f"{name} has no setting {key!r}{_nearest(key, known)}; it has {', '.join(known) or 'none'}"
            )
    return ALGORITHMS[name](**settings)


def _nearest(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


__all__ = [
    "ALGORITHMS",
    "CFL",
    "IFCA",
    "PACFL",
    "FedAvg",
    "FedAvgFT",
    "FedNova",
    "FedProx",
    "LGFedAvg",
    "PerFedAvg",
    "Scaffold",
    "Solo",
    "build",
]
