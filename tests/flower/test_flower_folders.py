"""Clusters, signatures and training of sites, from the folder of their server."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.errors import StoreError
from pacfl.experiment.federations import federation_in, server_federation
from pacfl.experiment.store import RunFolder, owned
from pacfl.exporting.export import export
from pacfl.flower.deploy import layout
from pacfl.flower.server import federate
from pacfl.folders import Folder, recognise
from pacfl.report.experiments import experiments
from pacfl.report.gather import gather
from tests.conftest import Run
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.flower.test_flower_server import NODES, config, records, state_of
from tests.small_federation import lively

pytest.importorskip("torch", reason="sites train, which needs torch")
pytestmark = pytest.mark.usefixtures("identity")

NAMES = tuple(f"site-{c:02d}" for c in range(6))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    federate(FakeGrid(client_loader(lively("pacfl"), tmp_path / "memory"), NODES), config(tmp_path / "f", rounds=2))
    return tmp_path / "f"


@pytest.fixture
def deployment(server: Path, tmp_path: Path) -> Path:
    layout.make(tmp_path / "study", NAMES)
    shutil.copytree(server, tmp_path / "study" / "server" / "federation")
    return tmp_path / "study"


def of(path: Path) -> Folder:
    found = recognise(path)
    assert found is not None
    return found


def test_signatures_and_clusters_are_those_of_the_checkpoint(server: Path) -> None:
    state, found = state_of(server), federation_in(of(server))
    assert found.names == NAMES
    assert found.clusters() == [list(NAMES[:3]), list(NAMES[3:])]
    for c, basis in enumerate(found.bases):
        np.testing.assert_array_equal(basis, state.bases[c])
    np.testing.assert_array_equal(found.clustering.proximity, state.clustering.proximity)
    assert found.explain("site-00", "site-05", "clients").kind == "inputs"


def test_reading_leaves_a_running_server_alone(server: Path, tmp_path: Path) -> None:
    """It owns the folder; arrays of a checkpoint that is being replaced may be missing, and are not deleted."""
    with owned(RunFolder(server)):
        before = sorted(server.rglob("*"))
        assert server_federation(of(server)).clusters() == [list(NAMES[:3]), list(NAMES[3:])]
        assert len(export(server, tmp_path / "export", input_shape=(1, 8, 8)).files) == 2
        assert sorted(server.rglob("*")) == before
    (server / "checkpoint.json").write_text('{"sha256": "", "body": {}}')
    before = sorted(server.rglob("*"))
    assert server_federation(of(server)).clusters() == [list(NAMES[:3]), list(NAMES[3:])]  # of the round before
    shutil.rmtree(server / "checkpoint")
    with pytest.raises(StoreError, match="has no finished round"):
        server_federation(of(server))
    assert (server / "checkpoint.json").exists()
    assert before


def test_show_and_explain_read_a_server_and_a_deployment(server: Path, deployment: Path, run: Run) -> None:
    for path, kind in ((server, "server"), (deployment, "deployment"), (deployment / "server", "server")):
        code, out, _ = run("show", path)
        assert (code, str(of(path)) in " ".join(out.split())) == (0, True)
        shown = json.loads(run("show", path, "--json")[1])
        assert (shown["kind"], shown["rounds"]) == (kind, {"done": 2, "planned": 2})
        assert shown["clusters"] == [list(NAMES[:3]), list(NAMES[3:])]
        assert shown["score"] == pytest.approx(records(server)[-1]["accuracy"]["received"]["mean"])
        explained = json.loads(run("explain", path, "0", "1", "--clusters", "--json")[1])
        assert (explained["kind"], explained["folder"]["kind"]) == ("inputs", kind)
        status = json.loads(run("status", path, "--json")[1])
        assert (status["kind"], status["phase"]) == (kind, "finished")


def test_without_signatures_clusters_are_shown_and_explaining_them_is_refused(tmp_path: Path, run: Run) -> None:
    load = client_loader(lively("fedavg"), tmp_path / "memory")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=1))
    assert json.loads(run("show", tmp_path / "f", "--json")[1])["clusters"] == [list(NAMES)]
    assert "site-05" in run("show", tmp_path / "f")[1]
    assert "fedavg asks for none" in " ".join(run("explain", tmp_path / "f", "site-00", "site-01")[2].split())
    found = gather([str(tmp_path / "f")], tmp_path)
    assert (len(found.runs), found.federations) == (1, ())


def test_a_server_without_a_finished_round_is_said_to_have_none(tmp_path: Path, run: Run) -> None:
    (tmp_path / "status.json").write_text("{}")
    for words in (["show", tmp_path], ["explain", tmp_path, "a", "b"], ["report", tmp_path, "-o", tmp_path / "r.html"]):
        code, _, err = run(*words)
        assert (code, "has no finished round" in " ".join(err.split())) == (1, True)
    assert not (tmp_path / "r.html").exists()


def test_a_report_has_the_training_and_the_clusters_of_named_sites(server: Path, deployment: Path, run: Run) -> None:
    found = gather([str(deployment)], Path("runs"))
    (trained,), (clusters,) = found.runs, found.federations
    assert trained.clients.names == clusters.clients.names == NAMES
    assert (trained.federation, clusters.name, trained.unfinished) == ("study", "study", None)
    last = records(server)[-1]
    for protocol in ("received", "personal"):
        own = [last["by_client"][protocol][str(c)][0] for c in range(6)]
        np.testing.assert_array_equal(trained.scores[protocol], own)
    assert [one.round for one in trained.evaluations] == [1, 2]
    assert trained.cluster_of.tolist() == clusters.clustering.clustering.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert trained.bytes_up == sum(record["bytes_up"] for record in records(server))
    assert not {"data", "model"} & set(trained.settings), "a server has only the defaults of these"
    (experiment,) = experiments(found.runs)
    assert experiment.title == "study: training at its sites"
    assert "Federation of 6 sites, each with its own data: all rounds are done" in experiment.description
    code, out, _ = run("report", deployment, "-o", deployment / "r.html", "--json")
    assert (code, json.loads(out)["kind"], json.loads(out)["federations"]) == (0, "deployment", ["study"])
    page = (deployment / "r.html").read_text()
    assert "site-03" in page
    assert "Clusters are those in which the sites train" in page


def test_a_report_of_a_running_federation_says_how_far_it_is(server: Path) -> None:
    """Scores by protocols that were evaluated in an earlier round only are not shown beside those of the last."""
    content: dict[str, Any] = json.loads((server / "status.json").read_text())
    (server / "status.json").write_text(json.dumps({**content, "rounds": 5}))
    trained = gather([str(server)], server).runs[0]
    assert trained.unfinished == (2, 5)
    again = {**records(server)[1], "round": 4}
    RunFolder(server).append(again)  # a third round, after a delivery
    trained = gather([str(server)], server).runs[0]
    assert trained.unfinished == (3, 5)
    assert set(trained.scores) == set(again["by_client"]) == {"received", "last_trained"}
    (experiment,) = experiments([trained])
    assert experiment.rows[0].progress == "round 3 of 5"


def test_late_deliveries_update_their_sites_only(server: Path) -> None:
    last = records(server)[-1]
    late = {**last, "round": 4}
    late["by_client"] = {p: {"2": [0.875, 0.5]} for p in last["by_client"]}
    late["accuracy"] = {p: {"mean": 0.875, "std": 0.0, "worst_tenth": 0.875} for p in last["by_client"]}
    RunFolder(server).append(late)
    before, trained = last["by_client"]["received"], gather([str(server)], server).runs[0]
    assert trained.scores["received"].tolist() == [0.875 if c == "2" else before[c][0] for c in sorted(before)]
    assert trained.evaluations[-1].means["accuracy"]["received"] == last["accuracy"]["received"]["mean"]
