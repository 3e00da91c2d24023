"""Secure aggregation between real processes, with TLS and the keys of the sites.

pytest -m slow -s tests/flower/deploy/test_deploy_secure.py prints the rows of a table in docs/deployment.md.
"""

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from loopback_federation import Loopback, deployed

from pacfl.flower.deploy import loopback, trust

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

DEADLINE = 60.0


def settings(secure: bool, rounds: int) -> dict[str, dict[str, object]]:
    return {
        "federation": {"minimum-clients": 3, "deadline": DEADLINE},
        "algorithm": {"name": "fedavg"},
        "aggregation": {"secure": secure},
        "learning": {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
        "schedule": {"rounds": rounds, "participation": 1.0},
    }


def seconds_a_round(sites: Loopback) -> float:
    times = [record["at"] for record in sites.records]
    return median(after - before for before, after in pairwise(times))


def failures(sites: Loopback, t: int) -> list[str]:
    """What went wrong until a round."""
    return [failure["what"] for record in sites.records[: t + 1] for failure in record["reply_failures"]]


@pytest.mark.slow
def test_sites_are_summed_lost_restarted_and_refuse_whom_they_do_not_trust(short_path: Path) -> None:
    with deployed(short_path, 4, settings(True, 400)) as sites:
        sites.start([0, 1, 2, 3])
        sites.wait_for_round(4, 600)
        assert failures(sites, 3) == []
        assert "size" not in (short_path / "sites" / "0" / "sent.jsonl").read_text()
        print(f"\n| four sites, secure | seconds a round | {seconds_a_round(sites):.1f} |")

        sites.kill(loopback.site("3"))
        t = len(sites.records)
        seconds = sites.wait_for_round(t + 2, 600)
        assert not any("no secure sum" in what for what in failures(sites, t + 1))
        print(f"| a site of four is killed | the sum is of three | {seconds:.1f} |")

        sites.join(3)
        sites.kill(loopback.SERVER)
        t = len(sites.records)
        loopback.start_server(short_path)
        loopback.begin(short_path)
        seconds = sites.wait_for_round(t + 2, 600)
        assert [r["round"] for r in sites.records] == list(range(1, len(sites.records) + 1))
        print(f"| the server is killed and started again | it resumes | {seconds:.1f} |")

        listed = short_path / "sites" / "1" / trust.FILE
        before = listed.read_text()
        listed.write_text("".join(line for line in before.splitlines(True) if not line.endswith(" 0\n")))
        sites.wait("site 1 refuses", lambda: "is not among the sites" in str(failures(sites, 10**6)), 600)
        listed.write_text(before)
        named = [what for what in failures(sites, 10**6) if "is not among the sites" in what]
        assert sites.identity(0) in named[0]


@pytest.mark.slow
def test_a_round_without_secure_aggregation_for_comparison(short_path: Path) -> None:
    with deployed(short_path, 4, settings(False, 5)) as sites:
        sites.start([0, 1, 2, 3])
        sites.wait_for_round(5, 600)
        print(f"\n| four sites, plain | seconds a round | {seconds_a_round(sites):.1f} |")
        assert failures(sites, 4) == []
