"""What an item costs, in steps of SGD, and how long that may take here: an estimate from a measured speed."""

import time
from typing import Final

import numpy as np

from pacfl import algorithms
from pacfl.experiment.config import Run
from pacfl.federation.client_side import ClientIndices, Pool, Setup
from pacfl.federation.local import LocalBackend
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import as_model
from pacfl.learning.nets import NETS
from pacfl.learning.randomness import count_steps

MEASURED_CLIENTS: Final = 10
MEASURED_SAMPLES: Final = 500


def steps(run: Run, n_train: int) -> int:
    """Local steps of a run on so many training samples, the final personalisation of everybody included."""
    clients = run.data.clients
    here = clients - run.schedule.newcomers
    each = int(run.data.scheme.get("size", n_train // clients))
    local_steps = count_steps(each, run.learning.epochs, run.learning.batch_size)
    sampled = max(round(run.schedule.participation * here), 1)
    return (run.schedule.rounds * sampled + clients) * local_steps


def steps_per_second(model: str, workers: int) -> float:
    """Steps of a model on 3 × 32 × 32 images in batches of ten, measured now."""
    rng = np.random.default_rng(0)
    n = MEASURED_CLIENTS * MEASURED_SAMPLES
    x = rng.standard_normal((n, 3, 32, 32), dtype=np.float32)
    samples = Samples(x, rng.integers(10, size=n))
    rows = np.split(np.arange(n), MEASURED_CLIENTS)
    pool = Pool(samples, samples, x, tuple(ClientIndices(part, part) for part in rows))
    fitted = as_model(lambda: NETS[model]((3, 32, 32), 10), 0)
    learning = LocalTraining(epochs=1)
    setup = Setup(algorithms.build("fedavg"), fitted, pool, learning, 0, engine="auto")
    with LocalBackend(workers).connect(setup) as backend:
        downloads = {c: {"w": fitted.initial} for c in range(MEASURED_CLIENTS)}
        backend.train(0, downloads, frozenset())  # whatever is built on first use
        started = time.perf_counter()
        backend.train(1, downloads, frozenset())
        spent = time.perf_counter() - started
    return MEASURED_CLIENTS * count_steps(MEASURED_SAMPLES, 1, learning.batch_size) / spent
