"""A torch Dataset for each client, trained together from Python: python train.py curves.png.

Eight hospitals photograph the same digits, four of them with their camera upside down. PACFL finds out which.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

import pacfl

SITES = 8


class Photographs(Dataset[tuple[Tensor, int]]):
    """The images of one hospital: (1, 8, 8) tensors and their labels."""

    def __init__(self, site: int, train: bool) -> None:
        """Every hospital has its own images, a quarter of them for testing."""
        images, labels = load_digits(return_X_y=True)
        mine = [i for i in range(len(labels)) if i % SITES == site and (i // SITES % 4 != 0) == train]
        self.images = torch.tensor(images[mine], dtype=torch.float32).reshape(-1, 1, 8, 8)
        self.labels = labels[mine].tolist()
        self.upside_down = site % 2 == 1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = self.images[i]
        return (image.flip(1) if self.upside_down else image), self.labels[i]


class Net(nn.Module):
    """One convolution and one layer of outputs."""

    def __init__(self) -> None:
        """Build the layers."""
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 3)
        self.outputs = nn.Linear(8 * 3 * 3, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images (n, 1, 8, 8)."""
        x = torch.relu(self.convolution(x))
        logits: Tensor = self.outputs(nn.functional.max_pool2d(x, 2).flatten(1))
        return logits


def main(picture: str) -> None:
    """Train with three algorithms, and draw how their accuracy grows."""
    from matplotlib.figure import Figure

    clients = {f"hospital {i}": (Photographs(i, True), Photographs(i, False)) for i in range(SITES)}
    training = pacfl.LocalTraining(epochs=2, lr=0.05)
    axes = Figure(layout="constrained").subplots()
    for algorithm in (pacfl.LocalOnly(), pacfl.FedAvg(), pacfl.PACFL()):
        result = pacfl.federate(
            clients, Net, algorithm, training, rounds=15, participation=0.5, evaluate_every=3, final_personal=False
        )
        print(
            f"{type(algorithm).__name__:10} {result.accuracy['received'].mean:.3f}  clusters: {dict(result.clusters)}"
        )
        history = result.history
        received = history[(history["protocol"] == "received") & (history["metric"] == "accuracy")]
        axes.plot(received["round"], received["mean"], marker="o", label=type(algorithm).__name__)
    axes.set(xlabel="round", ylabel="mean accuracy over hospitals")
    axes.legend()
    axes.figure.savefig(picture)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "curves.png")
