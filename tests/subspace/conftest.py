from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from hypothesis import settings

from pacfl.subspace import null

try:
    from threadpoolctl import threadpool_limits
except ImportError:
    threadpool_limits = nullcontext

# The same examples in every run, however slow the machine: a red test is then news about the code
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads make small matrices slower, and on a busy machine ten times slower."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """For laws that hold whatever the limits are, or that need many choices."""
    monkeypatch.setattr(null, "SIMULATIONS", 50)
