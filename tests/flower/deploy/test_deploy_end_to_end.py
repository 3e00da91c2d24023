"""Real processes on loopback, with TLS and authentication: the long tests.

pytest -m slow -s tests/flower/deploy prints the rows of a table in docs/deployment.md.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from flwr.app import Context, RecordDict
from loopback_federation import Loopback, deployed, rejected_node
from lying_site import hostile_worker

from pacfl.flower import digits
from pacfl.flower.deploy import loopback

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

DEADLINE = 40.0
LEARNING = {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5}


def schedule(rounds: int) -> dict[str, object]:
    return {"rounds": rounds, "participation": 1.0}


@pytest.mark.slow
def test_joining_refusals_kills_and_restarts(short_path: Path) -> None:
    federation = {"minimum-clients": 2, "deadline": DEADLINE}
    with deployed(short_path, 5, {"federation": federation, "schedule": schedule(400), "learning": LEARNING}) as sites:
        print_row(
            "start, TLS and authentication on", "server, 4 sites and a run", timed(lambda: sites.start([0, 1, 2, 3]))
        )
        print_row("4 sites, 2 clusters", "round 3 done", sites.wait_for_round(3, 300))
        assert sites.cluster(0) == sites.cluster(2) != sites.cluster(1) == sites.cluster(3)
        joins(sites)
        refusals(sites)
        is_killed_in_mid_round(sites)
        returns(sites)
        server_is_killed(sites)
        clusters = [sites.cluster(i) for i in range(5)]
        assert clusters == [clusters[0], clusters[1], clusters[0], clusters[1], clusters[0]]
        assert [r["round"] for r in sites.records] == list(range(1, len(sites.records) + 1))


@pytest.mark.slow
def test_three_sites_end_with_models_that_score_what_the_server_reported(short_path: Path) -> None:
    """One of them is away at the end and returns later. The models are loaded by torch alone."""
    federation = {"minimum-clients": 2, "deadline": DEADLINE}
    with deployed(short_path, 3, {"federation": federation, "schedule": schedule(3), "learning": LEARNING}) as sites:
        sites.start([0, 1, 2])
        sites.wait_for_round(1, 300)
        sites.kill(loopback.site("2"))
        sites.wait("the end without site 2", lambda: sites.status["phase"] == "delivering models", 300)
        assert not (short_path / "sites" / "2" / "models").exists()
        loopback.start_site(short_path, "2")
        print_row(
            "a site that was away at the end returns",
            "it gets its models",
            sites.wait("the end", lambda: sites.status["phase"] == "finished", 300),
        )
        for i in range(3):
            client = str(sites.number(i))
            reported = [r["by_client"] for r in sites.records if client in r.get("by_client", {}).get("personal", {})]
            data = digits.load_data(Context(0, 0, {"partition-id": i}, RecordDict(), {}))
            for name, protocol in (("cluster", "received"), ("personal", "personal")):
                module = torch.export.load(short_path / "sites" / str(i) / "models" / f"{name}.pt2").module()
                with torch.no_grad():
                    right = module(torch.from_numpy(data.x_test)).argmax(dim=1).numpy() == data.y_test
                assert right.mean() == reported[-1][protocol][client][0]


@pytest.mark.slow
def test_two_of_four_sites_with_permuted_labels_are_a_cluster_of_their_own(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the same inputs, so that only classes show it. Learning apart, all of them learn."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    federation = {"minimum-clients": 4, "deadline": DEADLINE, "task": "permuted_digits"}
    with deployed(short_path, 4, {"federation": federation, "schedule": schedule(10), "learning": LEARNING}) as sites:
        sites.start([0, 1, 2, 3])
        seconds = sites.wait("the end", lambda: sites.status["phase"] == "finished", 600)
        assert sites.cluster(0) == sites.cluster(2) != sites.cluster(1) == sites.cluster(3)
        received = [accuracy for accuracy, _ in sites.records[-1]["by_client"]["received"].values()]
        print_row(
            "two of four sites have permuted labels", f"two clusters, accuracies from {min(received):.2f}", seconds
        )
        assert len(received) == 4
        assert min(received) > 0.8  # a model for all would be wrong about half of them


@pytest.mark.slow
def test_a_hostile_site_is_refused_and_named_and_the_others_continue(short_path: Path) -> None:
    federation = {"minimum-clients": 2, "deadline": DEADLINE}
    with (
        deployed(short_path, 3, {"federation": federation, "schedule": schedule(10), "learning": LEARNING}) as sites,
        hostile_worker(short_path / "sites" / "2"),
    ):
        sites.start([0, 1, 2])
        sites.wait_for_round(2, 300)
        before = sites.peak_memory()
        sites.wait_for_round(4, 300)
        grown = {name: peak - before[name] for name, peak in sites.peak_memory().items()}
        sites.wait("the end", lambda: sites.status["phase"] == "finished", 600)
        hostile = sites.number(2)
        failures = [x["what"] for record in sites.records for x in record["reply_failures"] if x["client"] == hostile]
        for why in ("more than 67,108,864 bytes", "NaN or infinite", r"shape \(2409,\)", "has norm", "is for round 77"):
            print_row(f"a reply over the network: {why}", next(what for what in failures if re.search(why, what)), 0)
        assert len([what for what in failures if "bytes of arrays" in what]) == 2, failures
        print_row(
            "memory, of a reply of 256 MiB",
            f"ServerApp {grown['serverapp']}, SuperLink {grown['superlink']} MiB more",
            0,
        )
        assert grown["serverapp"] < 192  # it stops at 64, and Flower has a few copies
        assert all(x["client"] == hostile for record in sites.records for x in record["reply_failures"])
        assert sites.cluster(2) == sites.cluster(0) != sites.cluster(1)  # its last replies are honest


def joins(sites: Loopback) -> None:
    """A fifth, of the first domain."""
    before = {i: sites.cluster(i) for i in range(4)}
    sites.join(4)
    seconds = sites.wait("the fifth joins", lambda: sites.cluster(4) is not None, 120)
    assert sites.cluster(4) == before[0]
    assert {i: sites.cluster(i) for i in range(4)} == before
    print_row(
        "a fifth site joins in mid-run", f"in cluster {sites.cluster(4)}, that of its domain; nobody moved", seconds
    )


def refusals(sites: Loopback) -> None:
    for kind in ("none", "unknown", "in use"):
        start = time.monotonic()
        message = rejected_node(sites, kind)
        print_row(f"a node with a key: {kind}", f"refused: {message}", time.monotonic() - start)
    assert len(sites.status["clients"]) == 5


def is_killed_in_mid_round(sites: Loopback) -> None:
    """As soon as it has received a model to train."""
    number = sites.number(1)
    trained = sites.log(1).count("Receiving: train")
    sites.wait("site 1 is given a training", lambda: sites.log(1).count("Receiving: train") > trained, 120)
    t = len(sites.records)
    sites.kill(loopback.site("1"))
    seconds = sites.wait_for_round(t + 1, DEADLINE + 60)
    record = sites.records[t]
    assert seconds < DEADLINE + 15
    assert [x["client"] for x in record["reply_failures"]] == [number], record
    assert number in record["sampled"]
    print_row("a site is killed in mid-round", f"round ends without it: {record['reply_failures'][0]['what']}", seconds)


def returns(sites: Loopback) -> None:
    before, n_signatures = (sites.number(1), sites.cluster(1)), sites.log(1).count("query.signature")
    gone = sites.wait("site 1 is missed", lambda: not sites.status["clients"][str(before[0])]["alive"], 180)
    loopback.start_site(sites.folder, "1")

    def trains_again() -> bool:
        last = sites.records[-1]
        return before[0] in last["sampled"] and before[0] not in [x["client"] for x in last["reply_failures"]]

    seconds = sites.wait("site 1 trains again", trains_again, 180)
    assert (sites.number(1), sites.cluster(1)) == before
    assert sites.log(1).count("query.signature") == n_signatures
    print_row("it is missed", "no longer sampled", gone)
    print_row("it returns", f"client {before[0]} in cluster {before[1]} as before, signature not asked again", seconds)


def server_is_killed(sites: Loopback) -> None:
    """With its ServerApp, in the middle of a round."""
    clusters = [sites.cluster(i) for i in range(5)]
    sites.kill(loopback.SERVER)
    done = len(sites.records)
    start = time.monotonic()
    loopback.start_server(sites.folder)
    loopback.begin(sites.folder)
    sites.wait_for_round(done + 2, 300)
    assert [r["round"] for r in sites.records] == list(range(1, len(sites.records) + 1))
    assert [sites.cluster(i) for i in range(5)] == clusters
    lost = sum(len(r["reply_failures"]) for r in sites.records[done:])
    print_row(
        "the SuperLink is killed and restarted",
        f"resumed with round {done}, none lost or run twice, same clusters, {lost} replies missing",
        time.monotonic() - start,
    )


def timed(do: object) -> float:
    start = time.monotonic()
    do()  # type: ignore[operator]
    return time.monotonic() - start


def print_row(what: str, happened: str, seconds: float) -> None:
    print(f"| {what} | {happened} | {seconds:.0f} s |", flush=True)


def test_the_scripts_of_flower_are_where_this_python_is() -> None:
    found = subprocess.run(
        ["which", "flower-superexec"], env=loopback._environment(), capture_output=True, text=True, check=False
    )
    assert found.stdout.startswith(str(Path(sys.executable).parent))
