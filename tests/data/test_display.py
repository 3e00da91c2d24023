from html.parser import HTMLParser

import numpy as np

from pacfl.data import BySet, Dataset, Groups, Iid, digits, from_arrays, grouped, partition


class Cells(HTMLParser):
    """The rows of cells of an HTML table, whose tags must be balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def values(name: str = "mine") -> Dataset:
    x = np.zeros((30, 2), np.float32)
    return from_arrays(x, np.zeros(30), x[:9], np.zeros(9), name)


def test_a_data_set_says_what_it_is_in_one_line() -> None:
    assert repr(digits()) == (
        "Dataset(digits: samples 5,768 for training, 1,420 for testing; shape (8, 8) of uint8; targets 10 classes; "
        "sources upright, turned, negative, mirrored)"
    )
    assert repr(values()) == (
        "Dataset(mine: samples 30 for training, 9 for testing; shape (2,) of float32; targets 1 value)"
    )
    assert len(repr(values("x" * 10_000))) < 300


def test_a_partition_says_how_much_each_client_has_in_one_line() -> None:
    clients = partition(digits(), BySet((30, 30, 30, 30), 40), 120, np.random.default_rng(0))
    assert repr(clients) == (
        "Partition(120 clients, 40 training samples each, 355 test samples each, 10 classes each, 4 true clusters)"
    )
    uneven = partition(values(), Iid(), 4, np.random.default_rng(0))
    assert repr(uneven) == "Partition(4 clients, 7..8 training samples each, 9 test samples each)"


def test_notebooks_show_tables() -> None:
    rows = Cells(digits()._repr_html_()).rows
    assert ["targets", "10 classes"] in rows
    clients = partition(digits(), BySet((6, 6, 6, 6), 40), 24, np.random.default_rng(0))
    _, clients = grouped(digits(), clients, Groups(permute_labels=2), np.random.default_rng(0))
    head, *body, more = Cells(clients._repr_html_()).rows
    assert head == ["client", "training samples", "test samples", "classes", "true cluster", "transform"]
    assert more == ["and 4 more"]
    assert len(body) == 20
    assert clients.true_cluster is not None
    assert clients.transforms is not None
    for c, row in enumerate(body):
        expected = [c, 40, 355, "0, 1, 2, 3, 4, 5, 6, 7, 2 more", clients.true_cluster[c], clients.transforms[c]]
        assert row == list(map(str, expected))


def test_names_cannot_break_a_table() -> None:
    assert "<b>" not in values("<b>")._repr_html_()
