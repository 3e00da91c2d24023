"""Signatures, the angles between them, and clusters of them. Pure mathematics: no clients, no rounds, no torch."""

from pacfl.subspace.agreement import adjusted_rand_index, match
from pacfl.subspace.angles import principal_angles
from pacfl.subspace.classes import ClassSignatures, class_signatures
from pacfl.subspace.clustering import Clustering, GivenCut, Landmarks, assign_newcomers, evidence_of
from pacfl.subspace.dependence import DependenceWarning, Neighbours, neighbours
from pacfl.subspace.diagnosis import Diagnosis, diagnose
from pacfl.subspace.divergence import bhattacharyya, kl, mmd
from pacfl.subspace.explanation import Explanation, explain
from pacfl.subspace.hierarchy import LINKAGES, Linkage, agglomerate, agglomerate_into
from pacfl.subspace.method import METHODS, Method, cluster
from pacfl.subspace.newcomers import Assignment, MergeSuggestion, place
from pacfl.subspace.noise_scale import noise_scale, rescale_by_noise
from pacfl.subspace.proximity import MEASURES, Measure, extend, newcomer_rows, proximity
from pacfl.subspace.signature import RankWarning, SignatureStream, signature
from pacfl.subspace.split_half import split_half_angles
from pacfl.subspace.threshold import Choice, Cut, Evidence, choose_threshold
from pacfl.subspace.together import COMPARES, ClientSignature, Compare, assign, cluster_clients

__all__ = [
    "COMPARES",
    "LINKAGES",
    "MEASURES",
    "METHODS",
    "Assignment",
    "Choice",
    "ClassSignatures",
    "ClientSignature",
    "Clustering",
    "Compare",
    "Cut",
    "DependenceWarning",
    "Diagnosis",
    "Evidence",
    "Explanation",
    "GivenCut",
    "Landmarks",
    "Linkage",
    "Measure",
    "MergeSuggestion",
    "Method",
    "Neighbours",
    "RankWarning",
    "SignatureStream",
    "adjusted_rand_index",
    "agglomerate",
    "agglomerate_into",
    "assign",
    "assign_newcomers",
    "bhattacharyya",
    "choose_threshold",
    "class_signatures",
    "cluster",
    "cluster_clients",
    "diagnose",
    "evidence_of",
    "explain",
    "extend",
    "kl",
    "match",
    "mmd",
    "neighbours",
    "newcomer_rows",
    "noise_scale",
    "place",
    "principal_angles",
    "proximity",
    "rescale_by_noise",
    "signature",
    "split_half_angles",
]
