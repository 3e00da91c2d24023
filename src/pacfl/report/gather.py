"""Folders, or hashes, given on the command line -> what is in them."""

from collections.abc import Sequence
from pathlib import Path

from pacfl.errors import StoreError
from pacfl.experiment.compare import solo_runs
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.report import federations
from pacfl.report.runs import read
from pacfl.report.summary import ReportData, SignatureFederation
from pacfl.signatures.folder import is_federation


def gather(names: Sequence[str], runs: Path) -> ReportData:
    """What is in run folders, folders of runs, runs in `runs` (by the beginning of their hashes), or federations."""
    folders: dict[Path, RunFolder] = {}
    found: dict[Path, SignatureFederation] = {}
    for name in names:
        if is_federation(Path(name)):
            found[Path(name).resolve()] = federations.read(Path(name))
        else:
            folders |= {folder.path.resolve(): folder for folder in _run_folders(name, runs)}
    finished = [folder for folder in folders.values() if folder.result() is not None]
    unfinished = {f.path.name: len(f.records()) for f in folders.values() if f not in finished}
    if not finished and not found:
        raise StoreError(
            f"none of the {len(unfinished)} runs in {', '.join(names)} is finished; 'pacfl run' resumes them"
        )
    solo = solo_runs(finished)
    return ReportData(tuple(read(folder, solo) for folder in finished), unfinished, tuple(found.values()))


def _run_folders(name: str, runs: Path) -> list[RunFolder]:
    path = Path(name)
    if (path / "run.json").exists():
        return [RunFolder(path)]
    if path.is_dir():
        found = all_folders(path)
        if not found:
            raise StoreError(
                f"{path}: has no runs in it; "
                "give a run folder, a folder of them, hashes, or a folder that 'pacfl cluster' wrote"
            )
        return found
    found = [folder for folder in all_folders(runs) if folder.path.name.startswith(name)]
    if len(found) != 1:
        raise StoreError(f"{name}: is no folder, and {len(found)} runs in {runs} begin so; 'pacfl ls' lists them")
    return found
