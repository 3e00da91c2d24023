"""Are clusters of people by their wrist sensors recovered from half of their recordings.

python -m studies.wrist --data FOLDER

Clients are the ten people of watch.npz, groups are recordings: one exercise with one arm, 14 for each person. All
recordings give the clusters that `pacfl cluster --group` reports. Then, many times, one arm is drawn at random for each
exercise of each person: half of the recordings. These are cut into as many clusters. A cluster is recovered if the same
people form one.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacfl import PACFLClustering
from pacfl.features.encoders import encode
from pacfl.subspace import adjusted_rand_index, agglomerate_into, proximity, rescale_by_noise, signature

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
ENCODERS = ("none", "standardise", "spectrum")


def halves(exercise: Labels, side: Labels, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which windows (n,) are in a half: one arm for each exercise."""
    arms = rng.integers(0, 2, int(exercise.max()) + 1)
    return np.asarray(side == arms[exercise])


def recovered(whole: Labels, half: Labels) -> tuple[int, int]:
    """How many clusters the half has too, and of how many."""
    sets = [frozenset(np.flatnonzero(whole == k).tolist()) for k in range(int(whole.max()) + 1)]
    found = {frozenset(np.flatnonzero(half == k).tolist()) for k in range(int(half.max()) + 1)}
    return sum(one in found for one in sets), len(sets)


def main() -> None:
    """Print a line for each encoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of watch.npz")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--rank", type=int, default=3)
    options = parser.parse_args()
    with np.load(options.data / "watch.npz") as arrays:
        x, exercise, subject, side = (arrays[name] for name in ("x", "y", "subject", "side"))
    exercise, subject, side = (one.astype(np.intp) for one in (exercise, subject, side))
    recording = exercise * 2 + side
    people = np.unique(subject).tolist()
    print("| encoder | clusters of people | not judged | recovered, mean | halves that recover all | ARI, mean |")
    print("|---|---|---|---|---|---|")
    for name in ENCODERS:
        rows = x.reshape(len(x), -1) if name == "none" else encode(name, x).reshape(len(x), -1)
        own = [np.flatnonzero(subject == one) for one in people]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fitted = PACFLClustering(rank=options.rank).fit(
                [rows[at] for at in own], None, [recording[at] for at in own]
            )
        judged = np.flatnonzero(fitted.labels_ >= 0)
        whole, noise = fitted.labels_[judged], fitted.federation_.clustering.noise_scale[judged]
        results = []
        for repeat in range(options.repeats):
            rng = np.random.default_rng([repeat, len(x)])
            chosen = [own[i][halves(exercise[own[i]], side[own[i]], rng)] for i in judged.tolist()]
            angles = proximity([signature(rows[at], options.rank) for at in chosen], fitted.measure_)
            again = agglomerate_into(rescale_by_noise(angles, noise), int(whole.max()) + 1)
            results.append((*recovered(whole, again), adjusted_rand_index(whole, again)))
        shares = np.array([hit / of for hit, of, _ in results])
        names = [",".join(str(people[judged[i]]) for i in np.flatnonzero(whole == k)) for k in range(whole.max() + 1)]
        ari, left = float(np.mean([index for *_, index in results])), len(people) - len(judged)
        recovery = f"{shares.mean():.0%} | {(shares == 1).mean():.0%}"
        print(f"| {name} | {'; '.join(names)} | {left} | {recovery} | {ari:.2f} |", flush=True)


if __name__ == "__main__":
    main()
