"""Which folders are meant, and what is in them."""

from collections.abc import Sequence
from pathlib import Path

from pacfl.errors import StoreError
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.report import federations
from pacfl.report.facts import Alike, Gathered
from pacfl.report.runs import read


def gather(words: Sequence[str], runs: Path) -> Gathered:
    """What is meant: run folders, folders of runs, (beginnings of) hashes of runs kept in `runs`, or federations."""
    folders: dict[Path, RunFolder] = {}
    alike: dict[Path, Alike] = {}
    for word in words:
        if federations.is_there(Path(word)):
            alike[Path(word).resolve()] = federations.read(Path(word))
        else:
            folders |= {folder.path.resolve(): folder for folder in _meant(word, runs)}
    finished, unfinished = [], {}
    for folder in folders.values():
        if folder.result() is None:
            unfinished[folder.path.name] = len(folder.records())
        else:
            finished.append(read(folder))
    if not finished and not alike:
        raise StoreError(f"none of the {len(unfinished)} runs in {', '.join(words)} is finished; 'pacfl run' goes on")
    return Gathered(tuple(finished), unfinished, tuple(alike.values()))


def _meant(word: str, runs: Path) -> list[RunFolder]:
    path = Path(word)
    if (path / "run.json").exists():
        return [RunFolder(path)]
    if path.is_dir():
        found = all_folders(path)
        if not found:
            raise StoreError(
                f"{path}: has no runs in it; give a run folder, a folder of them, hashes, or what 'pacfl cluster' made"
            )
        return found
    begin = [folder for folder in all_folders(runs) if folder.path.name.startswith(word)]
    if len(begin) != 1:
        raise StoreError(f"{word}: is no folder, and {len(begin)} runs in {runs} begin so; 'pacfl ls' lists them")
    return begin
