from collections.abc import Iterator

import pytest

import pacfl.flower  # noqa: F401 - says before anything of Flower is imported that nothing is reported

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'pacfl[flower]'")


@pytest.fixture
def identity() -> Iterator[None]:
    """Flower's messages can be built in a run only: as if this were one."""
    from flwr.supercore.task_identity import TaskIdentity

    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    yield
    TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = before
