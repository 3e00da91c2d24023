import pytest

pytest.importorskip("torch", reason="runs are read by what plays them, which needs torch")
pytest.importorskip("vl_convert", reason="pages need the extra: pip install 'pacfl[report]'")
pytest.importorskip("selenium", reason="pages are tried in a browser by selenium")
