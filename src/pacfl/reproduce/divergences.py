"""Do principal angles order distributions as other measures do? The toy example of the paper's supplement.

100 points of N(μ, Σ) in 20 dimensions against 100 of another normal distribution, p = 3. The paper does not state μ
and Σ, so several choices are tried. What to expect:

- Data are not centred, so a signature sees the second moment Σ + μμᵀ. A larger mean makes its leading direction surer
  and does not turn it, unless Σ has strong directions of its own: angles do not measure how far a mean has moved.
- A wider Σ drowns the mean and makes the direction less sure. What angles see there is noise: it falls with samples.
- Bhattacharyya and KL of N(μ, Σ) and N(μ, cΣ) depend on c alone, and of N(μ, Σ) and N(cμ, Σ) on c and μᵀΣ⁻¹μ alone. So
  the published ones say μᵀΣ⁻¹μ ≈ 20, as for μ from N(0, Σ), and no choice of μ and Σ explains those of the last column.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.reproduce.items import Item
from pacfl.reproduce.making import Request
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import Table
from pacfl.subspace import MEASURES, bhattacharyya, kl, mmd, proximity, signature

Array = NDArray[np.float64]
Choice = Callable[[np.random.Generator], tuple[Array, Array]]  # μ (20,) and a root A of Σ = AAᵀ (20, 20)

DIMENSION: Final = 20
POINTS: Final = 100
RANK: Final = 3
PAIRS: Final = {"2μ, Σ": (2, 1), "3μ, Σ": (3, 1), "μ, 2Σ": (1, 2), "μ, 5Σ": (1, 5)}  # factors of μ and Σ


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


CHOICES: Final[Mapping[str, Choice]] = {
    choice.__name__: choice for choice in (spherical, spherical_with_a_smaller_mean, correlated, evenly_correlated)
}


def measured(x: Array, y: Array) -> dict[str, float]:
    """Every measure between two samples."""
    signatures = [signature(x, RANK), signature(y, RANK)]
    angles: dict[str, float] = {measure: float(proximity(signatures, measure)[0, 1]) for measure in MEASURES}
    return {"bhattacharyya": bhattacharyya(x, y), "kl": kl(x, y), "mmd": mmd(x, y), **angles}


def values(name: str, draws: int) -> dict[str, Array]:
    """Every measure in every draw, each with its own μ and Σ: (draws, 4)."""
    rows: dict[str, list[list[float]]] = {}
    for draw in range(draws):
        rng = np.random.default_rng([draw, *name.encode()])
        mean, root = CHOICES[name](rng)
        columns = []
        for times_mean, times_spread in PAIRS.values():
            x, y = (rng.standard_normal((POINTS, DIMENSION)) @ root.T for _ in range(2))
            columns.append(measured(x + mean, y * np.sqrt(times_spread) + times_mean * mean))
        for measure in columns[0]:
            rows.setdefault(measure, []).append([column[measure] for column in columns])
    return {measure: np.array(row) for measure, row in rows.items()}


def make(item: Item, request: Request) -> Outcome:
    """Mean and standard deviation over draws, and how often the columns rise as expected, for each μ and Σ."""
    draws = item.settings(request.scale)["draws"]
    found = {name: {m: _summary(v) for m, v in values(name, draws).items()} for name in CHOICES}
    common = {"item": item.name, "scale": request.scale, "missing": {}, "runs": [], "tuning": []}
    return {**common, "draws": draws, "choices": found}


def _summary(rows: Array) -> dict[str, list[float]]:
    rising = [float((rows[:, i] < rows[:, i + 1]).mean()) for i in (0, 2)]
    return {"mean": rows.mean(axis=0).tolist(), "deviation": rows.std(axis=0).tolist(), "rising": rising}


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """One table for each choice of μ and Σ."""
    published = item.published()
    head = ("N(μ, Σ) against", *(f"N({pair}) [paper]" for pair in PAIRS), "1st < 2nd", "3rd < 4th")
    made = []
    for name, by_measure in outcome["choices"].items():
        rows = []
        for measure, stored in by_measure.items():
            triples = zip(stored["mean"], stored["deviation"], published[measure], strict=True)
            cells = [f"{mean:.3g} ± {std:.2g} [{value}]" for mean, std, value in triples]
            rows.append((measure, *cells, *(f"{share:.0%}" for share in stored["rising"])))
        title = f"{item.title}: {(CHOICES[name].__doc__ or name).rstrip('.')}"
        note = (
            f"Mean ± standard deviation over {outcome['draws']} draws; "
            "share of draws in which the columns rise as expected."
        )
        made.append(Table(title, head, tuple(rows), (note,)))
    return made
