"""What the pages say of algorithms is what the code does."""

import re
from dataclasses import fields
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from pacfl.algorithms import NAMES, build, find
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.federation.message import nbytes
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import Model, as_model
from pacfl.learning.nets import lenet5
from pacfl.learning.randomness import stream

DOCS = Path(__file__).parents[2] / "docs"
INDEX = (DOCS / "algorithms" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_card_has_every_setting_with_its_default(name: str) -> None:
    card = (DOCS / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \| `(.+?)` \|", card, flags=re.MULTILINE)
    own = [f for f in fields(find(name)) if f.name != "aggregation"]  # of every algorithm: docs/experiments.md
    assert sorted(listed) == sorted((f.name.replace("_", "-"), repr(f.default)) for f in own)


def test_the_index_has_every_card() -> None:
    assert sorted(re.findall(r"\]\(([\w-]+)\.md\) \|", INDEX)) == sorted(NAMES)


@cache
def lenet(name: str = "") -> Model:
    """LeNet-5; for FedBN with batch normalisation behind its convolutions, which is not sent."""

    def net() -> nn.Module:
        layers = [*lenet5((3, 32, 32), 10).children()]
        if name != "fedbn":
            return nn.Sequential(*layers)
        normed = ([c, nn.BatchNorm2d(c.out_channels)] if isinstance(c, nn.Conv2d) else [c] for c in layers)
        return nn.Sequential(*chain(*normed))

    return as_model(net, 0)


def bytes_sent(name: str) -> list[int]:
    """By a client with LeNet-5 and a few images of 3 × 32 × 32: down and up in a round, and once on joining."""
    algorithm = build(name)
    images = stream(0, "images").integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    train = Samples(np.moveaxis(images, -1, 1).astype(np.float32) / 255, np.arange(40) % 10)
    pool = Pool(train, train, images, (ClientIndices(np.arange(40), np.arange(40)),))
    client = ClientSide(Setup(algorithm, lenet(name), pool, LocalTraining(epochs=0), seed=0))
    profile = client.profile(0, 0)
    down = algorithm.download(algorithm.admit(algorithm.init_server(lenet(name)), {0: profile}), 0)
    up, _, _ = client.train(0, 0, down, algorithm.init_client(lenet(name)))
    return [nbytes(message) for message in (down, up, profile)]


@pytest.mark.parametrize("name", NAMES)
def test_the_index_tells_the_bytes_that_are_sent(name: str) -> None:
    assert len(lenet().initial) == 62_006
    (row,) = (line for line in INDEX.splitlines() if f"]({name}.md) |" in line)
    assert [int(cell.replace(",", "")) for cell in row.split("|")[3:6]] == bytes_sent(name)


def test_the_page_on_adding_an_algorithm_runs() -> None:
    page = (DOCS / "adding-an-algorithm.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "adding-an-algorithm.md", "exec"), names)
    refused = re.search(r"`(Damped\(eta=2\))` says \*(.*?)\*", page)
    assert refused is not None
    with pytest.raises(ValueError, match=re.escape(refused[2])):
        eval(refused[1], names)
