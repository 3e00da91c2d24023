"""Data sets, read from the files in which they are published, and divided among clients. No torch."""

from pacfl.data.catalogue import Entry, catalogue
from pacfl.data.clients import ClientData, split
from pacfl.data.dataset import Dataset, from_arrays, normalised
from pacfl.data.digits import digits
from pacfl.data.download import download
from pacfl.data.errors import DataError
from pacfl.data.groups import ByAttribute, BySet, Given
from pacfl.data.loading import data_folder, load
from pacfl.data.mixture import mixture
from pacfl.data.partition import SCHEMES, Partition, build_scheme, partition
from pacfl.data.schemes import Dirichlet, Iid, LabelSkew, QuantitySkew, Scheme
from pacfl.data.specs import KNOWN, MIX4, Known, Remote
from pacfl.data.subset import held_out, subset, thinned

__all__ = [
    "KNOWN",
    "MIX4",
    "SCHEMES",
    "ByAttribute",
    "BySet",
    "ClientData",
    "DataError",
    "Dataset",
    "Dirichlet",
    "Entry",
    "Given",
    "Iid",
    "Known",
    "LabelSkew",
    "Partition",
    "QuantitySkew",
    "Remote",
    "Scheme",
    "build_scheme",
    "catalogue",
    "data_folder",
    "digits",
    "download",
    "from_arrays",
    "held_out",
    "load",
    "mixture",
    "normalised",
    "partition",
    "split",
    "subset",
    "thinned",
]
