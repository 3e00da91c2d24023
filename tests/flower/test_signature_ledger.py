"""Private signatures at a site: the same request gets the same signature, and no more than the budget is spent."""

import hashlib
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from pacfl.algorithms import build
from pacfl.errors import BudgetError, ConfigError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.federation.private import Promise
from pacfl.flower import wire
from pacfl.flower.client_handlers import LEDGER, handle
from pacfl.flower.message_types import SIGNATURE
from pacfl.flower.signature_ledger import DEFAULT_MOST_DELTA, Budget, SignatureLedger
from tests.flower.fake_grid import client_loader
from tests.small_federation import lively, same

PRIVATE = {"name": "pacfl", "signature_epsilon": 2.0}
DELTA = build(**PRIVATE).signature_delta  # type: ignore[attr-defined]


def requested(
    algorithm: Algorithm, memory: Path, t: int = 0, federation: str = "f", client: int = 2, **config: Any
) -> Message:
    """The profile that a client of the small federation releases."""
    content = wire.pack({}, {"round": t, "client": client, "federation": federation})
    context = Context(1, 1, {key.replace("_", "-"): value for key, value in config.items()}, RecordDict(), {})
    return wire.unpack(handle(SIGNATURE, content, context, client_loader(algorithm, memory)), 10**6)


def spent(memory: Path) -> Budget:
    return SignatureLedger(memory / LEDGER).spent()


def test_the_same_request_gets_the_same_signature(tmp_path: Path) -> None:
    """In a later round, after a restart, or in another federation."""
    first = requested(build(**PRIVATE), tmp_path)
    assert same(requested(build(**PRIVATE), tmp_path, t=5, federation="g"), first)
    assert spent(tmp_path) == Budget(2.0, DELTA)


def test_without_the_ledger_the_noise_is_another(tmp_path: Path) -> None:
    """Or the test above would pass for any ledger."""
    first = requested(build(**PRIVATE), tmp_path / "a")
    assert not np.array_equal(requested(build(**PRIVATE), tmp_path / "b")["basis"], first["basis"])


@pytest.mark.parametrize(
    "other", [{"rank": 2}, {"signature_epsilon": 3.0}, {"signature_delta": 1e-6}, {"measure": "sum"}]
)
def test_another_request_adds_its_epsilon_and_its_delta(tmp_path: Path, other: dict[str, object]) -> None:
    requested(build(**PRIVATE), tmp_path)
    second: Any = build(**{**PRIVATE, **other})
    requested(second, tmp_path)
    assert spent(tmp_path) == Budget(2.0 + second.signature_epsilon, DELTA + second.signature_delta)


def test_other_data_cost_again(tmp_path: Path) -> None:
    first, second = (requested(build(**PRIVATE), tmp_path, client=c) for c in (2, 5))
    assert not np.array_equal(first["basis"], second["basis"])
    assert spent(tmp_path).epsilon == 4.0


def test_a_site_spends_no_more_epsilon_than_its_budget(tmp_path: Path) -> None:
    first = requested(build(**PRIVATE), tmp_path, most_epsilon=3.0)
    with pytest.raises(BudgetError, match="is epsilon 3: 2 is spent and the request costs 2"):
        requested(build(**{**PRIVATE, "rank": 2}), tmp_path, most_epsilon=3.0)
    assert same(requested(build(**PRIVATE), tmp_path, most_epsilon=3.0), first)


def test_a_site_spends_no_more_delta_than_its_budget(tmp_path: Path) -> None:
    limits = {"most_epsilon": 100.0, "most_delta": 1.5e-5}
    first = requested(build(**PRIVATE), tmp_path, **limits)
    with pytest.raises(BudgetError, match=r"is delta 1\.5e-05: 1e-05 is spent and the request costs 1e-05"):
        requested(build(**{**PRIVATE, "rank": 2}), tmp_path, **limits)
    assert same(requested(build(**PRIVATE), tmp_path, **limits), first)
    assert spent(tmp_path) == Budget(2.0, DELTA)


def test_delta_is_limited_wherever_epsilon_is(tmp_path: Path) -> None:
    """Nine in ten of all samples could be published under a delta of 0.9, at any epsilon."""
    careless = build(**PRIVATE, signature_delta=2 * DEFAULT_MOST_DELTA)
    with pytest.raises(BudgetError, match="most-delta"):
        requested(careless, tmp_path, most_epsilon=100.0)
    requested(careless, tmp_path, most_epsilon=100.0, most_delta=1.0)


def test_a_budget_is_spent_to_its_end(tmp_path: Path) -> None:
    """0.1 + 0.1 + 0.1 is above 0.3 in floating point."""
    data, ledger = np.zeros(3), SignatureLedger(tmp_path / LEDGER)
    for rank in range(3):
        ledger.release([data], Promise(0.1, 1e-5, (rank,)), lambda: {"basis": data}, Budget(0.3, 3e-5))
    with pytest.raises(BudgetError):
        ledger.release([data], Promise(1e-6, 0.0, ()), lambda: {"basis": data}, Budget(0.3, 3e-5))


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "much", True])
def test_a_budget_that_is_no_number_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(ConfigError, match=r"most-epsilon in site\.config must be a number"):
        requested(build(**PRIVATE), tmp_path, most_epsilon=value)


@pytest.mark.parametrize("public", [{"name": "pacfl"}, {**PRIVATE, "signature_noise": "seeded"}])
@pytest.mark.parametrize("limit", ["most_epsilon", "most_delta"])
def test_a_site_with_a_budget_releases_private_signatures_only(
    tmp_path: Path, public: dict[str, object], limit: str
) -> None:
    """Noise that can be subtracted by whoever knows the seed is none."""
    with pytest.raises(BudgetError, match="releases private signatures only"):
        requested(build(**public), tmp_path, **{limit: 3.0})


def test_an_algorithm_without_signatures_spends_nothing(tmp_path: Path) -> None:
    assert requested(lively("fedavg"), tmp_path, most_epsilon=0.0) == {}


def test_the_ledger_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    requested(build(**PRIVATE), tmp_path)
    assert (tmp_path / LEDGER).stat().st_mode & 0o077 == 0


def test_only_secret_noise_is_a_promise() -> None:
    assert build(**PRIVATE).promise() is not None
    for algorithm in (build("pacfl"), build("fedavg"), build(**PRIVATE, signature_noise="seeded")):
        assert algorithm.promise() is None


def test_a_signature_does_not_reveal_the_number_of_samples(tmp_path: Path) -> None:
    content = wire.pack({}, {"round": 0, "client": 2, "federation": "f"})
    reply = handle(SIGNATURE, content, Context(1, 1, {}, RecordDict(), {}), client_loader(build(**PRIVATE), tmp_path))
    assert wire.about(reply) == {"round": 0}


# Requests that come at once: each is handled in a process of its own

FORK = multiprocessing.get_context("fork")  # as the warm worker does
N_REQUESTS = 5


def _request(folder: Path, i: int, promise: Promise, start: Any, replies: Any) -> None:
    def make() -> Message:
        time.sleep(0.05 * (i + 1))  # without a lock each would have written and read its own before the next
        return {"basis": np.random.default_rng().random(3)}

    start.wait()
    try:
        basis = SignatureLedger(folder).release([np.zeros(4)], promise, make, Budget(3.0, 1.0))["basis"]
        replies.put(tuple(basis.tolist()))
    except BudgetError as refusal:
        replies.put(str(refusal))


def concurrently(folder: Path, promises: list[Promise]) -> list[tuple[float, ...] | str]:
    """Replies to requests that are made at the same moment by as many processes."""
    start, replies = FORK.Barrier(len(promises)), FORK.Queue()
    processes = [FORK.Process(target=_request, args=(folder, i, p, start, replies)) for i, p in enumerate(promises)]
    for process in processes:
        process.start()
    received = [replies.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    return received


def test_concurrent_requests_get_one_signature(tmp_path: Path) -> None:
    received = concurrently(tmp_path / "ledger", [Promise(2.0, 1e-5, (3,))] * N_REQUESTS)
    assert len(set(received)) == 1
    assert SignatureLedger(tmp_path / "ledger").spent() == Budget(2.0, 1e-5)


def test_concurrent_requests_do_not_overdraw_the_budget(tmp_path: Path) -> None:
    """Each of them alone would be within it."""
    received = concurrently(tmp_path / "ledger", [Promise(2.0, 1e-5, (rank,)) for rank in range(N_REQUESTS)])
    assert sum(isinstance(reply, tuple) for reply in received) == 1
    assert sum("2 is spent" in reply for reply in received if isinstance(reply, str)) == N_REQUESTS - 1


def test_labels_belong_to_the_data_where_they_are_signed(tmp_path: Path) -> None:
    """Samples with other labels have another signature of classes, and it costs again."""
    ledger, x = SignatureLedger(tmp_path), np.zeros((4, 2))
    promise = Promise(1.0, 1e-5, (3, "smallest", "classes"), of_labels=True)
    for labels in (np.zeros(4), np.ones(4), np.zeros(4)):
        ledger.release([x, labels], promise, lambda: {"basis": x}, None)
    assert ledger.spent().epsilon == 2.0


def test_signatures_released_before_classes_were_signed_are_found_again(tmp_path: Path) -> None:
    """Their names are digests of the promise, the kind of the samples and their bytes."""
    x, promise = np.zeros((4, 2)), Promise(1.0, 1e-5, (3, "smallest"))
    words = "(Promise(epsilon=1.0, delta=1e-05, settings=(3, 'smallest')), 'float64', (4, 2))"
    name = hashlib.sha256(words.encode() + x.tobytes()).hexdigest()
    SignatureLedger(tmp_path).release([x], promise, lambda: {"basis": x}, None)
    assert (tmp_path / f"{name}.npz").exists()
