"""Differential privacy: exact calibration, exact noise, and signatures that hide each single record."""

from pacfl.privacy.classes import private_class_signatures
from pacfl.privacy.discrete import Noise, secret, seeded
from pacfl.privacy.gaussian import gaussian_delta, gaussian_sigma
from pacfl.privacy.signature import Guarantee, PrivateSignature, private_signature

__all__ = [
    "Guarantee",
    "Noise",
    "PrivateSignature",
    "gaussian_delta",
    "gaussian_sigma",
    "private_class_signatures",
    "private_signature",
    "secret",
    "seeded",
]
