"""Seconds of the processor and peak memory of `pacfl sign` on large files, for several shapes, types and options.

python -m benchmarks.sign_large --features 16 256 3072 50000 --types float32 uint8 --options all
python -m benchmarks.sign_large --images 100000
python -m benchmarks.sign_large --features 256 --repeats 3 --before ../before/src

Files are made in a temporary folder (TMPDIR) and deleted. Each run is a process of its own; runs of two versions
alternate. Seconds of the processor, not of the clock: other work on the machine hardly changes them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

import pacfl
from benchmarks.timing import busy, spread

PROGRAM = "from pacfl.cli import main; main()"
TILE: Final = 1 << 26  # bytes that are drawn at random; the file repeats them
CLASSES, OF_GROUP = 10, 100
OPTIONS: Final = {
    "none": (),
    "labels": ("--labels", "labels.npy"),
    "group": ("--group", "groups.npy"),
    "both": ("--labels", "labels.npy", "--group", "groups.npy"),
    "blocks": ("--blocks", "100"),
    "normalise": ("--preprocess", "normalise"),
    "unit": ("--preprocess", "unit"),
    "standardise": ("--encoder", "standardise"),
}


def write(folder: Path, gigabytes: float, features: int, dtype: str) -> int:
    """x.npy with a few leading directions, as images have, and labels.npy and groups.npy; the number of samples."""
    size = np.dtype(dtype).itemsize
    n = int(gigabytes * 1e9 / size / features)
    rng = np.random.default_rng(0)
    strength = (1 / np.arange(1, 33)).astype(np.float32)[:, None] * rng.standard_normal((32, features), np.float32)
    rows = min(max(TILE // size // features, 64), n)
    tile = 1 + rng.standard_normal((rows, 32), np.float32) @ strength
    tile += 0.2 * rng.standard_normal((rows, features), np.float32)
    if dtype == "uint8":
        tile = np.clip(100 + 20 * tile, 0, 255)
    tile = tile.astype(dtype)
    array = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=dtype, shape=(n, features))
    for start in range(0, n, rows):
        array[start : start + rows] = tile[: n - start]
    array.flush()
    np.save(folder / "labels.npy", rng.integers(0, CLASSES, n, np.uint8))
    np.save(folder / "groups.npy", (np.arange(n, dtype=np.int64) // OF_GROUP).astype(np.int32))
    return n


def draw(folder: Path, n: int) -> None:
    """Small images of colours that change slowly, as photographs have."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for k in range(n):
        own = folder / f"{k // 1000:03}"
        own.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
        coarse.resize((32, 32), Image.Resampling.BILINEAR).save(own / f"{k}.png")


def signed(words: list[str], folder: Path, source: Path) -> tuple[float, float]:
    """Seconds of the processor and peak megabytes of one process that signs data."""
    command = [sys.executable, "-c", PROGRAM, "sign", *words, "-o", "x.sig", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return float("nan"), used.ru_maxrss / 1000
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


def measure(name: str, words: list[str], folder: Path, versions: dict[str, Path], repeats: int) -> None:
    """Print a line for each version, and the ratio of their seconds."""
    runs: dict[str, list[tuple[float, float]]] = {version: [] for version in versions}
    for _ in range(repeats):
        for version, source in versions.items():
            runs[version].append(signed(words, folder, source))
    for version, measured in runs.items():
        seconds = spread([s for s, _ in measured]) if repeats > 1 else f"{measured[0][0]:.1f}"
        print(f"| {name} | {version} | {seconds} s | {max(mb for _, mb in measured):,.0f} MB |", flush=True)
    if len(versions) > 1:
        ratios = [b[0] / a[0] for a, b in zip(*runs.values(), strict=True)]
        print(f"times faster than before, median of interleaved pairs: {median(ratios):.2f}")


def main() -> None:
    """Make the files, and print lines of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--features", type=int, nargs="+", default=[3072])
    parser.add_argument("--types", nargs="+", choices=("float32", "uint8"), default=["float32"])
    parser.add_argument("--options", nargs="+", choices=("all", *OPTIONS), default=["none"])
    parser.add_argument("--images", type=int, help="sign a folder of so many images instead")
    parser.add_argument("--before", type=Path, help="the folder src of another version")
    parser.add_argument("--repeats", type=int, default=1)
    asked = parser.parse_args()
    versions = {"now": Path(pacfl.__file__).parents[1]} | ({"before": asked.before.resolve()} if asked.before else {})
    options = list(OPTIONS) if "all" in asked.options else asked.options
    print(busy())
    if asked.images:
        with tempfile.TemporaryDirectory(prefix="pacfl-") as folder:
            images = Path(folder) / "images"
            images.mkdir()
            draw(images, asked.images)
            for name in (name for name in options if name in ("none", "normalise", "unit", "standardise")):
                words = ["images", *OPTIONS[name]]
                measure(f"{asked.images:,} images, {name}", words, images.parent, versions, asked.repeats)
        return
    for features in asked.features:
        for dtype in asked.types:
            with tempfile.TemporaryDirectory(prefix="pacfl-") as folder:
                with ProcessPoolExecutor(1) as apart:  # a process counts the peak memory of its parent as its own
                    n = apart.submit(write, Path(folder), asked.gigabytes, features, dtype).result()
                for name in options:
                    what = f"{n:,} x {features:,} | {dtype} | {name}"
                    measure(what, ["x.npy", *OPTIONS[name]], Path(folder), versions, asked.repeats)


if __name__ == "__main__":
    main()
