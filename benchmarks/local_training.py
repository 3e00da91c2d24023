"""Speed of local training, beside its peers: `python -m benchmarks.local_training [PART ...] [--repeats 5] ...`.

All rows of a table are timed in one run, interleaved, so that other load slows them equally.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import training_peers as peers
from benchmarks.timing import CORES, Times, busy, interleaved, rates, spread
from benchmarks.training_runs import published, whole_run
from benchmarks.training_work import LEARNING, NETS, Net, clients, flops
from pacfl.learning.client_context import Engine, GradientTerms, LocalTraining
from pacfl.learning.eager import Eager
from pacfl.learning.engines import build_engine


def product(n: int = 1024) -> Callable[[], object]:
    """Ten matrix products by torch on all cores."""
    a, b = (torch.randn(n, n) for _ in range(2))

    def multiply() -> None:
        with peers.threads(CORES):
            for _ in range(10):
                torch.mm(a, b)

    return multiply


def speed(args: argparse.Namespace) -> None:
    """SGD steps per second, for every net."""
    for name in args.nets:
        net = NETS[name]
        large = name == "resnet9"
        n_clients, n_samples = (4, 50) if large else (args.clients, args.samples)
        pool = clients(net, n_clients, n_samples)
        steps = n_clients * -(-n_samples // LEARNING.batch_size)
        with ExitStack() as stack:
            tasks: dict[str, Callable[[], object]] = {
                f"DataLoader, eager, {CORES} threads": peers.loaders(net, pool, CORES),
                "DataLoader, eager, 1 thread": peers.loaders(net, pool, 1),
                "the authors' loop, images transformed one by one": peers.images(net, pool, CORES),
                f"our eager engine, {CORES} processes": stack.enter_context(peers.ours(net, pool, "eager", CORES)),
            }
            if not large:
                for workers in {1, CORES}:
                    own = stack.enter_context(peers.ours(net, pool, "native", workers))
                    tasks[f"our native engine, {workers} threads"] = own
            if args.flower and find_spec("flwr"):
                simulated = stack.enter_context(peers.flower(name, n_clients, n_samples, CORES))
                tasks[f"Flower on Ray, {CORES} processes"] = lambda: simulated.train(simulated.nodes)  # noqa: B023
            tasks["matrix product"] = product()
            times = interleaved(tasks, args.repeats)
        _print_speed(net, times, steps, flops(net), f"{n_clients} clients of {n_samples} samples")


def _print_speed(net: Net, times: Times, steps: int, work: int, size: str) -> None:
    base = median(next(iter(times.values())))
    peak = 10 * 2 * 1024**3 / median(times["matrix product"])
    print(f"\n{net.name}; {size}, batch {LEARNING.batch_size}; {len(next(iter(times.values())))} repeats; {busy()}.\n")
    print("| | steps per second | times DataLoader eager | of the product's speed |\n|---|---|---|---|")
    for name, seconds in times.items():
        if name != "matrix product":
            share = f"{100 * steps / median(seconds) * work / peak:.0f} %"
            print(f"| {name} | {rates(seconds, steps)} | {base / median(seconds):.1f} | {share} |")
    print(f"| matrix product, {peak / 1e9:,.0f} GFLOP/s | {peak / work:,.3g} allowed | | 100 % |")


def evaluation(args: argparse.Namespace) -> None:
    """Images evaluated per second, for many models."""
    net = NETS["lenet5-3x32x32"]
    model, pool = net.model(), clients(net, 1, 10, n_test=args.images)
    module = model.build().eval()
    test = TensorDataset(torch.tensor(pool.test.x), torch.tensor(pool.test.y))

    @torch.no_grad()
    def eager() -> None:
        with peers.threads(CORES):
            for _ in range(args.models):
                for x, y in DataLoader(test, 32):
                    torch.nn.functional.cross_entropy(module(x), y, reduction="none")

    native = build_engine("native", model, net.shape)
    with ThreadPoolExecutor(CORES) as threads:
        tasks = {
            "DataLoader, eager, batch 32": eager,
            "our native engine": lambda: list(
                threads.map(lambda _: native.evaluate(model.initial, pool.test), range(args.models))
            ),
        }
        times = interleaved(tasks, args.repeats)
    base, images = median(times["DataLoader, eager, batch 32"]), args.models * args.images
    print(f"\nEvaluation: {args.models} clients of {args.images} images, {net.name}; {busy()}.\n")
    print("| | images per second | times DataLoader eager |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {rates(seconds, images)} | {base / median(seconds):.1f} |")


def agreement(args: argparse.Namespace) -> None:
    """Difference of the weights after 50 steps by both engines, with every term of `sgd`; and by one and all threads.

    Where two inputs of a maximum or a ReLU are equal up to rounding, the next step may take another branch. The last
    column shows how far this alone leads: the eager engine from weights that differ by a rounding error.
    """
    learning = LocalTraining(batch_size=10, lr=0.01, momentum=0.5)
    print("\nLargest difference from the eager engine after 50 steps, median (range) of", args.repeats, "data sets.\n")
    kinds = ("plain", "prox", "gradient_correction", "inner_step", "eager, weights 1e-8 away")
    print(f"| | {' | '.join(kinds)} | 1 and {CORES} threads |\n|---|{'---|' * (len(kinds) + 1)}")
    for name in (n for n in args.nets if n != "resnet9"):
        net = NETS[name]
        model = net.model()
        both: list[Engine] = [Eager(model), build_engine("native", model, net.shape)]
        twice: list[Engine] = [Eager(model)] * 2
        apart = {
            kind: [
                _apart(twice if kind == kinds[-1] else both, net, kind, seed, learning) for seed in range(args.repeats)
            ]
            for kind in kinds
        }
        pool = clients(net, 4, 50)
        trained = []
        for workers in (1, CORES):
            with peers.ours(net, pool, "native", workers) as train:
                uploads = train()
                trained.append([u.content["w"].tobytes() for u in uploads])  # type: ignore[attr-defined]  # uploads
        equal = "equal to the bit" if trained[0] == trained[1] else "differ"
        print(f"| {net.name} | {' | '.join(spread(apart[kind]) for kind in kinds)} | {equal} |")


def _apart(both: list[Engine], net: Net, kind: str, seed: int, learning: LocalTraining) -> float:
    with peers.threads(1):
        rng = np.random.default_rng(seed)
        samples = clients(net, 1, 100, seed=seed).train
        w = net.model().initial
        some = rng.normal(scale=0.01, size=w.shape).astype(np.float32)
        terms = GradientTerms(
            prox=(0.1, w + some) if kind == "prox" else None,
            gradient_correction=some if kind == "gradient_correction" else None,
            inner_step=0.01 if kind == "inner_step" else None,
        )
        order = np.stack([rng.permutation(100) for _ in range(5)])
        starts = (w, w + 1e-6 * some if "away" in kind else w)
        one, other = (e.sgd(start, samples, order, learning, terms) for e, start in zip(both, starts, strict=True))
        return float(np.abs(one - other).max())


def growth(args: argparse.Namespace) -> None:
    """The same work, split among few clients or many."""
    net = NETS["lenet5-3x32x32"]
    learning = replace(LEARNING, epochs=5)  # as in the paper
    total = args.clients * args.samples
    with ExitStack() as stack:
        tasks = {}
        for n in (10, 20, 50, 100):
            pool = clients(net, n, total // n)
            tasks[str(n)] = stack.enter_context(peers.ours(net, pool, "native", CORES, learning))
        times = interleaved(tasks, args.repeats)
    print(
        f"\nGrowth: {total} samples of {net.name}, {learning.epochs} epochs, split among so many clients; {busy()}.\n"
    )
    print("| clients | steps per second |\n|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {rates(seconds, learning.epochs * total / learning.batch_size)} |")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "speed": speed,
    "evaluation": evaluation,
    "agreement": agreement,
    "growth": growth,
    "whole-run": lambda args: whole_run(args.data, args.rounds),
    "published": lambda args: published(args.rounds, args.repeats, args.flower),
}


def main() -> None:
    """Print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=[n for n in NETS if n != "small-cnn"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--models", type=int, default=100, help="evaluated models")
    parser.add_argument("--images", type=int, default=2000, help="images per evaluated model")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of whole-run and published")
    parser.add_argument("--data", type=Path, help="folder with data sets, for whole-run")
    parser.add_argument("--flower", action="store_true", help="also run Flower's simulation on Ray")
    args = parser.parse_args()
    for part in args.parts or PARTS:
        PARTS[part](args)


if __name__ == "__main__":
    main()
