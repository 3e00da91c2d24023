import subprocess
import sys
from pathlib import Path

import pytest

from pacfl.errors import ModelError
from pacfl.learning.engines import check_engine
from pacfl.learning.settings import ENGINES

SOURCE = Path(__file__).parents[2] / "src"


def test_every_engine_name_is_accepted_and_no_other() -> None:
    for name in ENGINES:
        check_engine(name)
    with pytest.raises(ModelError, match="must be one of auto, native, eager"):
        check_engine("fast")


def test_settings_contexts_and_algorithms_are_imported_without_torch() -> None:
    """Reading results needs no torch."""
    program = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
from pacfl.learning.settings import ENGINES, LocalTraining
from pacfl.learning.client_context import ClientContext, LocalTraining as Same
from pacfl.learning.model import Model, Vector, as_model
from pacfl.algorithms import FedAvg
print(Same is LocalTraining, LocalTraining().batch_size)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True 10\n", done.stderr
