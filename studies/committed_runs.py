"""Do committed runs give the same bytes again? `python -m studies.committed_runs mix4 mix4m --data FOLDER`.

Runs of an item's committed results are run again with today's code. Everything that was committed of a run, apart from
the seconds it took, must be the same.
"""

import argparse
import json
import tempfile
from pathlib import Path

from pacfl.experiment.run import resume
from pacfl.experiment.store import folder_of
from pacfl.federation.local import LocalBackend
from pacfl.reproduce.items import item
from pacfl.reproduce.outcome import load, outcome
from pacfl.reproduce.planning import plan, with_chosen

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Print every run with whether it is the same; exit with 1 if one is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("item", help="of `pacfl reproduce`, as mix4")
    parser.add_argument("column", help="of its table, as mix4m")
    parser.add_argument("--method", action="append", help="as in the table; may be repeated. Default: the first five")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    wanted, committed = item(args.item), load(RESULTS, args.item, "paper")
    if committed is None:
        raise SystemExit(f"{RESULTS} has no results of {args.item}")
    runs = {run["method"]: run for run in committed["runs"] if (run["column"], run["seed"]) == (args.column, args.seed)}
    chosen = {t["method"]: t["chosen"] for t in committed["tuning"] if t["column"] == args.column}
    planned = {one.method: one for one in plan(wanted, args.column, "paper") if one.run.seed == args.seed}
    different = []
    for method in args.method or list(runs)[:5]:
        one = with_chosen(planned[method], chosen)
        with tempfile.TemporaryDirectory() as name:
            for _ in resume(one.run, folder_of(one.run, Path(name)), args.data, LocalBackend(args.workers)):
                pass
            (again,) = outcome(wanted, "paper", {}, [one], [], Path(name))["runs"]
        old, new = ({k: v for k, v in run.items() if k != "seconds"} for run in (runs[method], again))
        differs = [key for key in {**old, **new} if json.dumps(old.get(key)) != json.dumps(new.get(key))]
        different += differs
        print(f"{method} {one.run.hash}: {'the same bytes' if not differs else f'differs in {differs}'}", flush=True)
    raise SystemExit(bool(different))


if __name__ == "__main__":
    main()
