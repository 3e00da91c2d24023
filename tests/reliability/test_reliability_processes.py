"""Real processes, really killed."""

from pathlib import Path

from pacfl.experiment.config import read
from pacfl.experiment.store import all_folders
from studies.kills import EXPERIMENT, files_of_runs, killed, rounds_lost
from tests.reliability.small_runs import run_as_command


def test_an_experiment_killed_twice_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """`pacfl run` with two workers is killed while its two runs have 3 and 12 of 32 records; then both are resumed."""
    (tmp_path / "experiment.toml").write_text(EXPERIMENT.format(rounds=15))
    runs = tmp_path / "runs"
    for enough in (3, 12):

        def recorded(n: int = enough) -> bool:
            return sum(len(folder.records()) for folder in all_folders(runs)) >= n

        assert killed(tmp_path, "runs", workers=2, now=recorded)
        unfinished = [folder for folder in all_folders(runs) if folder.result() is None]
        assert unfinished, "killed too late to prove anything"
        assert all(rounds_lost(folder) <= 1 for folder in unfinished)
    for run in read(tmp_path / "experiment.toml"):
        list(run_as_command(run, runs))
        list(run_as_command(run, tmp_path / "undisturbed"))
    assert files_of_runs(runs) == files_of_runs(tmp_path / "undisturbed")
