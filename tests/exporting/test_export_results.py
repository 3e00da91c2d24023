"""Models of results in Python leave: own modules, named clients, tokens, batch normalisation, privacy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pacfl
from pacfl.errors import DataError, StoreError
from pacfl.experiment.result import load
from pacfl.exporting.card import privacy_spent
from pacfl.privacy.accounting import epsilon_of_uploads

RNG = np.random.default_rng(0)
TRAINING = pacfl.LocalTraining(epochs=1, lr=0.05)


class Reader(nn.Module):
    """Means of embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(12, 6), nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.embedding(tokens).mean(dim=1))
        return outputs


class Normed(nn.Module):
    """A convolution with batch normalisation, for channels first."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x)
        return outputs


def texts() -> dict[str, Any]:
    x, y = RNG.integers(0, 12, (60, 5)), RNG.integers(0, 3, 60)
    return {name: (x[i::2], y[i::2], x[i::3], y[i::3]) for i, name in enumerate(("site a", "site b"))}


def inside(result: pacfl.Result, client: str | int, inputs: np.ndarray, personal: bool = False) -> np.ndarray:
    """The outputs of the module in Python for inputs that are prepared by hand."""
    with torch.no_grad():
        return result.module(client, personal=personal)(torch.from_numpy(inputs)).numpy()


def test_a_text_model_takes_tokens(tmp_path: Path) -> None:
    result = pacfl.federate(texts(), Reader, pacfl.LocalOnly(), TRAINING, rounds=1, normalise="none")
    manifest = pacfl.export(result, tmp_path / "models")
    assert [file.file for file in manifest.files] == ["client-site a.pt2", "client-site b.pt2"]
    tokens = RNG.integers(0, 12, (7, 5))
    for client in ("site a", "site b"):
        found = pacfl.predict(tmp_path / "models", tokens, client=client)
        np.testing.assert_allclose(found.outputs, inside(result, client, tokens), rtol=0, atol=1e-5)
    with pytest.raises(DataError, match="takes integers"):
        pacfl.predict(tmp_path / "models", tokens + 0.5, client="site a")


def test_statistics_of_batch_normalisation_leave_with_the_weights(tmp_path: Path) -> None:
    """By hand: normalised over all training pixels of a channel, then channels first."""
    x, y = RNG.normal(3.0, 2.0, (40, 6, 6, 3)).astype(np.float32), RNG.integers(0, 2, 40)
    clients = [(x[:20], y[:20], x[:20], y[:20]), (x[20:], y[20:], x[20:], y[20:])]
    result = pacfl.federate(clients, Normed, pacfl.FedAvg(), TRAINING, rounds=2)
    pacfl.export(result, tmp_path / "models")
    pacfl.export(result, tmp_path / "personal", client=1, personal=True)
    prepared = np.moveaxis((x - x.mean(axis=(0, 1, 2))) / x.std(axis=(0, 1, 2)), -1, 1)
    for folder, personal in (("models", False), ("personal", True)):
        found = pacfl.predict(tmp_path / folder, x).outputs
        np.testing.assert_allclose(found, inside(result, 1, prepared, personal), rtol=0, atol=1e-4)


def test_a_stored_run_from_python_is_exported_with_its_module(tmp_path: Path) -> None:
    result = pacfl.federate(
        texts(), Reader, pacfl.FedAvg(), TRAINING, rounds=1, normalise="none", runs=tmp_path / "runs"
    )
    folder = tmp_path / "runs" / result.hash
    with pytest.raises(StoreError, match=r"was run from Python.*pacfl\.load"):
        pacfl.export(folder, tmp_path / "models")
    (file,) = pacfl.export(load(folder, module=Reader), tmp_path / "models", format="safetensors").files
    (other,) = pacfl.export(result, tmp_path / "others", format="safetensors").files
    assert (file.file, file.sha256) == ("cluster-0.safetensors", other.sha256)
    with pytest.raises(DataError, match="a result knows them"):
        pacfl.export(result, tmp_path / "more", data=tmp_path)


def test_the_card_states_the_privacy_spent(tmp_path: Path) -> None:
    private = pacfl.FedAvg(aggregation=pacfl.Aggregation(clip_norm=1.0, noise_multiplier=30.0, noise="seeded"))
    result = pacfl.federate(texts(), Reader, private, TRAINING, rounds=3, participation=1.0, normalise="none")
    pacfl.export(result, tmp_path / "models", format="safetensors")
    card = " ".join((tmp_path / "models" / "MODEL_CARD.md").read_text().split())
    assert f"sent 3 updates, as many as any, are protected with epsilon {epsilon_of_uploads(30.0, 3, 1e-5):.3g}" in card
    assert "protects nobody who knows the seed" in card


def test_privacy_of_signatures_and_of_clipping_alone_is_stated() -> None:
    assert privacy_spent({"signature_epsilon": 2.0}, [])[0].startswith(
        "Signatures: each sample of a client is protected with epsilon 2, delta 1e-05"
    )
    assert privacy_spent({"clip_norm": 1.0}, []) == [
        "Updates: clipped to norm 1, without noise. Clipping alone guarantees no privacy."
    ]
    assert "No differential privacy" in privacy_spent({}, [[0, 1]])[0]
