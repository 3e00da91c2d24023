"""Who took part in the last rounds and who did not, from their records: a new server knows it too."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pacfl.federation.message import ClientId


@dataclass(eq=False)
class Attendance:
    """What a reader of the status has to know about clients and clusters."""

    missed: dict[ClientId, int] = field(default_factory=dict)  # rounds in a row, of those that missed the last
    why: dict[ClientId, str] = field(default_factory=dict)
    without_update: list[int] = field(default_factory=list)  # clusters, in the last round of training

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> "Attendance":
        """That of some rounds."""
        attendance = cls()
        for record in records:
            attendance.note(record)
        return attendance

    def note(self, record: Mapping[str, Any]) -> None:
        """Take the record of a round into account."""
        failed = _failed(record)
        away = dict.fromkeys(record.get("away", ()), "not connected") if record["sampled"] else {}
        present = {*record["sampled"], *record.get("delivered", ()), *record.get("paused", ())}
        for client in present - failed.keys() - away.keys():
            self.missed.pop(client, None)
            self.why.pop(client, None)
        for client, why in {**away, **failed}.items():
            self.missed[client] = self.missed.get(client, 0) + 1
            self.why[client] = why
        if record["sampled"]:
            self.without_update = without_update(record)


def without_update(record: Mapping[str, Any]) -> list[int]:
    """Clusters of which no update came in a round of training, although one was to be expected.

    Where a share of clients is sampled, a cluster may be left out; that is none of them.
    """
    sampled, failed = set(record["sampled"]), _failed(record).keys()
    away, paused = set(record.get("away", ())), set(record.get("paused", ()))
    members: dict[int, set[ClientId]] = {}
    for client, cluster in record["cluster_of"].items():
        members.setdefault(cluster, set()).add(int(client))
    return sorted(
        cluster
        for cluster, own in members.items()
        if not own & sampled - failed - paused and not own <= paused and (own & sampled or own <= away | paused)
    )


def _failed(record: Mapping[str, Any]) -> dict[ClientId, str]:
    return {failure["client"]: failure["what"] for failure in record.get("reply_failures", ())}
