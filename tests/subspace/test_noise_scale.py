import numpy as np
import pytest

from pacfl.subspace import noise_scale, rescale_by_noise
from pacfl.subspace.noise_scale import RESOLUTION
from tests.subspace.federations import federation


def test_noise_scales_are_root_mean_squares_or_nearest_neighbours() -> None:
    """√((3² + 4² + 0²) / 3) = 5 / √3; client 1 sent nothing, its nearest is at 2; client 2 has no measurable noise."""
    angles = [[0, 7, 9], [7, 0, 2], [9, 2, 0]]
    assert noise_scale(angles, [[3, 4, 0], [], [0, 0]]) == pytest.approx([5 / np.sqrt(3), 2, RESOLUTION])
    assert noise_scale(angles) == pytest.approx([7, 2, 2])


def test_rescaling_divides_by_the_noise_of_both_and_multiplies_by_the_typical() -> None:
    """Noise scales 1, 7, 5: the typical one is 5. The noise of 0 and 1 is √((1 + 49) / 2) = 5, so their angle stays.

    Of 1 and 2 it is √((49 + 25) / 2) = √37, of 0 and 2 √((1 + 25) / 2) = √13.
    """
    angles = np.array([[0, 10, 13], [10, 0, 37], [13, 37, 0]])
    expected = np.array([[0, 10, 5 * 13**0.5], [10, 0, 5 * 37**0.5], [5 * 13**0.5, 5 * 37**0.5, 0]])
    assert np.abs(rescale_by_noise(angles, np.array([1.0, 7.0, 5.0])) - expected).max() < 1e-12


def test_equal_noise_scales_leave_angles_as_they_are() -> None:
    angles = federation(0, 7, 7)[0]
    assert np.abs(rescale_by_noise(angles, np.full(14, 3.0)) - angles).max() < 1e-12
