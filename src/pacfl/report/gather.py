"""Folders, or hashes, given on the command line -> what is in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pacfl.errors import StoreError
from pacfl.experiment.compare import solo_runs
from pacfl.experiment.federations import server_federation
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.folders import Folder, recognise, required
from pacfl.report import federations, runs, servers
from pacfl.report.summary import ReportData, RunSummary, SignatureFederation
from pacfl.signatures.folder import load


@dataclass(frozen=True)
class Sources:
    """Folders by their full paths, so that what is named twice is there once."""

    runs: dict[Path, RunFolder] = field(default_factory=dict)
    federations: dict[Path, Folder] = field(default_factory=dict)


def gather(names: Sequence[str], runs_in: Path, *, unfinished: bool = False) -> ReportData:
    """What is in the folders: of runs, of clusters, of servers, of deployments; or hashes of runs in `runs_in`.

    unfinished: runs that are not finished are shown as far as they are; otherwise they are named only.
    """
    sources = find_sources(names, runs_in)
    found = report_data(sources, unfinished=unfinished)
    if not found.runs and not found.federations:
        raise StoreError(
            f"none of the {len(found.unfinished)} runs in {', '.join(names)} is finished; 'pacfl run' resumes them"
        )
    return found


def find_sources(names: Sequence[str], runs_in: Path) -> Sources:
    """The folders that names stand for."""
    sources = Sources()
    for name in names:
        folder = recognise(Path(name))
        if folder is None or folder.kind in ("run", "runs"):
            sources.runs.update({one.path.resolve(): one for one in _run_folders(name, folder, runs_in)})
        else:
            sources.federations[folder.federation.resolve()] = folder
    return sources


def report_data(sources: Sources, *, unfinished: bool = False) -> ReportData:
    """What is in folders."""
    finished = [folder for folder in sources.runs.values() if folder.result() is not None]
    others = [folder for folder in sources.runs.values() if folder not in finished]
    begun = [folder for folder in others if folder.records()] if unfinished else []
    solo = solo_runs(finished)
    parts = [_of_federation(folder) for folder in sources.federations.values()]
    return ReportData(
        runs=(*(runs.read(folder, solo) for folder in (*finished, *begun)), *(run for run, _ in parts if run)),
        unfinished={folder.path.name: len(folder.records()) for folder in others if folder not in begun},
        federations=tuple(signatures for _, signatures in parts if signatures),
    )


def _of_federation(folder: Folder) -> tuple[RunSummary | None, SignatureFederation | None]:
    """What its sites trained, and the clusters of their signatures."""
    if folder.kind == "clusters":
        return None, federations.read(folder, load(folder.path))
    stored = server_federation(folder)
    signatures = stored.signatures
    has_pairs = signatures is not None and len(signatures.names) > 1
    return servers.read(stored), federations.read(folder, signatures) if signatures and has_pairs else None


def _run_folders(name: str, folder: Folder | None, runs_in: Path) -> list[RunFolder]:
    path = Path(name)
    if folder is not None:
        return [RunFolder(path)] if folder.kind == "run" else all_folders(path)
    if path.is_dir():
        required(path, "report", "run", "runs", "clusters", "server", "deployment")
    found = [one for one in all_folders(runs_in) if one.path.name.startswith(name)]
    if len(found) != 1:
        raise StoreError(f"{name}: is no folder, and {len(found)} runs in {runs_in} begin so; 'pacfl ls' lists them")
    return found
