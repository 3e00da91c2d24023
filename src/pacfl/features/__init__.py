"""Data of any kind -> features: samples as numbers, with their labels, groups and names.

`read_samples` reads a file or a folder as a `Reading` says.
"""

from pacfl.features.reading import PREPROCESSES, Preprocess, Reading, Samples, preprocessed, read, read_samples

__all__ = ["PREPROCESSES", "Preprocess", "Reading", "Samples", "preprocessed", "read", "read_samples"]
