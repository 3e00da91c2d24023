"""Clustered federated learning by principal angles between client data subspaces."""

from importlib import import_module
from typing import Any, Final

from pacfl.errors import lacking

# Where each name lives. A part is imported when one of its names is first asked for, so that whoever wants signatures
# only waits for no torch; the types stand in __init__.pyi.
_PARTS: Final = {
    "pacfl.subspace": (
        "agglomerate", "choose_threshold", "principal_angles", "proximity", "signature",
        "split_half_angles",
    ),
    "pacfl.signatures.estimator": ("PACFLClustering",),
    "pacfl.data": (
        "BySet", "Dataset", "Dirichlet", "Iid", "LabelSkew", "QuantitySkew", "digits", "from_arrays", "load_dataset",
        "mixture", "partition",
    ),
    "pacfl.learning.settings": ("LocalTraining",),
    "pacfl.federation.aggregation": ("Aggregation",),
    "pacfl.federation.algorithm": ("Algorithm",),
    "pacfl.federation.schedule": ("Schedule",),
    "pacfl.algorithms": (
        "APFL", "CFL", "CLoVE", "Ditto", "FedALA", "FedAdam", "FedAvg", "FedAvgFT", "FedAvgM", "FedBABU", "FedBN",
        "FedClust", "FedDAGClusters", "FedEM", "FedNova", "FedPer", "FedProx", "FedRC", "FedRep", "FedSoft", "FedYogi",
        "FeSEM", "FlexCFL", "FLIS", "IFCA", "LGFedAvg", "LocalOnly", "PACFL", "PerFedAvg", "PFedMe", "Scaffold",
        "StoCFL",
    ),
    "pacfl.experiment.records": ("RoundRecord", "Spread"),
    "pacfl.experiment.callbacks": ("EarlyStopping", "STOP"),
    "pacfl.experiment.result": ("Result", "load"),
    "pacfl.experiment.stored_runs": ("runs",),
    "pacfl.experiment.api": ("federate", "rounds"),
    "pacfl.experiment.pivot": ("table",),
    "pacfl.exporting.export": ("export",),
    "pacfl.exporting.prediction": ("predict",),
}  # fmt: skip
_PART_OF: Final = {name: part for part, names in _PARTS.items() for name in names}

__all__ = ["__version__", *sorted(_PART_OF)]


def __getattr__(name: str) -> Any:
    if name == "__version__":  # that of pyproject.toml, which Flower reads too
        return import_module("importlib.metadata").version("pacfl")
    if name not in _PART_OF:
        raise AttributeError(f"module 'pacfl' has no attribute {name!r}")
    try:
        return getattr(import_module(_PART_OF[name]), name)
    except ModuleNotFoundError as error:
        raise lacking(error, f"pacfl.{name}", "learning") from None


def __dir__() -> list[str]:
    return __all__
