"""Several kinds of test samples in one training: each has the scores of a run with that kind alone, to the bit."""

import doctest
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import pacfl
from pacfl.data import Dirichlet, Given, from_arrays, partition
from pacfl.errors import ConfigError
from pacfl.experiment import tested_on
from pacfl.experiment.config import Run, expand, from_content
from pacfl.experiment.run import resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.experiment.tested_on import choose, kinds, on_test
from pacfl.federation import rounds as rounds_module
from pacfl.federation.client_side import ClientSide, PredictionCache
from pacfl.federation.local import LocalBackend
from pacfl.report.experiments import experiments
from pacfl.report.gather import gather
from pacfl.report.page import page
from tests.conftest import Run as Command
from tests.experiment.tables import only, table

BOTH = ["owned", "proportional"]
SCHEMES: dict[str, Any] = {
    "dirichlet": {"kind": "dirichlet", "alpha": 0.3},
    "by-set": {"kind": "by-set", "counts": [2, 2, 2, 2], "size": 40, "per-class": False},
    "groups": {"kind": "dirichlet", "alpha": 0.5, "groups": {"rotate": [0, 90], "permute-labels": 2}},
    "label skew": {"kind": "label-skew", "share": 0.3},
}
SCHEDULE = {"rounds": 2, "participation": 0.5, "evaluate-every": 1, "newcomers": 1}


def one(test: Any, scheme: str = "groups", algorithm: str = "fedavg", **sections: Any) -> Run:
    data = {"scheme": SCHEMES[scheme], "samples": 800, "test": test}
    return only(
        table(data=data, model={"name": "logistic"}, schedule=SCHEDULE, algorithm=[{"name": algorithm}], **sections)
    )


def finished(run: Run, runs: Path, workers: int = 1) -> RunFolder:
    folder = folder_of(run, runs)
    for _ in resume(run, folder, backend=LocalBackend(workers)):
        pass
    return folder


def scored(folder: RunFolder, kind: str | None) -> list[dict[str, Any]]:
    """Records and result on a kind of test samples, without what names the run or the kind."""
    return [_plain(on_test(stored, kind)) for stored in (*folder.records(), folder.result() or {})]


def _plain(stored: dict[str, Any]) -> dict[str, Any]:
    names = ("test", "tests", "hash", "seconds")
    return {k: _plain(v) if isinstance(v, dict) else v for k, v in stored.items() if k not in names}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("test", [BOTH, ["proportional", "global", "owned"]], ids=", ".join)
def test_every_kind_has_the_scores_of_a_run_with_that_kind_alone(scheme: str, test: list[str], tmp_path: Path) -> None:
    several = finished(one(test, scheme), tmp_path)
    for i, kind in enumerate(test):
        alone = finished(one(kind, scheme), tmp_path)
        assert scored(several, kind if i else None) == scored(alone, None)
    last = several.records()[2]
    assert len({json.dumps(on_test(last, kind)["by_client"]) for kind in (None, *test[1:])}) == len(test), "they differ"


@pytest.mark.parametrize("algorithm", ["pacfl", "ifca", "fedavg-ft", "per-fedavg", "solo"])
def test_so_it_is_for_algorithms_with_a_personalisation_or_a_choice_of_their_own(
    algorithm: str, tmp_path: Path
) -> None:
    several = finished(one(BOTH, algorithm=algorithm), tmp_path, workers=2)
    assert scored(several, None) == scored(finished(one("owned", algorithm=algorithm), tmp_path), None)
    proportional = finished(one("proportional", algorithm=algorithm), tmp_path)
    assert scored(several, "proportional") == scored(proportional, None)


def test_other_metrics_are_of_each_kind_too(tmp_path: Path) -> None:
    asked = {"metrics": ["macro-f1", "auroc"]}
    several, alone = (finished(one(test, evaluation=asked), tmp_path) for test in (BOTH, "proportional"))
    assert scored(several, "proportional") == scored(alone, None)
    assert "macro-f1" in (several.result() or {})["tests"]["proportional"]["metrics"]


def test_a_run_interrupted_after_every_round_ends_as_one_that_never_was(tmp_path: Path) -> None:
    run = one(BOTH, algorithm="scaffold")
    whole, broken = finished(run, tmp_path / "whole"), folder_of(run, tmp_path / "broken")
    for _ in range(3):
        running = resume(run, broken)
        next(running)
        running.close()  # type: ignore[attr-defined]  # it is a generator
    finished(run, tmp_path / "broken")
    assert broken.records() == whole.records()
    assert _plain(broken.result() or {}) == _plain(whole.result() or {})


def test_the_personal_model_is_trained_once_for_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    original = ClientSide.personal

    def counting(side: ClientSide, t: int, client: int, *args: Any) -> Any:
        trained.append(client)
        return original(side, t, client, *args)

    monkeypatch.setattr(ClientSide, "personal", counting)
    finished(one("owned"), tmp_path)
    alone = list(trained)
    trained.clear()
    finished(one(["owned", "proportional", "global"]), tmp_path)
    assert trained == alone


def test_samples_that_kinds_have_in_common_are_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proportional samples are some of those that a client owns: they cost nothing more."""
    evaluated: list[int] = []
    original = PredictionCache.predictions

    def counting(cache: PredictionCache, rows: Any, *args: Any) -> Any:
        evaluated.append(int((~cache._computed[rows]).sum()))
        return original(cache, rows, *args)

    monkeypatch.setattr(PredictionCache, "predictions", counting)
    totals = []
    for test in ("owned", BOTH):
        evaluated.clear()
        finished(one(test), tmp_path)
        totals.append(sum(evaluated))
    assert totals[0] == totals[1] > 0


def test_a_client_without_test_samples_of_one_kind_is_evaluated_on_the_others() -> None:
    """There is no test sample of class 1: client 1, which has nothing else, owns none."""
    x, y = np.eye(8, dtype=np.float32), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    data = from_arrays(x, y, x[:3], np.array([0, 0, 0]))
    given = Given((range(4), range(4, 8)))
    results = [
        pacfl.federate((data, partition(data, given, 2, np.random.default_rng(0), test)), Net, pacfl.FedAvg(), rounds=1)
        for test in (["owned", "global"], ["global", "owned"])
    ]
    for result in results:
        assert set(result.on("owned").by_client["received"]["accuracy"]) == {0}
        assert set(result.on("global").by_client["received"]["accuracy"]) == {0, 1}
    assert results[0].on("global").by_client == results[1].by_client


# Settings


def test_a_list_of_kinds_is_one_run_and_a_list_of_lists_a_sweep() -> None:
    assert len(expand(table(data={"test": BOTH}))) == 1
    swept = expand(table(data={"test": [BOTH, "owned", ["global"]]}))
    assert [run.data.test for run in swept] == [("owned", "proportional"), "owned", "global"]


def test_one_kind_in_a_list_is_that_kind_and_the_default_stays_out_of_the_hash() -> None:
    plain = only(table())
    assert only(table(data={"test": ["owned"]})).hash == plain.hash == only(table(data={"test": "owned"})).hash
    assert "test" not in plain.content()["data"]
    hashes = {only(table(data={"test": test})).hash for test in ("owned", "global", BOTH, BOTH[::-1])}
    assert len(hashes) == 4


def test_stored_settings_give_the_run_again() -> None:
    run = only(table(data={"test": BOTH}))
    assert run.content()["data"]["test"] == BOTH
    assert from_content(run.content()).hash == run.hash


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"test": ["owned", "all"]}, "test must be one of 'owned', 'proportional', 'global' or a list"),
        ({"test": ["owned", "owned"]}, r"different kinds, at least one, got \['owned', 'owned'\]"),
        ({"test": [[]]}, r"different kinds, at least one, got \[\]"),
        ({"test": 3}, "test must be one of 'owned', 'proportional', 'global', got 3"),
        ({"test": BOTH, "validation": 0.2}, r"validation replaces .* got test \['owned', 'proportional'\] with it"),
    ],
)
def test_lists_that_make_no_sense_are_refused(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        expand(table(data=data))


# What is shown


def test_the_examples_are_right() -> None:
    for module in (tested_on, rounds_module):
        done = doctest.testmod(module)
        assert done.attempted > done.failed == 0


def test_the_kinds_of_a_run_are_those_of_its_settings() -> None:
    assert kinds(one(BOTH).content()) == ("owned", "proportional")
    assert choose(one(BOTH).content(), "owned") is None is choose(one("global").content(), "global")
    with pytest.raises(ConfigError, match="evaluated on owned and proportional test samples, not on 'global'; choose"):
        choose(one(BOTH).content(), "global")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each algorithm a run on both kinds, and of one a run on proportional samples alone."""
    folder = tmp_path_factory.mktemp("runs")
    for algorithm in ("fedavg", "solo"):
        finished(one(BOTH, algorithm=algorithm), folder)
    finished(one("proportional"), folder / "alone")
    return folder


def test_a_result_shows_each_kind(runs: Path) -> None:
    both = pacfl.load(finished(one(BOTH), runs).path)
    alone = pacfl.load(finished(one("proportional"), runs / "alone").path)
    shown = both.on("proportional")
    assert (both.tests, shown.tests, alone.tests) == (("owned", "proportional"), ("proportional", "owned"), (BOTH[1],))
    assert shown.scores == alone.scores != both.scores
    assert shown.by_client == alone.by_client
    assert shown.newcomers == alone.newcomers
    assert shown.history.equals(alone.history)
    assert [record.scores for record in shown.records] == [record.scores for record in alone.records]
    assert shown.on("owned").scores == both.scores
    assert both.records[-1].tests["proportional"].scores == shown.newcomers
    assert "proportional test samples" in repr(shown)
    line, same = (axes.lines[0].get_ydata() for axes in (both.plot(test="proportional"), alone.plot()))
    assert list(line) == list(same)
    with pytest.raises(ConfigError, match="not on 'global'"):
        both.on("global")


def test_tables_take_the_kind_that_is_asked_for_from_whatever_run_has_it(runs: Path) -> None:
    """A run on both kinds is in the cell of the run on that kind alone: the same seed, the same figure."""
    everything = [*(folder for folder in runs.iterdir() if folder.name != "alone"), *(runs / "alone").iterdir()]
    found = pacfl.table(everything, test="proportional")
    alone = pacfl.load(finished(one("proportional"), runs / "alone").path)
    assert found.rows == ("algorithm",)
    assert found.cells[("fedavg",), ()].mean == alone.accuracy["received"].mean
    assert found.test == "proportional"
    assert found.notes[0].startswith("Accuracy in % (received, proportional test samples)")
    plain = pacfl.table(everything)
    assert plain.rows == ("algorithm", "data.test"), "primary kinds that differ are not averaged"
    assert pacfl.table([path for path in everything if path.parent == runs]).test == "owned"
    with pytest.raises(ConfigError, match="no run was evaluated on test samples of the kind 'globl'"):
        pacfl.table(everything, test="globl")
    with pytest.raises(ConfigError, match="ari is the same on all test samples"):
        pacfl.table(everything, metric="ari", test="owned")


def test_curves_are_of_the_kind_that_is_asked_for(runs: Path) -> None:
    both, alone = pacfl.runs(runs), pacfl.runs(runs / "alone")
    columns = ["round", "protocol", "metric", "mean"]
    of_fedavg = both.curves(test="proportional").query("algorithm == 'fedavg'")
    assert of_fedavg[columns].reset_index(drop=True).equals(alone.curves()[columns])
    assert alone.curves(test="owned").empty
    assert "tests.proportional.accuracy.received.mean" in both.frame().columns


def test_commands_show_each_kind(runs: Path, run: Command) -> None:
    name = one(BOTH).hash
    _, text, _ = run("show", name, "--runs", runs, "--test", "proportional", "--json")
    shown = json.loads(text)
    _, text, _ = run("show", name, "--runs", runs, "--json")
    stored = json.loads(text)
    own = stored["result"]["tests"]["proportional"]
    assert shown["result"]["test"] == "proportional"
    for field in ("accuracy", "loss", "worse_than_alone"):
        assert shown["result"][field] == own[field] != stored["result"][field]
    assert own["worse_than_alone"]["received"] is not None
    for before, after in zip(stored["rounds"], shown["rounds"], strict=True):
        if "tests" in before:
            assert after["worse_than_alone"] == before["tests"]["proportional"]["worse_than_alone"]
    _, text, _ = run("show", name, "--runs", runs)
    words = " ".join(text.split())  # lines are folded
    assert "owned test samples" in words
    assert "proportional test samples" in words
    code, _, error = run("show", name, "--runs", runs, "--test", "global")
    assert code
    assert "the run was evaluated on owned and proportional test samples" in error
    _, text, _ = run("table", "--runs", runs, "--test", "proportional", "--json")
    assert json.loads(text)["test"] == "proportional"


def test_targets_are_reached_on_each_kind(runs: Path, run: Command) -> None:
    _, text, _ = run("show", one(BOTH).hash, "--runs", runs, "--target", "0.01", "--json")
    result = json.loads(text)["result"]
    assert result["to_target"]["0.01"]["received"]["rounds"] == 1
    assert result["tests"]["proportional"]["to_target"]["0.01"].keys() == result["to_target"]["0.01"].keys()


def test_the_report_has_the_protocols_of_each_kind(runs: Path) -> None:
    found = gather([str(runs)], runs)
    (experiment,) = experiments(found.runs)
    protocols = ("received", "personal", "last_trained")
    assert experiment.protocols[:3] == protocols
    others = tuple(p for p in experiment.protocols if p.startswith("proportional test samples, "))
    assert others[:3] == tuple(f"proportional test samples, {protocol}" for protocol in protocols)
    assert len(others) == len(experiment.protocols) / 2, "newcomers too"
    alone = gather([str(runs / "alone")], runs).runs[0]
    fedavg = next(own for own in experiment.runs if own.algorithm == "fedavg")
    for protocol in protocols:
        expected = alone.scores[protocol]
        assert np.array_equal(fedavg.scores[f"proportional test samples, {protocol}"], expected, equal_nan=True)
    assert fedavg.below_local.keys() >= {"received", "proportional test samples, received"}
    assert "Tested on owned test samples; also on proportional." in experiment.description
    if pytest.importorskip("vl_convert", reason="the extra report is not installed"):
        assert "the model as sent by the server; on proportional test samples" in page(found)


# From Python


class Net(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 2)


def test_federate_evaluates_the_kinds_of_its_partition(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 8)).astype(np.float32), rng.integers(0, 2, 300)
    data = from_arrays(x[:200], y[:200], x[200:], y[200:])

    def result(test: Any) -> pacfl.Result:
        clients = partition(data, Dirichlet(0.5, 5), 4, np.random.default_rng(1), test, np.random.default_rng(2))
        return pacfl.federate((data, clients), Net, pacfl.FedAvg(), rounds=2, participation=0.5, runs=tmp_path)

    both, owned, proportional = result(BOTH), result("owned"), result("proportional")
    assert both.by_client == owned.by_client
    assert both.on("proportional").by_client == proportional.by_client
    assert len({both.hash, owned.hash, proportional.hash}) == 3
    assert both.hash == result(BOTH).hash != result(["owned", "global"]).hash
    assert (both.tests, owned.tests) == (tuple(BOTH), ("given",))
