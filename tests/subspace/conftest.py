from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from pacfl.subspace import null

try:
    from threadpoolctl import threadpool_limits
except ImportError:
    threadpool_limits = nullcontext


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads make small matrices slower, and on a busy machine ten times slower."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """For laws that hold whatever the limits are, or that need many choices."""
    monkeypatch.setattr(null, "SIMULATIONS", 50)
