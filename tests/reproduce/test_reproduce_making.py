"""Items made for real, on the embedded digits."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pacfl.experiment.config import Run
from pacfl.reproduce.items import Item, _item
from pacfl.reproduce.kinds import kind_of
from pacfl.reproduce.making import Request, run_item
from pacfl.reproduce.outcome import load, merged, save
from pacfl.reproduce.planning import plan, with_chosen
from pacfl.reproduce.tables import counted, markdown
from pacfl.reproduce.tuning import protocol_of, trials

pytest.importorskip("sklearn")

FILE = """
seeds = [0, 1]

[item]
number = 1
title = "Digits"
paper = "nowhere"
kind = "accuracy"

[item.columns]
four = ["data.clients=8"]
absent = ["data.name=svhn", 'data.scheme={kind="iid"}']

[item.tuning]
rounds = 1
validation = 0.2
lr = [0.01, 0.5, 1e39]
mu = [0.1, 0.01]

[data]
name = "digits"
scheme = { kind = "by-set", counts = [2, 2, 2, 2], size = 40 }

[model]
name = "logistic"

[learning]
epochs = 1

[schedule]
rounds = 2
participation = 0.5

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "fedprox"

[[algorithm]]
name = "pacfl"
clusters = [1, 4]
"""


def written(path: Path, text: str) -> Item:
    path.write_text(text, encoding="utf-8")
    return _item(path, tomllib.loads(text)["item"])


@pytest.fixture
def digits(tmp_path: Path) -> Item:
    return written(tmp_path / "digits.toml", FILE)


def request(tmp_path: Path, **settings: Any) -> Request:
    given = {"scale": "paper", "data": tmp_path / "no-data", "runs": tmp_path / "runs", "n_seeds": 1, "on": ("four",)}
    return Request(**{**given, **settings})  # type: ignore[arg-type]


def test_what_has_ended_is_not_run_again_and_comes_out_the_same(digits: Item, tmp_path: Path) -> None:
    first = run_item(digits, request(tmp_path))
    shown: list[Mapping[str, Any]] = []

    class Watched:
        def __init__(self, _runs: list[Run]) -> None:
            pass

        def __enter__(self) -> Any:
            return lambda _run, record: shown.append(record)

        def __exit__(self, *_: object) -> None:
            pass

    again = run_item(digits, request(tmp_path, watch=Watched))
    assert again == first
    assert all("seconds" in record for record in shown)  # results only, no rounds
    assert len(first["runs"]) == 4
    assert {(run["clients"], run["train"]) for run in first["runs"]} == {(8, 40.0)}


def test_methods_are_tuned_without_the_test_samples_and_the_choice_is_used(digits: Item, tmp_path: Path) -> None:
    made = run_item(digits, request(tmp_path, tune=True))
    assert {t["method"]: len(t["trials"]) for t in made["tuning"]} == {"fedavg": 3, "fedprox": 6, "pacfl": 3}
    for tuned in made["tuning"]:
        scores = {json.dumps({k: t[k] for k in tuned["chosen"]}): t["accuracy"] for t in tuned["trials"]}
        assert scores[json.dumps(tuned["chosen"])] == max(s for s in scores.values() if s is not None)
    chosen = {t["method"]: t["chosen"] for t in made["tuning"]}
    for run in made["runs"]:
        assert run["learning"]["lr"] == chosen[run["algorithm"]["name"]]["lr"]
    content = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/run.json")]
    assert {run["data"]["validation"] for run in content if run["schedule"]["rounds"] == 1} == {0.2}
    assert {run["data"]["validation"] for run in content if run["schedule"]["rounds"] == 2} == {0.0}


def test_accuracies_on_other_kinds_of_test_samples_are_exported_and_not_used_to_tune(
    digits: Item, tmp_path: Path
) -> None:
    both = written(tmp_path / "both.toml", FILE.replace("[data]", '[data]\ntest = ["owned", "proportional"]'))
    one, two = (run_item(item, request(tmp_path, tune=True, only=("fedavg",))) for item in (digits, both))
    assert two["tuning"] == one["tuning"]
    assert two["runs"][0]["accuracy"] == one["runs"][0]["accuracy"]
    assert two["runs"][0]["tests"]["proportional"]["accuracy"].keys() == one["runs"][0]["accuracy"].keys()
    assert "tests" not in one["runs"][0]


def test_a_rate_at_which_training_diverges_is_never_chosen(digits: Item, tmp_path: Path) -> None:
    made = run_item(digits, request(tmp_path, tune=True, only=("fedavg",)))
    (tuned,) = made["tuning"]
    assert any(t["accuracy"] is None for t in tuned["trials"])
    assert tuned["chosen"]["lr"] < 1


def test_a_run_that_diverged_has_its_curve_up_to_there(tmp_path: Path) -> None:
    evaluated = written(tmp_path / "evaluated.toml", FILE.replace("rounds = 2", "rounds = 2\nevaluate-every = 1"))
    (whole,) = run_item(evaluated, request(tmp_path, only=("fedavg",)))["runs"]
    folder = tmp_path / "runs" / whole["hash"]
    (folder / "result.json").unlink()
    stored = {"hash": whole["hash"], "seed": 0, "diverged": "client 3 diverged in round 2", "round": 2}
    (folder / "diverged.json").write_text(json.dumps(stored), encoding="utf-8")
    (run,) = run_item(evaluated, request(tmp_path, only=("fedavg",), run=False))["runs"]
    assert run["diverged"] == "client 3 diverged in round 2"
    assert "accuracy" not in run
    assert run["curve"] == whole["curve"]
    assert run["curve"]["rounds"] == [1, 2]


def test_cuts_of_pacfl_share_one_tuning(digits: Item) -> None:
    planned = plan(digits, "four", "paper", ("pacfl",), 1)
    spec = digits.tuned("four", "paper")
    assert spec is not None
    assert len(planned) == 2
    assert len(trials(planned, spec)) == 3


def test_settings_that_were_not_tried_stay_those_of_the_file(digits: Item) -> None:
    (one,) = plan(digits, "four", "paper", ("fedavg",), 1)
    assert with_chosen(one, {}).run.hash == one.run.hash
    assert with_chosen(one, {"fedavg": {"lr": 0.5}}).run.learning.lr == 0.5


def test_a_method_with_a_personalisation_of_its_own_is_tuned_for_it(digits: Item) -> None:
    (one,) = plan(digits, "four", "paper", ("fedavg",), 1)
    assert protocol_of(one.run) == "received"
    assert protocol_of(replace(one.run, algorithm={"name": "per-fedavg"})) == "personal"


def test_an_outcome_is_the_same_after_it_was_exported(digits: Item, tmp_path: Path) -> None:
    made = run_item(digits, request(tmp_path, only=("fedavg",)))
    save(made, tmp_path / "results")
    assert load(tmp_path / "results", "digits", "paper") == json.loads(json.dumps(made))


def test_exports_of_two_days_are_joined(digits: Item, tmp_path: Path) -> None:
    first = run_item(digits, request(tmp_path, only=("fedavg",)))
    second = run_item(digits, request(tmp_path, only=("fedprox",), n_seeds=2))
    both = merged(first, second)
    assert [(run["method"], run["seed"]) for run in both["runs"]] == [("fedavg", 0), ("fedprox", 0), ("fedprox", 1)]
    assert merged(both, second) == both


def test_what_was_exported_is_not_tuned_or_run_again_where_its_runs_are_not(digits: Item, tmp_path: Path) -> None:
    wanted = request(tmp_path, only=("fedavg",), tune=True)
    first = run_item(digits, wanted)
    elsewhere = replace(wanted, runs=tmp_path / "other", exported=first, n_seeds=2)
    second = run_item(digits, elsewhere)
    assert [(run["method"], run["seed"]) for run in second["runs"]] == [("fedavg", 1)]
    assert len(list(elsewhere.runs.iterdir())) == 1  # no trials
    assert second["tuning"] == first["tuning"]
    both = merged(first, second)
    assert run_item(digits, replace(elsewhere, runs=tmp_path / "third", exported=both))["runs"] == []
    assert merged(both, run_item(digits, replace(elsewhere, exported=both))) == both


def test_a_column_and_seed_of_which_a_run_is_missing_is_run_again(digits: Item, tmp_path: Path) -> None:
    first = run_item(digits, request(tmp_path, only=("fedavg",)))
    second = run_item(digits, request(tmp_path, only=("fedavg", "fedprox"), exported=first))
    assert [run["method"] for run in second["runs"]] == ["fedavg", "fedprox"]


def test_what_was_not_run_and_what_has_no_data_say_so(digits: Item, tmp_path: Path) -> None:
    made = run_item(digits, request(tmp_path, only=("fedavg",), on=()))
    here, absent = kind_of(digits).tables(digits, made)
    assert {row[0]: row[2] for row in here.rows}["fedprox"] == "not run"
    assert all("data not available here" in row[2] for row in absent.rows)
    assert all(row[1] == "-" for row in here.rows)  # nothing was published of it
    assert markdown(here).startswith("**Digits: four**")


def test_counts_are_whole_where_seeds_agree() -> None:
    assert counted([4, 4, 4]) == counted([4]) == "4"
    assert counted([6, 9]) == "7.5 ± 1.5"
    assert counted([]) == "-"


def test_showing_runs_nothing(digits: Item, tmp_path: Path) -> None:
    made = run_item(digits, request(tmp_path, run=False, tune=True))
    assert made["runs"] == []
    assert not (tmp_path / "runs").exists()


def test_only_newcomers_are_evaluated_after_fine_tuning(tmp_path: Path) -> None:
    text = FILE.replace('kind = "accuracy"', 'kind = "newcomers"').replace("rounds = 2", "rounds = 2\nnewcomers = 3")
    late = written(tmp_path / "late.toml", text)
    made = run_item(late, request(tmp_path, only=("fedavg",)))
    (run,) = made["runs"]
    assert set(run["newcomers"]) >= {"received", "personal", "fine_tuned"}
    records = (tmp_path / "runs" / run["hash"] / "rounds.jsonl").read_text().splitlines()
    assert len(json.loads(records[-1])["by_client"]["fine_tuned"]) == 3
    table = kind_of(late).tables(late, made)[0]
    assert table.head[2:5] == ("received", "fine-tuned", "personal")
    assert table.rows[0][3] == f"{100 * run['newcomers']['fine_tuned']['mean']:.2f}"


def test_a_sweep_of_cuts_goes_from_all_apart_to_one_and_marks_the_automatic_one(tmp_path: Path) -> None:
    text = FILE.replace('kind = "accuracy"', 'kind = "beta"').replace("clusters = [1, 4]", "clusters = [1, 2, 8]")
    paper = 'compare = "inputs"\nlabel-prior = false\nlevels = "none"\n'
    text = text.replace('name = "pacfl"\n', f'name = "pacfl"\n{paper}')
    sweep = written(tmp_path / "sweep.toml", f'{text}\n[[algorithm]]\nname = "pacfl"\n{paper}')
    made = run_item(sweep, request(tmp_path, only=("pacfl",)))
    table = kind_of(sweep).tables(sweep, made)[0]
    betas, clusters = [float(row[1]) for row in table.rows], [float(row[2]) for row in table.rows]
    assert betas == sorted(betas)
    assert (max(clusters), min(clusters)) == (8.0, 1.0)
    assert [row[0] for row in table.rows].count("pacfl(paper) (automatic)") == 1
    assert all("below the best cut of the sweep" in note for note in table.notes)
    pytest.importorskip("matplotlib")
    (path,) = kind_of(sweep).figures(sweep, made, tmp_path / "figures")
    assert path.read_text().startswith("<?xml")


@pytest.mark.parametrize("automatic", [True, False])
def test_the_finding_of_the_automatic_threshold_is_below_the_table(automatic: bool, tmp_path: Path) -> None:
    text = FILE.replace("clusters = [1, 4]\n", "") if automatic else FILE
    groups = written(tmp_path / "groups.toml", text)
    made = run_item(groups, request(tmp_path, only=("pacfl",)))
    findings = {run["clustering"]["finding"] for run in made["runs"]}
    notes = kind_of(groups).tables(groups, made)[0].notes
    stored = [note for note in notes if note.startswith("Finding of the automatic threshold")]
    assert stored == ([f"Finding of the automatic threshold: {findings.pop()}."] if automatic else [])


def test_the_rows_of_a_missing_column_have_the_published_values(digits: Item, tmp_path: Path) -> None:
    published = tmp_path / "published"
    published.mkdir()
    (published / "digits.toml").write_text('[absent]\nfedavg = "12.34 ± 0.10"\n', encoding="utf-8")
    made = run_item(digits, request(tmp_path, run=False, on=()))
    absent = kind_of(digits).tables(digits, made)[1]
    assert absent.rows[0][1] == "12.34 ± 0.10"
    assert absent.rows[0][2] == "data not available here"
    assert absent.notes == ("data not available here: svhn has 0 of 73,257 samples.",)  # said once, not for each method
