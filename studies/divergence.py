"""Do principal angles order distributions as other measures do? `python -m studies.divergence [--draws 200]`.

The toy example of the paper's supplement: 100 points of N(μ, Σ) in 20 dimensions against 100 of another normal
distribution, p = 3. It does not state μ and Σ, so several choices are tried. What to expect:

- Data are not centred, so a signature sees the second moment Σ + μμᵀ. A larger mean makes its leading direction surer
  and does not turn it, unless Σ has strong directions of its own: angles do not measure how far a mean has moved.
- A wider Σ drowns the mean and makes the direction less sure. What angles see there is noise: it falls with samples.
- Bhattacharyya and KL of N(μ, Σ) and N(μ, cΣ) depend on c alone, and of N(μ, Σ) and N(cμ, Σ) on c and μᵀΣ⁻¹μ alone. So
  the published ones say μᵀΣ⁻¹μ ≈ 20, as for μ from N(0, Σ), and no choice of μ and Σ explains those of the last column.
"""

import argparse
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import bhattacharyya, kl, mmd, proximity, signature
from pacfl.subspace.proximity import MEASURES

Array = NDArray[np.float64]
Choice = Callable[[np.random.Generator], tuple[Array, Array]]  # μ (20,) and a root A of Σ = AAᵀ (20, 20)

DIMENSION, POINTS, RANK = 20, 100, 3

COLUMNS = {"2μ, Σ": (2, 1), "3μ, Σ": (3, 1), "μ, 2Σ": (1, 2), "μ, 5Σ": (1, 5)}  # factors of μ and Σ

# The published angles are smallest entries of arccos|UᵀV|, and 3 times that, under the names of Eq. 2 and Eq. 3.
PUBLISHED = {
    "Bhattacharyya": ("3.07", "10.31", "1.14", "2.13"),
    "KL": ("15.18", "47.12", "3.31", "5.79"),
    "MMD": ("0.6218", "0.6238", "0.6234", "0.6246"),
    "smallest": ("10.73", "18.41", "8.93", "13.72"),
    "sum": ("32.2", "55.24", "26.79", "41.15"),
    "trace": ("32.2", "55.24", "26.79", "41.15"),
    "entrywise": ("10.73", "18.41", "8.93", "13.72"),
}


def spherical(rng: np.random.Generator) -> tuple[Array, Array]:
    """μ from N(0, I), Σ = I."""
    return rng.standard_normal(DIMENSION), np.eye(DIMENSION)


def spherical_with_a_smaller_mean(rng: np.random.Generator) -> tuple[Array, Array]:
    """μ uniform in the unit cube, Σ = I."""
    return rng.random(DIMENSION), np.eye(DIMENSION)


def correlated(rng: np.random.Generator) -> tuple[Array, Array]:
    """Σ = AAᵀ with A of standard normal entries, μ from N(0, Σ)."""
    root = rng.standard_normal((DIMENSION, DIMENSION))
    return root @ rng.standard_normal(DIMENSION), root


def evenly_correlated(rng: np.random.Generator) -> tuple[Array, Array]:
    """Σ = (I + 11ᵀ) / 2, μ uniform in the unit cube: Σ has one strong direction, near to that of μ."""
    return rng.random(DIMENSION), np.asarray(np.linalg.cholesky((np.eye(DIMENSION) + 1) / 2), dtype=np.float64)


CHOICES: tuple[Choice, ...] = (spherical, spherical_with_a_smaller_mean, correlated, evenly_correlated)


def measured(x: Array, y: Array) -> dict[str, float]:
    """Every measure between two samples."""
    signatures = [signature(x, RANK), signature(y, RANK)]
    angles: dict[str, float] = {measure: float(proximity(signatures, measure)[0, 1]) for measure in MEASURES}
    return {"Bhattacharyya": bhattacharyya(x, y), "KL": kl(x, y), "MMD": mmd(x, y), **angles}


def values(choice: Choice, draws: int) -> Mapping[str, Array]:
    """Every measure in every draw, each with its own μ and Σ: (draws, 4)."""
    rows: dict[str, list[list[float]]] = {name: [] for name in PUBLISHED}
    for draw in range(draws):
        rng = np.random.default_rng([draw, *choice.__name__.encode()])
        mean, root = choice(rng)
        columns = []
        for times_mean, times_spread in COLUMNS.values():
            x, y = (rng.standard_normal((POINTS, DIMENSION)) @ root.T for _ in range(2))
            columns.append(measured(x + mean, y * np.sqrt(times_spread) + times_mean * mean))
        for name, row in rows.items():
            row.append([column[name] for column in columns])
    return {name: np.array(row) for name, row in rows.items()}


def main() -> None:
    """Print a table in Markdown for every choice of μ and Σ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    print(f"Mean ± deviation over {draws} draws [published], and the share of draws in which columns rise as expected.")
    for choice in CHOICES:
        print(f"\n{choice.__doc__}\n")
        print(f"| N(μ, Σ) against | {' | '.join(f'N({name})' for name in COLUMNS)} | 1st < 2nd | 3rd < 4th |")
        print("|---" * (len(COLUMNS) + 3) + "|")
        for name, rows in values(choice, draws).items():
            cells = [
                f"{mean:.3g} ± {spread:.2g} [{published}]"
                for mean, spread, published in zip(rows.mean(axis=0), rows.std(axis=0), PUBLISHED[name], strict=True)
            ]
            first, second = ((rows[:, i] < rows[:, i + 1]).mean() for i in (0, 2))
            print(f"| {name} | {' | '.join(cells)} | {first:.0%} | {second:.0%} |")


if __name__ == "__main__":
    main()
