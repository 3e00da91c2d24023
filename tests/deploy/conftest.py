import pytest

import pacfl.flower_app  # noqa: F401 - says before anything of Flower is imported that nothing is reported

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'pacfl[flower]'")
