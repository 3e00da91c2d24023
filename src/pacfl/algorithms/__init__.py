"""Algorithms, one file each: fedavg_ft.py has the algorithm `fedavg-ft`."""

import pkgutil
from importlib import import_module
from typing import Any, Final

from pacfl import plugins
from pacfl.algorithms.apfl import APFL
from pacfl.algorithms.cfl import CFL
from pacfl.algorithms.clove import CLoVE
from pacfl.algorithms.ditto import Ditto
from pacfl.algorithms.fedadam import FedAdam
from pacfl.algorithms.fedala import FedALA
from pacfl.algorithms.fedavg import FedAvg
from pacfl.algorithms.fedavg_ft import FedAvgFT
from pacfl.algorithms.fedavgm import FedAvgM
from pacfl.algorithms.fedbabu import FedBABU
from pacfl.algorithms.fedbn import FedBN
from pacfl.algorithms.fedclust import FedClust
from pacfl.algorithms.feddag_clusters import FedDAGClusters
from pacfl.algorithms.fedem import FedEM
from pacfl.algorithms.fednova import FedNova
from pacfl.algorithms.fedper import FedPer
from pacfl.algorithms.fedprox import FedProx
from pacfl.algorithms.fedrc import FedRC
from pacfl.algorithms.fedrep import FedRep
from pacfl.algorithms.fedsoft import FedSoft
from pacfl.algorithms.fedyogi import FedYogi
from pacfl.algorithms.fesem import FeSEM
from pacfl.algorithms.flexcfl import FlexCFL
from pacfl.algorithms.flis import FLIS
from pacfl.algorithms.ifca import IFCA
from pacfl.algorithms.lg_fedavg import LGFedAvg
from pacfl.algorithms.pacfl import PACFL
from pacfl.algorithms.per_fedavg import PerFedAvg
from pacfl.algorithms.pfedme import PFedMe
from pacfl.algorithms.scaffold import Scaffold
from pacfl.algorithms.solo import LocalOnly
from pacfl.algorithms.stocfl import StoCFL
from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm
from pacfl.settings import build as build_settings

NAMES: Final[tuple[str, ...]] = tuple(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def build(name: str, **settings: Any) -> Algorithm:
    """An algorithm by its name, with its hyper-parameters by theirs."""
    built = build_settings(find(name), settings, name, where=name)
    for key, value in settings.items():
        if isinstance(value, bool | str) and (own := getattr(built, key)) != value:
            raise ConfigError(
                f"{name}: {key.replace('_', '-')} = {value!r} does not apply with the other settings, {own!r} does; "
                "leave it out, or change these"
            )
    return built


def find(name: str) -> type[Algorithm]:
    """The class of an algorithm: of a file beside this one, of an entry point, or of an import path."""
    if name in NAMES:
        module = import_module(f"{__name__}.{name.replace('-', '_')}")
        (own,) = (kind for kind in vars(module).values() if _is_algorithm(kind) and kind.__module__ == module.__name__)
        return own  # type: ignore[no-any-return]  # checked one line above
    found = plugins.find("algorithms", name, dict.fromkeys(NAMES))
    if not _is_algorithm(found) or "__dataclass_fields__" not in vars(found):
        raise ConfigError(
            f"algorithm {name!r} is {found!r}, expected a class that inherits from pacfl.Algorithm and is decorated "
            "with @dataclass(frozen=True)"
        )
    return found  # type: ignore[no-any-return]


def _is_algorithm(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Algorithm)


__all__ = [
    "APFL",
    "CFL",
    "FLIS",
    "IFCA",
    "NAMES",
    "PACFL",
    "CLoVE",
    "Ditto",
    "FeSEM",
    "FedALA",
    "FedAdam",
    "FedAvg",
    "FedAvgFT",
    "FedAvgM",
    "FedBABU",
    "FedBN",
    "FedClust",
    "FedDAGClusters",
    "FedEM",
    "FedNova",
    "FedPer",
    "FedProx",
    "FedRC",
    "FedRep",
    "FedSoft",
    "FedYogi",
    "FlexCFL",
    "LGFedAvg",
    "LocalOnly",
    "PFedMe",
    "PerFedAvg",
    "Scaffold",
    "StoCFL",
    "build",
    "find",
]
