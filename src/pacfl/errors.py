"""What pacfl raises where the user can do something about it. The message says what is wrong and what to do."""

import importlib
from types import ModuleType
from typing import Final


class PacflError(Exception):
    """Any of these; the command line prints it as one line."""


class DataError(PacflError, ValueError):
    """Data that are missing, cannot be read or cannot be divided as asked."""


class SignatureError(PacflError, ValueError):
    """A signature file that cannot be used."""


class ConfigError(PacflError, ValueError):
    """Settings that cannot be."""


class NotFittedError(PacflError, ValueError, AttributeError):
    """A question about clusters that were not computed yet."""


class ModelError(PacflError, ValueError):
    """A model that cannot be trained here or does not fit the data."""


class DivergedError(PacflError, ArithmeticError):
    """A training whose weights or losses are no longer finite."""


class StoreError(PacflError, RuntimeError):
    """A folder of runs that cannot be used."""


class MissingLibraryError(PacflError, ImportError):
    """An optional library, and how to install it."""


class DeployError(PacflError, RuntimeError):
    """A deployment that an operator has to fix."""


class BudgetError(PacflError, RuntimeError):
    """A request that would cost more privacy than a site allows."""


class NoReplyError(PacflError, RuntimeError):
    """A client that did not answer, where every client must."""


class WorkerError(PacflError, RuntimeError):
    """What went wrong in the warm worker, in its own words."""


class InvalidReplyError(PacflError, ValueError):
    """A reply that does not count, and why."""


class SecureAggregationError(PacflError, RuntimeError):
    """A request that a client refuses in secure aggregation, or a sum that a server cannot have."""


_PACKAGES: Final = {"sklearn": "scikit-learn", "PIL": "Pillow", "flwr": "Flower", "ray": "Ray"}

# Of extras whose libraries are imported at the top of modules; others are imported by `library`
_MODULES: Final = {
    "learning": frozenset({"torch", "llvmlite", "threadpoolctl"}),
    "flower": frozenset({"flwr", "ray", "cryptography", "safetensors", "psutil", "torch", "threadpoolctl", "sklearn"}),
}


def library(module: str, purpose: str, extra: str) -> ModuleType:
    """An optional library, imported where it is needed and nowhere else.

    purpose: what needs it, as the message begins; extra: the extra of pacfl that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = (error.name or module).split(".")[0]
        if name != module.split(".")[0]:
            raise
        raise missing(name, purpose, extra) from None


def missing(module: str, purpose: str, extra: str) -> MissingLibraryError:
    """The error for a library that is not installed."""
    name = _PACKAGES.get(module, module)
    return MissingLibraryError(f"{purpose} needs {name}: pip install 'pacfl[{extra}]'", name=module)


def lacking(error: ModuleNotFoundError, purpose: str, extra: str) -> ImportError:
    """What to say of a module that is not there: what to install if the extra has it, otherwise the error itself."""
    module = (error.name or "").split(".")[0]
    return missing(module, purpose, extra) if module in _MODULES[extra] else error
