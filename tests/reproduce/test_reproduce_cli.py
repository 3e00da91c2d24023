import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pacfl.cli import app
from pacfl.errors import ConfigError

RUNNER = CliRunner()


def test_all_items_are_listed_with_what_they_need_and_cost(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["reproduce", "--scale", "paper", "--data", str(tmp_path), "--json"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["number"] for row in rows] == list(range(1, 17))
    skew = rows[1]
    assert skew["needs"] == ["cifar10", "cifar100", "fmnist", "svhn"]
    assert skew["runs"] == 0
    assert "data not available here" in skew["missing"]["svhn"]


def test_the_list_says_that_its_hours_are_an_estimate(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["reproduce", "--data", str(tmp_path)])
    assert "estimate" in done.stdout
    assert all(name in done.stdout for name in ("label-skew-20", "megabits-to-target"))


def test_an_outcome_can_be_exported_and_shown_again(tmp_path: Path) -> None:
    first = RUNNER.invoke(app, ["reproduce", "angles", "--data", str(tmp_path), "--export", str(tmp_path / "results")])
    assert first.exit_code == 0, first.output
    again = RUNNER.invoke(app, ["reproduce", "angles", "--from", str(tmp_path / "results"), "--json"])
    assert json.loads(again.stdout)["item"] == "angles"


def test_an_item_that_was_not_exported_is_refused(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["reproduce", "angles", "--from", str(tmp_path)])
    assert done.exit_code == 1
    assert "has no outcome of angles" in done.output


def test_unknown_names_and_scales_are_refused(tmp_path: Path) -> None:
    assert RUNNER.invoke(app, ["reproduce", "mix4", "--scale", "huge"]).exit_code == 2
    done = RUNNER.invoke(app, ["reproduce", "curves", "--export", str(tmp_path)])
    assert done.exit_code == 2
    assert "export those" in done.output.replace("\n", " ")
    with pytest.raises(ConfigError, match="did you mean 'mix4'"):
        RUNNER.invoke(app, ["reproduce", "mix"], catch_exceptions=False)


def test_a_page_is_written_of_what_was_exported(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    done = RUNNER.invoke(app, ["reproduce", "--page", str(page), "--from", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert page.read_text(encoding="utf-8").count("Not run yet.") == 14
