from collections.abc import Iterator

import pytest

import pacfl.flower  # noqa: F401 - turns telemetry off before Flower is imported

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'pacfl[flower]'")


@pytest.fixture
def identity() -> Iterator[None]:
    """Flower's messages can be built only in a run: set one."""
    from flwr.supercore.task_identity import TaskIdentity

    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    yield
    TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = before
