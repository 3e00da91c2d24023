"""The federation of a server, watched while it runs. Nothing here imports Flower."""

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, Final

from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import metric_of
from pacfl.flower import health
from pacfl.folders import Folder
from pacfl.report.gather import Sources, report_data
from pacfl.report.progress import Cluster, Records, Site, State, seconds_left, stamp_of
from pacfl.report.summary import ReportData

MOST_ERRORS: Final = 10
NOTHING: Final[Mapping[str, Any]] = {"phase": "starting", "clients": {}, "round": 0, "rounds": 0}


class WatchedServer:
    """The folder of a server, or of a deployment."""

    def __init__(self, folder: Folder) -> None:
        """Whether or not there is a round already."""
        self._folder, self._records = folder, Records(RunFolder(folder.federation))

    def report(self) -> ReportData:
        """What the sites have trained, and their clusters."""
        return report_data(Sources({}, {self._folder.federation.resolve(): self._folder}))

    def state(self) -> State:
        """The status of the server, and what its records say."""
        where, records = self._folder.federation, self._records.read()
        status = health.described(where) or {**NOTHING}
        metric, done, planned = metric_of(status), status["round"], status["rounds"]
        problems = health.problems(where)
        stalled = any(one.code == health.STALLED for one in problems) and status["phase"] != "failed"
        pauses = [b - a for a, b in pairwise(record["at"] for record in records if record["sampled"])]
        return State(
            kind=self._folder.kind,
            name=self._folder.name,
            phase="stalled" if stalled and status["phase"] == "running" else status["phase"],
            done=done,
            planned=planned,
            eta=seconds_left(pauses, planned - done) if status["phase"] == "running" and not stalled else None,
            metric=metric,
            score=status.get(metric),
            bytes_down=sum(record["bytes_down"] for record in records),
            bytes_up=sum(record["bytes_up"] for record in records),
            updated=status.get("at"),
            version=f"{stamp_of(where / 'checkpoint.json')}-{status['phase'] == 'finished'}",
            clusters=_clusters(status["clients"]),
            sites=tuple(_site(int(c), about, records) for c, about in status["clients"].items()),
            errors=tuple(islice(_errors(status, records), MOST_ERRORS)),
            problems=tuple(one.what for one in problems),
        )


def _clusters(clients: Mapping[str, Mapping[str, Any]]) -> tuple[Cluster, ...]:
    members: dict[int, list[str]] = {}
    for about in clients.values():
        if about["cluster"] is not None:
            members.setdefault(about["cluster"], []).append(about["name"])
    return tuple(Cluster(k, tuple(names)) for k, names in sorted(members.items()))


def _site(client: int, about: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Site:
    replied = (record["at"] for record in reversed(records) if _replied(client, record))
    return Site(
        name=about["name"],
        cluster=about["cluster"],
        alive=about["alive"],
        last_seen=next(replied, None),
        missed=about.get("missed", 0),
        failure=about.get("failure"),
    )


def _replied(client: int, record: Mapping[str, Any]) -> bool:
    """Whether a site took part in a round with a valid reply."""
    asked = client in record["sampled"] or any(str(client) in by for by in record.get("by_client", {}).values())
    return asked and all(failure["client"] != client for failure in record.get("reply_failures", ()))


def _errors(status: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Any:
    """What went wrong, the last first, in the words of the status."""
    names = {int(c): about["name"] for c, about in status["clients"].items()}
    said = [
        f"round {record['round']} client {names.get(failure['client'], failure['client'])}: {failure['what']}"
        for record in reversed(records)
        for failure in reversed(record.get("reply_failures", ()))
    ]
    last = status.get("last_error")
    return iter(dict.fromkeys([*([last] if last else []), *said]))
