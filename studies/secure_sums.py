"""What a server learns from secure sums with noise: python -m studies.secure_sums, the table of docs/privacy.md.

Epsilon at delta 1e-5 for the data of a client that is in some sums, with the noise of a sum in clip norms. Beside it,
how long the noise on the mean of all clients is, against that of clients who hide from the server alone.
"""

from math import sqrt

from pacfl.privacy.accounting import epsilon_of_sums, epsilon_of_uploads
from pacfl.privacy.limits import threshold

DELTA = 1e-5
SIGNATURE = 2.0  # epsilon of a private signature
SUMS = (1, 20, 100)


def main() -> None:
    """Print a row for each number of clients and amount of noise."""
    cells = ("clients", "stay", "z", *(f"{times} sums" for times in SUMS), "20, one colludes", "with a signature")
    print(f"| {' | '.join(cells)} | noise of the mean | without masks |")
    print("|" + "---|" * (len(cells) + 2))
    for n in (5, 10, 20):
        for z in (5.0, 20.0):
            print(row(n, z))


def row(n: int, z: float) -> str:
    """Epsilons; and the standard deviation of the mean of n clients, in clip norms, with masks and without."""
    stay = threshold(n)
    epsilons = [epsilon_of_sums(z, times, DELTA, n) for times in SUMS]
    epsilons += [epsilon_of_sums(z, 20, DELTA, n, colluding=1), epsilons[1] + SIGNATURE]
    assert epsilons[1] == epsilon_of_uploads(z, 20, DELTA)  # clients who hide alone need z each
    noises = (z * sqrt(n / stay) / n, z * sqrt(n) / n)
    shown = [str(n), str(stay), f"{z:g}", *(f"{e:.2f}" for e in epsilons), *(f"{noise:.2f}" for noise in noises)]
    return f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
