"""Signatures, the angles between them, and clusters of them. Pure mathematics: no clients, no rounds, no torch."""

from pacfl.subspace.agreement import adjusted_rand_index, match
from pacfl.subspace.angles import principal_angles
from pacfl.subspace.clustering import Grouping, group, regroup
from pacfl.subspace.divergence import bhattacharyya, kl, mmd
from pacfl.subspace.hierarchy import LINKAGES, Linkage, agglomerate, agglomerate_into
from pacfl.subspace.newcomers import Bridge, Placement, place
from pacfl.subspace.noise_scale import adjust, floors
from pacfl.subspace.proximity import MEASURES, Measure, extend, newcomer_rows, proximity
from pacfl.subspace.signature import RankWarning, SignatureStream, signature
from pacfl.subspace.split_half import self_angles
from pacfl.subspace.threshold import Choice, Cut, Evidence, choose_threshold

__all__ = [
    "LINKAGES",
    "MEASURES",
    "Bridge",
    "Choice",
    "Cut",
    "Evidence",
    "Grouping",
    "Linkage",
    "Measure",
    "Placement",
    "RankWarning",
    "SignatureStream",
    "adjust",
    "adjusted_rand_index",
    "agglomerate",
    "agglomerate_into",
    "bhattacharyya",
    "choose_threshold",
    "extend",
    "floors",
    "group",
    "kl",
    "match",
    "mmd",
    "newcomer_rows",
    "place",
    "principal_angles",
    "proximity",
    "regroup",
    "self_angles",
    "signature",
]
