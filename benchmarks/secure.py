"""What secure aggregation costs: python -m benchmarks.secure [--clients 5 10 20] [--weights 2410 62006].

One session for each number of clients, on one core and without a network: seconds of a client and of the server, and
bytes beside the masked words. One client is lost after it has shared its keys, which is the most work for the server.
"""

import argparse
import time
from statistics import median

import numpy as np

from pacfl.privacy import secret
from pacfl.secure import simulation
from pacfl.secure.identity import Identity

NUMBERS = 10_000


def main() -> None:
    """Print a row for each model and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--weights", type=int, nargs="+", default=[2410, 62006])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    print("| weights | clients | masked words, bytes up | float32 instead | more up | more down | client | server |")
    print("|---|---|---|---|---|---|---|---|")
    for d in args.weights:
        for n in args.clients:
            print(row(d, n, args.repeat), flush=True)
    started = time.process_time()
    secret(2**72, NUMBERS)
    print(f"\nnoise: {(time.process_time() - started) / NUMBERS * 1e6:.0f} µs of a client for each number")


def row(d: int, n: int, repeat: int) -> str:
    """A row of the table: medians of some sessions."""
    rng, owners = np.random.default_rng(0), [Identity.ephemeral() for _ in range(n)]
    words = [rng.integers(0, 2**64, d + 1, dtype=np.uint64) for _ in range(n)]
    runs = [simulation.run(words, {"mask": [0]}, owners) for _ in range(repeat)]
    client, server = (median(getattr(run, f"{who}_seconds") for run in runs) for who in ("client", "server"))
    up, down = (getattr(runs[0], f"bytes_{way}") / n for way in ("up", "down"))
    cells = (f"{d:,}", n, f"{8 * (d + 1):,}", f"{4 * d:,}", f"{up:,.0f}", f"{down:,.0f}")
    return f"| {' | '.join(map(str, cells))} | {client / n:.3f} s | {server:.3f} s |"


if __name__ == "__main__":
    main()
