"""The promises about real data, on one seed of a few federations; `python -m studies.threshold` has them all."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from pacfl.subspace import SignatureStream, signature

scenarios = pytest.importorskip("studies.scenarios", reason="the studies are not part of a source distribution")
study = pytest.importorskip("studies.threshold")

pytestmark = pytest.mark.skipif(
    not scenarios.data_folder().is_dir(),
    reason=f"no data sets in {scenarios.data_folder()}; set PACFL_DATA to a folder that has them",
)

WANTED = {
    "IID CIFAR-10": range(1, 2),
    "MIX-4m, raw, 40 to 240 samples": range(4, 5),
    "95 CIFAR-10, 5 MNIST-M": range(2, 3),
    "CIFAR-10, label skew 20 %": range(2, 5),
}


@pytest.mark.parametrize("scenario", WANTED)
def test_the_clusters_that_are_there_are_found(scenario: str) -> None:
    found = study.outcome(scenario, seed=0, rank=3, measure="smallest", split_halves=True)
    assert found.n_clusters in WANTED[scenario]
    if found.animals:  # where classes are mixed at will, groups have no sharp edges, but animals stand out
        assert max(found.animals) > 0.9
        assert min(found.animals) < 0.5
    else:
        assert found.ari == 1


@pytest.mark.parametrize("name", ["cifar10", "fmnist"])
def test_streaming_is_within_one_degree_of_one_shot(name: str) -> None:
    images = scenarios.load(name)[0][:2000]
    stream = SignatureStream(3)
    for start in range(0, len(images), 100):
        stream.feed(images[start : start + 100])
    assert np.degrees(subspace_angles(stream.signature(), signature(images, 3)).max()) < 1
