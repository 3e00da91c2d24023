"""Real processes, really killed."""

from pathlib import Path

from studies.kills import survived


def test_an_experiment_killed_three_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    told = survived(tmp_path, times=3, seed=2, rounds=15)
    assert told.kills == 3
    assert told.played_again <= told.while_playing
