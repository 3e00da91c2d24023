"""Functions that train the same clients for one epoch: by this project, and by its peers."""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.training_work import LEARNING, NETS, Net, clients
from pacfl.algorithms import FedAvg
from pacfl.federation.client_side import Pool, Setup
from pacfl.federation.local import LocalBackend
from pacfl.learning.client_context import LocalTraining

Train = Callable[[], object]  # all clients, one epoch


class Images(Dataset[tuple[Tensor, int]]):
    """Images that are converted to tensors and normalised one by one on access."""

    def __init__(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
        """Images (n, height, width, channels) and labels (n,)."""
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self._x[i].squeeze())
        pixels = np.asarray(image, dtype=np.uint8).reshape(self._x.shape[1:])
        tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float().div_(255)
        return (tensor - 0.5) / 0.25, int(self._y[i])


def epoch(module: nn.Module, loader: "DataLoader[Any]") -> None:
    """The usual training loop."""
    optimiser = torch.optim.SGD(module.parameters(), lr=LEARNING.lr, momentum=LEARNING.momentum)
    module.train()
    for x, y in loader:
        optimiser.zero_grad()
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Let torch use n threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def loaders(net: Net, pool: Pool, cores: int) -> Train:
    """A DataLoader over tensors, the plain loop, all cores for every operation."""
    sets = [TensorDataset(torch.tensor(x), torch.tensor(y)) for x, y in _each(pool)]

    def train() -> None:
        with threads(cores):
            for own in sets:
                epoch(net.module(), DataLoader(own, LEARNING.batch_size, shuffle=True))

    return train


def images(net: Net, pool: Pool, cores: int) -> Train:
    """As the authors' released code: the DataLoader transforms every image in every epoch."""
    sets = [Images(_bytes(x), y) for x, y in _each(pool)]

    def train() -> None:
        with threads(cores):
            for own in sets:
                epoch(net.module(), DataLoader(own, LEARNING.batch_size, shuffle=True))

    return train


@contextmanager
def ours(net: Net, pool: Pool, engine: str, workers: int, learning: LocalTraining = LEARNING) -> Iterator[Train]:
    """The local backend of this project."""
    model = net.model()
    downloads = {c: {"w": model.initial} for c in range(len(pool.client_indices))}
    setup = Setup(FedAvg(), model, pool, learning, 0, engine=engine)
    with LocalBackend(workers).connect(setup) as connected:
        connected.train(0, downloads, frozenset())  # starts the workers
        yield lambda: connected.train(0, downloads, frozenset())


class Simulated:
    """Flower's simulation on Ray: one process per core, with the plain loop on one thread."""

    def __init__(self, grid: Any, module: nn.Module, nodes: list[int]) -> None:
        """Nodes that reply, and the model that is sent to them."""
        self._grid, self._weights, self.nodes = grid, module.state_dict(), nodes

    def train(self, nodes: list[int]) -> None:
        """One round: send the model to the nodes and average their replies."""
        from flwr.app import ArrayRecord, Message, RecordDict

        content = RecordDict({"arrays": ArrayRecord(self._weights)})
        replies = list(self._grid.send_and_receive([Message(content, node, "train") for node in nodes]))
        if len(replies) != len(nodes) or any(reply.has_error() for reply in replies):
            raise RuntimeError(f"{len(replies)} of {len(nodes)} clients replied")
        trained = [reply.content["arrays"].to_torch_state_dict() for reply in replies]
        self._weights = {key: torch.stack([t[key] for t in trained]).mean(0) for key in self._weights}


@contextmanager
def flower(name: str, n_clients: int, n_samples: int, workers: int) -> Iterator[Simulated]:
    """A simulation that runs until the end of the `with` block."""
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    server, client = ServerApp(), ClientApp()
    grids: queue.Queue[Any] = queue.Queue()
    finished = threading.Event()

    def pass_grid(grid: Any, context: Any) -> None:  # noqa: ARG001 - Flower's signature
        grids.put(grid)
        finished.wait()

    def reply(message: Any, context: Any) -> Any:
        return _reply(message, context.node_config["partition-id"], name, n_clients, n_samples)

    server.main()(pass_grid)
    client.train()(reply)
    resources: Any = {"init_args": {"num_cpus": workers}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    thread = threading.Thread(target=lambda: run_simulation(server, client, n_clients, backend_config=resources))
    thread.start()
    try:
        grid = grids.get(timeout=300)
        nodes: list[int] = []
        while len(nodes) < n_clients:
            nodes = sorted(grid.get_node_ids())
        simulated = Simulated(grid, NETS[name].module(), nodes)
        simulated.train(nodes[: 4 * workers])  # processes import torch at their first training
        yield simulated
    finally:
        finished.set()
        thread.join()


def _reply(message: Any, partition: int, name: str, n_clients: int, n_samples: int) -> Any:
    """Train one client, in a process of Ray."""
    from flwr.app import ArrayRecord, Message, RecordDict

    torch.set_num_threads(1)
    module = NETS[name].module()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    epoch(module, DataLoader(_own(name, n_clients, n_samples)[partition], LEARNING.batch_size, shuffle=True))
    return Message(RecordDict({"arrays": ArrayRecord(module.state_dict())}), reply_to=message)


@cache
def _own(name: str, n_clients: int, n_samples: int) -> list[TensorDataset]:
    pool = clients(NETS[name], n_clients, n_samples)
    return [TensorDataset(torch.tensor(x), torch.tensor(y)) for x, y in _each(pool)]


def pfl_research(net: Net, pool: Pool, sampled: int, n_rounds: int, cores: int) -> None:
    """Federated averaging by pfl-research in one process."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    logging.getLogger("pfl").setLevel(logging.ERROR)
    module = _Learner(net.module())
    users = {str(c): [torch.tensor(x), torch.tensor(y)] for c, (x, y) in enumerate(_each(pool))}
    federated = FederatedDataset.from_slices(users, get_user_sampler("random", list(users)))
    model = PyTorchModel(
        module,
        local_optimizer_create=partial(torch.optim.SGD, momentum=LEARNING.momentum),
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    params = NNAlgorithmParams(
        central_num_iterations=n_rounds, evaluation_frequency=10**6, train_cohort_size=sampled, val_cohort_size=0
    )
    training = NNTrainHyperParams(
        local_batch_size=LEARNING.batch_size, local_num_epochs=LEARNING.epochs, local_learning_rate=LEARNING.lr
    )
    backend = SimulatedBackend(federated, federated, postprocessors=[WeightByDatapoints()])
    with threads(cores):
        FederatedAveraging().run(params, backend, model, training, send_metrics_to_platform=False)


class _Learner(nn.Module):
    """A net with the loss and the metrics that pfl-research requires."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self._net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch."""
        return cross_entropy(self._net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """The metrics of a batch."""
        from pfl.metrics import Weighted

        with torch.no_grad():
            return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


def _each(pool: Pool) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    for indices in pool.client_indices:
        yield pool.train.x[indices.train], pool.train.y[indices.train]


def _bytes(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Samples as images (n, height, width, channels)."""
    return np.clip(128 + 32 * x.transpose(0, 2, 3, 1), 0, 255).astype(np.uint8)
