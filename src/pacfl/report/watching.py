"""Folders of runs and of clusters, watched while they change."""

import hashlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from pacfl.errors import StoreError
from pacfl.experiment.compare import n_rounds
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.experiment.summary import label, metric_of, scores
from pacfl.folders import CLUSTERS, Folder, Kind
from pacfl.report.gather import Sources, report_data
from pacfl.report.progress import Cluster, Records, RunProgress, State, seconds_left, stamp_of
from pacfl.report.summary import ReportData
from pacfl.signatures.folder import load

QUIET: Final = 120.0  # seconds, or ten rounds if that is more, without a new round after which a run has stalled
ROUNDS_OF_QUIET: Final = 10


class WatchedRuns:
    """Runs in folders, those that are not finished too."""

    def __init__(
        self,
        folders: Callable[[], Sequence[RunFolder]],
        name: str,
        kind: Kind = "runs",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """folders: those that there are now."""
        self._folders, self._name, self._kind, self._clock = folders, name, kind, clock
        self._records: dict[Path, Records] = {}
        self._rounds: list[tuple[float, int]] = []  # when how many rounds had ended, of all runs

    def report(self) -> ReportData:
        """All runs that have a round."""
        return report_data(Sources({one.path.resolve(): one for one in self._folders()}), unfinished=True)

    def state(self) -> State:
        """The runs, and what they come to together."""
        known = [(folder, *self._run(folder)) for folder in self._folders()]
        runs = tuple(run for _, run, _ in known)
        changed = [at for *_, at in known if at is not None]
        done, planned = sum(run.done for run in runs), sum(run.planned for run in runs)
        updated = max(changed, default=None)
        self._note(updated, done)
        phase = next((p for p in ("running", "stalled", "waiting") if any(r.phase == p for r in runs)), "finished")
        latest = max(known, key=lambda one: one[2] or 0.0, default=None)
        quiet = 0.0 if updated is None else self._clock() - updated
        return State(
            kind=self._kind,
            name=self._name,
            phase=phase,
            done=done,
            planned=planned,
            eta=self._left(planned - done) if phase == "running" else None,
            metric=latest[1].metric if latest else metric_of({}),
            score=latest[1].score if latest else None,
            bytes_down=sum(run.bytes_down for run in runs),
            bytes_up=sum(run.bytes_up for run in runs),
            updated=updated,
            version=_digest([(run.hash, run.done, run.phase == "finished") for run in runs]),
            clusters=self._clusters(known[0][0]) if len(known) == 1 else (),
            runs=runs,
            problems=(_stalled(quiet),) if phase == "stalled" else (),
        )

    def _run(self, folder: RunFolder) -> tuple[RunProgress, float | None]:
        """How far a run is, and when it changed last."""
        content, result, records = folder.content() or {}, folder.result(), self._records_of(folder).read()
        evaluated: dict[str, Any] = next((one for one in reversed(records) if scores(one)), {})
        planned = n_rounds(folder)
        files = [folder.path / name for name in ("rounds.jsonl", "result.json")]
        changed = max((file.stat().st_mtime for file in files if file.exists()), default=None)
        return RunProgress(
            hash=folder.path.name,
            algorithm=label(content["algorithm"], content.get("aggregation", {})),
            seed=content["seed"],
            phase=self._phase(result is not None, changed),
            done=planned if result is not None else min(len(records), planned),
            planned=planned,
            clusters=records[-1]["clusters"] if records else None,
            metric=metric_of(evaluated),
            score=scores(evaluated)["received"]["mean"] if "received" in scores(evaluated) else None,
            bytes_down=sum(record["bytes_down"] for record in records),
            bytes_up=sum(record["bytes_up"] for record in records),
        ), changed

    def _phase(self, finished: bool, changed: float | None) -> str:
        if finished or changed is None:
            return "finished" if finished else "waiting"
        a_round = self._left(1) or 0.0
        return "running" if self._clock() - changed <= max(QUIET, ROUNDS_OF_QUIET * a_round) else "stalled"

    def _records_of(self, folder: RunFolder) -> Records:
        return self._records.setdefault(folder.path, Records(folder))

    def _note(self, updated: float | None, done: int) -> None:
        """Remember when rounds ended: records do not say."""
        if updated is not None and (not self._rounds or done > self._rounds[-1][1]):
            self._rounds.append((updated, done))

    def _left(self, rounds: int) -> float | None:
        """Seconds that so many rounds take, by those that were seen."""
        pauses = [(end - start) / (n - m) for (start, m), (end, n) in pairwise(self._rounds)]
        return seconds_left(pauses, rounds)

    def _clusters(self, folder: RunFolder) -> tuple[Cluster, ...]:
        records = self._records_of(folder).read()
        described = (folder.description("clients") or {}).get("clients", [])
        members: dict[int, list[str]] = {}
        for client, k in (records[-1]["cluster_of"] if records else {}).items():
            about = described[int(client)] if int(client) < len(described) else {}
            members.setdefault(int(k), []).append(str(about.get("name", client)))
        return tuple(Cluster(k, tuple(names)) for k, names in sorted(members.items()))


class WatchedClusters:
    """A folder of clusters: nothing is trained there, but clients join and leave."""

    def __init__(self, folder: Folder) -> None:
        """The folder that `pacfl cluster` made."""
        self._folder = folder

    def report(self) -> ReportData:
        """The clusters and the evidence for them."""
        return report_data(Sources({}, {self._folder.path.resolve(): self._folder}))

    def state(self) -> State:
        """Who is in which cluster."""
        file, federation = self._folder.path / CLUSTERS, load(self._folder.path)
        clusters = tuple(Cluster(k, tuple(names)) for k, names in enumerate(federation.clusters()) if names)
        return State(
            *("clusters", self._folder.name, "finished", 0, 0, None, metric_of({}), None, 0, 0),
            updated=file.stat().st_mtime,
            version=_digest([stamp_of(file)]),
            clusters=clusters,
        )


@contextmanager
def serving_runs(folders: Sequence[Path], name: str) -> Iterator[str]:
    """Serve a page about runs from a process of its own, until the block is left; the address.

    Whoever trains forks workers, which no other thread may disturb, and needs its core for itself.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_serve_runs, args=(tuple(folders), name, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here.recv()
    except EOFError:
        raise StoreError("the dashboard could not be started; the error is above") from None
    finally:
        process.terminate()
        process.join()


def _serve_runs(folders: Sequence[Path], name: str, address: Connection) -> None:
    """Serve until whoever started this process ends."""
    from pacfl.report.serving import serving

    parent = multiprocessing.parent_process()
    assert parent is not None  # it was spawned
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    with serving(WatchedRuns(lambda: [RunFolder(path) for path in folders], name)) as url:
        address.send(url)
        wait([parent.sentinel])


def watched(folder: Folder) -> WatchedRuns | WatchedClusters:
    """What to watch in a folder of runs, of one run, or of clusters."""
    if folder.kind == "clusters":
        return WatchedClusters(folder)
    path = folder.path
    one = folder.kind == "run"
    return WatchedRuns(lambda: [RunFolder(path)] if one else all_folders(path), folder.name, folder.kind)


def _stalled(quiet: float) -> str:
    return (
        f"no round has ended for {quiet:.0f} s: if 'pacfl run' does not run any more, the same command resumes what is "
        "not finished"
    )


def _digest(content: Sequence[object]) -> str:
    return hashlib.blake2b(repr(content).encode(), digest_size=8).hexdigest()
