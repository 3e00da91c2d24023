"""The ten algorithms of the paper's comparison, one file each."""

from collections.abc import Mapping
from typing import Any, Final

from pacfl.algorithms.cfl import CFL
from pacfl.algorithms.fedavg import FedAvg
from pacfl.algorithms.fedavg_ft import FedAvgFT
from pacfl.algorithms.fednova import FedNova
from pacfl.algorithms.fedprox import FedProx
from pacfl.algorithms.ifca import IFCA
from pacfl.algorithms.lg_fedavg import LGFedAvg
from pacfl.algorithms.local_only import LocalOnly
from pacfl.algorithms.pacfl import PACFL
from pacfl.algorithms.per_fedavg import PerFedAvg
from pacfl.algorithms.scaffold import Scaffold
from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm
from pacfl.settings import build as build_settings
from pacfl.settings import suggestion

ALGORITHMS: Final[Mapping[str, type[Algorithm]]] = {
    "solo": LocalOnly,
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
        raise ConfigError(f"no algorithm {name!r}{suggestion(name, ALGORITHMS)}")
    return build_settings(ALGORITHMS[name], settings, name, where=name)


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
    "LocalOnly",
    "PerFedAvg",
    "Scaffold",
    "build",
]
