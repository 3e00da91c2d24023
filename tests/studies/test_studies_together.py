"""The page shows the outcomes that are committed."""

import json
from pathlib import Path

from studies.together import MIXED_SETS, MIXES, SETS, SHIFTS, table

ROOT = Path(__file__).parents[2]
STORE = ROOT / "results" / "studies" / "together.jsonl"


def test_the_page_has_the_table_of_the_committed_outcomes() -> None:
    found = [json.loads(line) for line in STORE.read_text(encoding="utf-8").splitlines()]
    assert "\n".join(table(found)) in (ROOT / "docs" / "together.md").read_text(encoding="utf-8")


def test_no_federation_and_no_seed_is_left_out() -> None:
    found = [json.loads(line) for line in STORE.read_text(encoding="utf-8").splitlines()]
    wanted = {(name, shift, seed) for seed in range(10) for name in SETS for shift in SHIFTS}
    wanted |= {(MIXED_SETS, shift, seed) for seed in range(10) for shift in MIXES}
    assert sorted((o["set"], o["shift"], o["seed"]) for o in found) == sorted(wanted)
