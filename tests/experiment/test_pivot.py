import doctest
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacfl
from pacfl.errors import ConfigError, StoreError
from pacfl.experiment import result_table, typeset
from pacfl.experiment.pivot import table
from pacfl.experiment.store import FORMAT, RunFolder
from tests.conftest import Run


def write(
    runs: Path,
    algorithm: str,
    accuracy: float | None,
    seed: int = 0,
    *,
    alpha: float | None = None,
    result: Mapping[str, Any] | None = None,
    **learning: Any,
) -> RunFolder:
    """A run with this accuracy as received, 0.1 more as personalised; None: not finished."""
    name, _, given = algorithm.partition(":")
    scheme = {"kind": "iid"} if alpha is None else {"kind": "dirichlet", "alpha": alpha}
    content = {
        "format": FORMAT,
        "seed": seed,
        "data": {"name": "digits", "clients": 8, "scheme": scheme, "sets": []},
        "model": {"name": "mlp"},
        "learning": {"lr": 0.1, "batch_size": 10, **learning},
        "schedule": {"rounds": 5, "evaluate_every": 1, "joins": {}},
        "algorithm": {"name": name, **json.loads(given or "{}")},
        "device": "cpu",
        "engine": "auto",
    }
    hashed = sha256(json.dumps([content, str(result)]).encode()).hexdigest()[:16]
    folder = RunFolder(runs / hashed)
    folder.path.mkdir(parents=True)
    (folder.path / "run.json").write_text(json.dumps(content))
    if accuracy is not None:
        scores = {p: {"mean": accuracy + more} for p, more in (("received", 0.0), ("personal", 0.1))}
        outcome = {"accuracy": scores, "loss": {"received": {"mean": 1 - accuracy}}, "ari": accuracy, "clusters": 3}
        (folder.path / "result.json").write_text(json.dumps({"hash": hashed, **outcome, **(result or {})}))
    return folder


def cells(found: result_table.ResultTable) -> dict[Any, float]:
    return {(*row, *column): round(mean.mean, 6) for (row, column), mean in found.cells.items()}


def test_cells_are_means_over_seeds_of_the_settings_of_row_and_column(tmp_path: Path) -> None:
    for seed in range(3):
        for alpha in (0.5, 0.1):
            write(tmp_path, "pacfl", 0.6 + alpha / 10 + seed / 100, seed, alpha=alpha)
            write(tmp_path, "fedavg", 0.5 + alpha / 10 + seed / 100, seed, alpha=alpha)
    found = table(tmp_path, rows="algorithm", columns="data.scheme.alpha")
    assert found.row_keys == (("pacfl",), ("fedavg",))  # in the order of the runs
    assert found.column_keys == ((0.1,), (0.5,))  # ascending
    for (row, column), mean in found.cells.items():
        base = {"pacfl": 0.6, "fedavg": 0.5}[row[0]] + column[0] / 10
        assert mean.mean == pytest.approx(base + 0.01)
        assert mean.std == pytest.approx(np.std([0.0, 0.01, 0.02]))
        assert len(mean.runs) == 3
    assert found.text()[0] == ["algorithm", "alpha 0.1", "alpha 0.5"]
    assert found.text()[1] == ["pacfl", "62.00 ± 0.82", "66.00 ± 0.82"]


def test_other_settings_that_differ_become_rows_and_are_named(tmp_path: Path) -> None:
    for seed in range(2):
        for lr in (0.1, 0.01):
            write(tmp_path, "fedavg", lr + seed / 10, seed, lr=lr)
    found = table(tmp_path)
    assert found.rows == ("algorithm", "learning.lr")
    assert cells(found) == {("fedavg", 0.01): 0.06, ("fedavg", 0.1): 0.15}
    assert found.text()[0] == ["algorithm", "lr", "accuracy in % (received)"]
    assert "Runs differ in learning.lr too, so each value has rows of its own." in found.notes


def test_a_setting_that_only_some_runs_have_is_one_in_which_they_differ(tmp_path: Path) -> None:
    write(tmp_path, "fedavg", 0.5)
    write(tmp_path, "fedavg", 0.7, optimiser="adam")
    assert cells(table(tmp_path)) == {("fedavg", None): 0.5, ("fedavg", "adam"): 0.7}


def test_algorithms_are_never_averaged_however_the_rows_are_chosen(tmp_path: Path) -> None:
    for clusters, accuracy in ((2, 0.4), (4, 0.6)):
        write(tmp_path, f'pacfl:{{"clusters": {clusters}}}', accuracy)
    write(tmp_path, "fedavg", 0.5)
    labels = {"fedavg": 0.5, "pacfl(clusters=2)": 0.4, "pacfl(clusters=4)": 0.6}
    assert cells(table(tmp_path)) == {(label,): value for label, value in labels.items()}
    assert cells(table(tmp_path, rows="learning.lr")) == {(0.1, label): value for label, value in labels.items()}
    assert cells(table(tmp_path, rows="algorithm.name")) == {
        ("fedavg", None): 0.5,
        ("pacfl", 2): 0.4,
        ("pacfl", 4): 0.6,
    }


def test_how_often_a_run_is_evaluated_does_not_count_as_a_difference(tmp_path: Path) -> None:
    folder = write(tmp_path, "fedavg", 0.5)
    content = json.loads((folder.path / "run.json").read_text())
    content["schedule"]["evaluate_every"] = 5
    other = RunFolder(tmp_path / "0000")
    other.path.mkdir()
    (other.path / "run.json").write_text(json.dumps(content))
    (other.path / "result.json").write_text((folder.path / "result.json").read_text())
    found = table(tmp_path)
    assert found.rows == ("algorithm",)
    assert [len(mean.runs) for mean in found.cells.values()] == [1]  # one seed is one result


def test_sections_and_hyphens_name_settings_too(tmp_path: Path) -> None:
    write(tmp_path, "fedavg", 0.5, alpha=0.1)
    write(tmp_path, "fedavg", 0.6, batch_size=20)
    found = table(tmp_path, rows="data.scheme", columns="learning.batch-size")
    assert cells(found) == {("dirichlet(alpha=0.1)", 10): 0.5, ("iid", 20): 0.6}
    assert found.text()[1:] == [["dirichlet(alpha=0.1)", "50.00", "-"], ["iid", "-", "60.00"]]


def test_several_settings_make_a_row_and_a_column(tmp_path: Path) -> None:
    write(tmp_path, "fedavg", 0.5, alpha=0.1, lr=0.2)
    write(tmp_path, "fedavg", 0.6, alpha=0.5, batch_size=20)
    found = table(tmp_path, rows=["algorithm", "learning.lr"], columns=["data.scheme.alpha", "learning.batch_size"])
    assert found.text()[0] == ["algorithm", "lr", "alpha 0.1, batch-size 10", "alpha 0.5, batch-size 20"]
    assert cells(found) == {("fedavg", 0.2, 0.1, 10): 0.5, ("fedavg", 0.1, 0.5, 20): 0.6}


def scored(runs: Path, **by_seed: list[float]) -> Path:
    for name, values in by_seed.items():
        for seed, value in enumerate(values):
            write(runs, name, value, seed)
    return runs


def marks(found: result_table.ResultTable) -> dict[Any, str]:
    words = {(True, False): "best", (False, True): "tied", (False, False): ""}
    return {row[0]: words[mean.best, mean.tied] for (row, _), mean in found.cells.items()}


def test_the_best_is_marked_only_if_it_is_distinguished(tmp_path: Path) -> None:
    """The numbers of the tests of `seeds`: 10 apart is more than noise, 0.67 apart is not."""
    apart = table(scored(tmp_path / "apart", a=[0.80, 0.81, 0.79], b=[0.7, 0.7, 0.7]))
    assert marks(apart) == {"a": "best", "b": ""}
    assert "| **80.00 ± 0.82** |" in apart.markdown()
    assert "Bold: distinguished from every other result in its column" in apart.markdown()
    tied = table(scored(tmp_path / "tied", a=[0.80, 0.83, 0.79], b=[0.8, 0.8, 0.8], c=[0.5, 0.53, 0.49]))
    assert marks(tied) == {"a": "tied", "b": "tied", "c": ""}
    assert "**" not in tied.markdown()
    assert "| 80.00 ± 0.00 ≈ |" in tied.markdown()
    assert "≈: not distinguished from the best" in tied.markdown()
    one = table(scored(tmp_path / "one", a=[0.9], b=[0.1]))
    assert marks(one) == {"a": "", "b": ""}
    assert one.notes == ("Accuracy in % (received), of one seed.",)


def test_of_a_loss_the_lowest_is_the_best_and_of_a_number_of_clusters_none_is(tmp_path: Path) -> None:
    runs = scored(tmp_path, a=[0.80, 0.81, 0.79], b=[0.7, 0.7, 0.7])
    assert marks(table(runs, metric="loss")) == {"a": "best", "b": ""}  # of 1 - accuracy
    assert marks(table(runs, metric="ari")) == {"a": "best", "b": ""}
    found = table(runs, metric="clusters")
    assert (marks(found), found.protocol) == ({"a": "", "b": ""}, None)
    assert found.text()[1:] == [["a", "3 ± 0"], ["b", "3 ± 0"]]


def test_results_on_different_data_are_never_compared(tmp_path: Path) -> None:
    for seed in range(3):
        for alpha, level in ((0.1, 0.3), (0.5, 0.8)):
            write(tmp_path, "fedavg", level + seed / 100, seed, alpha=alpha)
            write(tmp_path, "pacfl", level + 0.1 + seed / 100, seed, alpha=alpha)
    expected = {("fedavg", 0.1): False, ("fedavg", 0.5): False, ("pacfl", 0.1): True, ("pacfl", 0.5): True}
    across = table(tmp_path, rows="algorithm", columns="data.scheme.alpha")
    assert {(*row, *column): mean.best for (row, column), mean in across.cells.items()} == expected
    down = table(tmp_path, rows="data.scheme.alpha", columns="algorithm")
    assert {(*column, *row): mean.best for (row, column), mean in down.cells.items()} == expected
    assert "in its row" in down.markdown()
    split = table(tmp_path, rows="algorithm")  # alpha becomes rows: only those of one alpha are compared
    assert {row: mean.best for (row, _), mean in split.cells.items()} == expected


def test_metrics_and_protocols_are_chosen_by_name(tmp_path: Path) -> None:
    more = {"metrics": {"macro-f1": {"received": {"mean": 0.25}}}}
    write(tmp_path, "fedavg", 0.5, result=more)
    assert cells(table(tmp_path, protocol="personal")) == {("fedavg",): 0.6}
    assert cells(table(tmp_path, metric="macro-f1")) == {("fedavg",): 0.25}
    assert cells(table(tmp_path, metric="loss")) == {("fedavg",): 0.5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "learning.rl"}, r"no run has the setting 'learning.rl' \(did you mean 'learning.lr'\?\)"),
        ({"columns": "data.scheme.beta"}, "no run has the setting 'data.scheme.beta'"),
        ({"metric": "acuracy"}, r"no run has the metric 'acuracy' \(did you mean 'accuracy'\?\)"),
        ({"protocol": "last_trained"}, "no run has accuracy under the protocol last_trained"),
        ({"protocol": "sent"}, "protocol must be one of 'received', 'personal', 'last_trained'"),
        ({"metric": "ari", "protocol": "personal"}, "ari is the same under every protocol"),
    ],
)
def test_what_no_run_has_is_refused_with_what_there_is(options: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path, "fedavg", 0.5)
    with pytest.raises(ConfigError, match=message):
        table(tmp_path, **options)


def test_runs_scored_by_different_metrics_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path, "fedavg", 0.5)
    write(tmp_path, "solo", 0.5, result={"metric": "mae", "mae": {"received": {"mean": 2.0}}})
    with pytest.raises(ConfigError, match="scored by accuracy and mae; choose one metric"):
        table(tmp_path)
    found = table(tmp_path, metric="mae")
    assert found.text() == [["algorithm", "mae (received)"], ["solo", "2"]]
    assert "1 run without this value left out." in found.notes


def test_a_folder_without_finished_runs_is_refused_and_unfinished_ones_are_counted(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has no runs in it"):
        table(tmp_path)
    write(tmp_path, "fedavg", None)
    with pytest.raises(StoreError, match="none of the 1 runs is finished"):
        table(tmp_path)
    write(tmp_path, "fedavg", 0.5, 1)
    assert table(tmp_path).notes[-1] == "1 unfinished run is left out."


def test_cells_with_fewer_seeds_say_so(tmp_path: Path) -> None:
    found = table(scored(tmp_path, a=[0.5, 0.6], b=[0.5]))
    assert found.text()[1:] == [["a", "55.00 ± 5.00 (n = 2)"], ["b", "50.00 (n = 1)"]]
    assert found.notes[0] == "Accuracy in % (received), mean ± standard deviation over 1 to 2 seeds."


def test_runs_are_given_by_folder_or_one_by_one(tmp_path: Path) -> None:
    first, second = write(tmp_path, "fedavg", 0.5), write(tmp_path, "solo", 0.6)
    assert cells(pacfl.table([first, str(second.path), second.path])) == cells(pacfl.table(str(tmp_path)))
    assert cells(pacfl.table([first.path])) == {("fedavg",): 0.5}
    assert cells(pacfl.table(pacfl.runs(tmp_path))) == cells(pacfl.table(tmp_path))


def test_latex_has_as_many_cells_in_each_row_as_columns_and_prints_names_as_they_are(tmp_path: Path) -> None:
    for seed, value in enumerate((0.80, 0.81, 0.79)):
        write(tmp_path, 'my_method:{"share": "50%&{x}"}', value, seed, alpha=0.1)
        write(tmp_path, "fedavg", 0.5, seed, alpha=0.1)
        write(tmp_path, "fedavg", 0.5, seed, alpha=0.5)
    text = table(tmp_path, columns="data.scheme.alpha").latex()
    begun = re.findall(r"\\begin\{(\w+)\}", text)
    assert begun == ["table", "tabular"] == re.findall(r"\\end\{(\w+)\}", text)[::-1]
    (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    lines = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert columns == "lrr"
    assert [len(re.findall(r"(?<!\\)&", line)) for line in lines] == [2, 2, 2]
    assert r"my\_method(share=50\%\&\{x\}) & \textbf{80.00 $\pm$ 0.82} & - \\" in text
    plain = re.sub(r"\\[%&_{}$#\\]", "", text.replace("% \\usepackage{booktabs}", ""))
    assert plain.count("{") == plain.count("}")
    assert "%" not in plain
    rules = [text.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")]
    assert rules == sorted(rules)


def test_the_frame_has_a_line_for_each_cell(tmp_path: Path) -> None:
    runs = scored(tmp_path, a=[0.5, 0.6], b=[0.4, 0.5])
    records = table(runs).records()
    assert [(r["algorithm"], r["mean"], len(r["runs"])) for r in records] == [
        ("a", pytest.approx(0.55), 2),
        ("b", pytest.approx(0.45), 2),
    ]
    pytest.importorskip("pandas", reason="an extra")
    assert table(runs).frame()["mean"].tolist() == [r["mean"] for r in records]


def test_a_table_is_shown_in_short(tmp_path: Path) -> None:
    found = table(scored(tmp_path, a=[0.5], b=[0.4]))
    assert repr(found) == "ResultTable(accuracy in % (received), 2 rows, 1 columns)"
    assert str(found) == found._repr_markdown_() == found.markdown()


def test_the_examples_are_true() -> None:
    for module in (result_table, typeset):
        done = doctest.testmod(module)
        assert (done.failed, done.attempted > 0) == (0, True)


def test_the_command_prints_what_python_returns(tmp_path: Path, run: Run) -> None:
    for seed in range(2):
        for alpha in (0.1, 0.5):
            write(tmp_path, "fedavg", 0.5 + seed / 100, seed, alpha=alpha)
            write(tmp_path, "pacfl", 0.6 + seed / 100, seed, alpha=alpha)
    found = table(tmp_path, columns="data.scheme.alpha")
    words = ("table", "--runs", tmp_path, "--columns", "data.scheme.alpha")
    assert run(*words, "--latex")[1] == found.latex()
    assert run(*words, "--markdown")[1] == found.markdown()
    printed = json.loads(run(*words, "--json", "--protocol", "personal")[1])
    assert (printed["metric"], printed["protocol"]) == ("accuracy", "personal")
    assert printed["cells"] == table(tmp_path, columns="data.scheme.alpha", protocol="personal").records()
    drawn = run(*words, "--rows", "algorithm", "--rows", "learning.lr")[1]
    assert re.search(r"algorithm\s+lr\s+alpha 0.1\s+alpha 0.5", drawn)
    assert re.search(r"pacfl\s+0.1\s+60.50 ± 0.50 ★\s+60.50 ± 0.50 ★", drawn)
    assert "★: distinguished" in drawn
    code, _, message = run(*words, "--latex", "--json")
    assert code == 1
    assert "choose one of --latex" in message
