"""Data sets, read from the files in which they are published, and divided among clients. No torch."""

from pacfl.data.catalogue import Entry, catalogue
from pacfl.data.dataset import Dataset, from_arrays
from pacfl.data.digits import digits
from pacfl.data.download import download
from pacfl.data.drift import DataSwap, Drift, build_drift, drawn_swap
from pacfl.data.groups import ByAttribute, BySet, Given, Natural
from pacfl.data.loading import data_folder, load_dataset
from pacfl.data.mixture import mixture
from pacfl.data.natural import NaturalClients, natural_clients
from pacfl.data.normalisation import Normalisation, Normalise, normalisation, normalised
from pacfl.data.partition import SCHEMES, Partition, TestSamples, build_scheme, find_scheme, partition
from pacfl.data.schemes import Dirichlet, Iid, LabelSkew, QuantitySkew, Scheme, Split
from pacfl.data.spec import DatasetSpec, Remote
from pacfl.data.specs import DATASETS, MIX4
from pacfl.data.styles import STYLES, Style
from pacfl.data.subset import subsample, subset, validation_split
from pacfl.data.targets import Targets
from pacfl.data.transforms import Groups, build_division, grouped
from pacfl.errors import DataError

__all__ = [
    "DATASETS",
    "MIX4",
    "SCHEMES",
    "STYLES",
    "ByAttribute",
    "BySet",
    "DataError",
    "DataSwap",
    "Dataset",
    "DatasetSpec",
    "Dirichlet",
    "Drift",
    "Entry",
    "Given",
    "Groups",
    "Iid",
    "LabelSkew",
    "Natural",
    "NaturalClients",
    "Normalisation",
    "Normalise",
    "Partition",
    "QuantitySkew",
    "Remote",
    "Scheme",
    "Split",
    "Style",
    "Targets",
    "TestSamples",
    "build_division",
    "build_drift",
    "build_scheme",
    "catalogue",
    "data_folder",
    "digits",
    "download",
    "drawn_swap",
    "find_scheme",
    "from_arrays",
    "grouped",
    "load_dataset",
    "mixture",
    "natural_clients",
    "normalisation",
    "normalised",
    "partition",
    "subsample",
    "subset",
    "validation_split",
]
