"""Where a library of an extra is not installed, what needs it says which command installs it."""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from torch import nn

import pacfl
from pacfl import errors
from pacfl.cli.console import app
from pacfl.cli.tensorboard import curves
from pacfl.data import download, load_dataset
from pacfl.data.readers import celeba, usps
from pacfl.errors import lacking
from pacfl.exporting import formats
from pacfl.features.reading import Reading, read
from pacfl.privacy.accounting import epsilon_of_models
from pacfl.report.page import page, vega
from pacfl.signatures import figures
from pacfl.subspace import alternatives
from tests.without import run_without

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES: Final = {  # where they do not have the name of the distribution
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "umap-learn": "umap",
    "vl-convert-python": "vl_convert",
    "dp-accounting": "dp_accounting",
}
FOR_DEVELOPERS: Final = ("all", "test", "docs", "dev")
PAIRS: Final = np.zeros((3, 3))

# What needs a library, and says so when it is called
NEEDS: Final[dict[tuple[str, str], Callable[[Path], Any]]] = {
    ("images", "PIL"): lambda folder: read(folder, Reading()),
    ("figures", "matplotlib"): lambda _: figures.check_library(),
    ("methods", "sklearn"): lambda _: alternatives.density(PAIRS),
    ("methods", "networkx"): lambda _: alternatives.communities(PAIRS, scale=1.0),
    ("data", "h5py"): lambda folder: usps.read_h5("usps", [folder / "usps.h5"], 10),
    ("data", "PIL"): lambda folder: celeba._faces(folder, ["000001.jpg"], 32),
    ("data", "pooch"): lambda folder: download("mnist", folder),
    ("data", "sklearn"): lambda _: load_dataset("digits"),
    ("report", "jinja2"): lambda _: page(None),  # type: ignore[arg-type]
    ("report", "vl_convert"): lambda _: vega.__wrapped__(),
    ("pandas", "pandas"): lambda folder: pacfl.runs(folder).frame(),
    ("tensorboard", "tensorboardX"): lambda folder: curves(None, folder).__enter__(),  # type: ignore[arg-type]
    ("export", "safetensors"): lambda _: formats._written_safetensors(nn.Linear(2, 2), None),  # type: ignore[arg-type]
    ("onnx", "onnx"): lambda _: formats._written_onnx(nn.Linear(2, 2), None),  # type: ignore[arg-type]
    ("onnx", "onnxscript"): lambda _: formats._written_onnx(nn.Linear(2, 2), None),  # type: ignore[arg-type]
    ("onnx", "onnxruntime"): lambda _: formats._load_onnx(b""),
    ("privacy", "dp_accounting"): lambda _: epsilon_of_models(1.0, 2, 10, 5, 1e-5),
    ("demo", "sklearn"): lambda folder: app(["demo", str(folder / "new")], standalone_mode=False),
    ("demo", "matplotlib"): lambda _: figures.check_library(),
}
# Libraries that modules import at their top: commands are tried in a process of their own
COMMANDS: Final = {
    ("learning", "torch"): ("run", "file.toml"),
    ("learning", "threadpoolctl"): ("run", "file.toml"),
    ("flower", "flwr"): ("deploy", "init", "new", "--sites", "a,b"),
    ("flower", "cryptography"): ("deploy", "init", "new", "--sites", "a,b"),
    ("flower", "psutil"): ("deploy", "up", "new"),
}
# What is left out, with a word on it, where a library is not there
LEFT_OUT: Final = {("umap", "umap"), ("learning", "llvmlite")}
# What comes with an extra so that other libraries or another extra's parts of pacfl work at once
FOR_OTHERS: Final = {
    *(("data", "requests"), ("umap", "matplotlib")),
    *(("flower", module) for module in ("safetensors", "torch", "threadpoolctl", "sklearn")),
}


def modules(requirements: list[str]) -> Iterator[str]:
    """The modules of distributions such as `torch>=2.2` or `flwr[simulation]>=1.41`."""
    for requirement in requirements:
        (name,) = re.findall(r"^[\w-]+", requirement)
        yield MODULES.get(name, name)


OF_EXTRA = {
    extra: set(modules(requirements)) - set(modules(PROJECT["dependencies"]))
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra not in FOR_DEVELOPERS
}


def test_every_library_of_every_extra_is_tried_here() -> None:
    listed = {(extra, module) for extra, of_it in OF_EXTRA.items() for module in of_it}
    assert NEEDS.keys() | COMMANDS.keys() | LEFT_OUT | FOR_OTHERS == listed


@pytest.mark.parametrize(("extra", "module"), NEEDS)
def test_what_needs_a_library_names_the_command_that_installs_it(
    extra: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    also = {"demo": "(demo|figures)"}.get(extra, extra)  # pictures name the extra of pictures
    with pytest.raises(ImportError, match=rf"needs [\w-]+: pip install 'pacfl\[{also}\]'"):
        NEEDS[extra, module](tmp_path)


@pytest.mark.parametrize(("extra", "module"), COMMANDS)
def test_a_command_without_its_library_names_the_one_that_installs_it(
    extra: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_without(module, *COMMANDS[extra, module])
    assert done.returncode == 1
    assert re.fullmatch(rf"error: [\w ]+ needs [\w-]+: pip install 'pacfl\[{extra}\]'\n", done.stderr), done.stderr


def test_the_libraries_imported_at_the_top_of_modules_are_those_of_their_extras() -> None:
    assert errors._MODULES["learning"] == OF_EXTRA["learning"]
    assert errors._MODULES["flower"] == OF_EXTRA["flower"] | {"ray"}  # of flwr[simulation]


def test_a_module_of_no_extra_stays_the_error_that_it_is() -> None:
    for name in ("pacfl.typo", "antigravity_of_others"):
        error = ModuleNotFoundError(f"No module named {name!r}", name=name)
        assert lacking(error, "training", "learning") is error
