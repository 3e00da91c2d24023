"""Gradient diversity in a federation that learns, on the embedded digits."""

from pathlib import Path

import pytest

from pacfl.reproduce.diversity import recorded
from pacfl.reproduce.items import Item, Settings
from pacfl.reproduce.making import Request

pytest.importorskip("sklearn")

FILE = """
[data]
name = "digits"
clients = 8
disjoint-labels = true
scheme = { kind = "by-set", counts = [2, 2, 2, 2], size = 60 }

[model]
name = "mlp"

[learning]
epochs = 1

[schedule]
rounds = 3
participation = 1.0

[[algorithm]]
name = "pacfl"
clusters = 4

[[algorithm]]
name = "fedavg"
"""


def test_clients_of_a_cluster_agree_more_than_all_clients_and_one_cluster_is_everybody(tmp_path: Path) -> None:
    path = tmp_path / "digits.toml"
    path.write_text(FILE, encoding="utf-8")
    columns: dict[str, Settings] = {"digits": ()}
    item = Item("digits", path, 1, "Digits", "nowhere", "convergence", columns=columns)
    entries = list(recorded(item, "digits", Request(scale="paper")))
    clustered = [one for one in entries if one["method"].startswith("pacfl")]
    together = [one for one in entries if one["method"] == "fedavg"]
    assert [one["round"] for one in clustered] == [one["round"] for one in together] == [1, 2, 3]
    assert all(1 <= one["within"] < one["across"] for one in clustered)
    assert all(one["within"] == one["across"] for one in together)
