import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "pacfl"
FILES = sorted(PACKAGE.rglob("*.py"))

# Lowest first. Other modules beside the packages are above them all.
LAYERS = (
    "errors",
    "files",  # how a file is written: the standard library and nothing else
    "folders",  # which kind of folder one is
    "npz",  # headers of arrays, checked for whoever reads them
    "settings",
    "plugins",
    "subspace",
    "privacy",
    "secure",  # cryptography of sums: bytes and arrays
    "features",
    "signatures",
    "data",
    "learning",
    "federation",
    "algorithms",
    "experiment",
    "exporting",
    "reproduce",
    "benchmark",
    "report",
    "flower",
    "cli",
)
ABOVE_ALL = len(LAYERS)
OPTIONAL_LIBRARIES_ALLOWED_IN = ("pacfl.subspace.alternatives", "pacfl.privacy.accounting")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Full names of what is imported anywhere in the tree; relative imports are resolved from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> set[str]:
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return set(imports(ast.parse(path.read_text(encoding="utf-8")), package))


def layer(name: str) -> int:
    """Place of a module of this library, or of something in it, in the order."""
    part = name.split(".")[1]
    return LAYERS.index(part) if part in LAYERS else ABOVE_ALL


def upward(name: str, imported: set[str]) -> list[str]:
    """What a module imports from above itself. The package itself holds the version only, which everybody may have."""
    own = [other for other in imported if other.startswith("pacfl.") and not other.startswith("pacfl.__")]
    return sorted(other for other in own if layer(other) > layer(f"{name}."))


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_downward_only(path: Path) -> None:
    if path != PACKAGE / "__init__.py":
        assert upward(module_name(path), imports_of(path)) == []


def test_the_package_itself_imports_nothing_but_mathematics() -> None:
    """Whoever imports a part of it imports this first."""
    assert all(
        layer(name) <= LAYERS.index("subspace")
        for name in imports_of(PACKAGE / "__init__.py")
        if name.startswith("pacfl.")
    )


def test_every_package_has_a_place_in_the_order() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(LAYERS)


MATHEMATICS = ("subspace", "privacy")


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name in MATHEMATICS], ids=module_name)
def test_mathematics_needs_numpy_and_scipy_only(path: Path) -> None:
    allowed = {"numpy", "scipy", *sys.stdlib_module_names}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if module_name(path) in OPTIONAL_LIBRARIES_ALLOWED_IN:
        tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef)]
    else:
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"import_module", "__import__"}, "a way round this test"
    found = set(imports(tree, f"pacfl.{path.parent.name}"))
    assert found
    own = tuple(f"pacfl.{part}." for part in MATHEMATICS)
    assert {name for name in found if name.split(".")[0] not in allowed and not name.startswith(own)} == set()


def test_mathematics_can_be_imported_where_there_is_nothing_else() -> None:
    program = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "torch sklearn matplotlib networkx pyarrow PIL typer rich flwr dp_accounting".split():
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Nothing())
import pacfl.subspace, pacfl.subspace.alternatives, pacfl.privacy, pacfl.privacy.accounting, pacfl.privacy.updates
print(pacfl.subspace.agglomerate([[0, 1], [1, 0]], 2.0).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[0, 0]\n", done.stderr


# The test itself is tested


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from pacfl.cli import main", {"pacfl.cli.main"}),
        ("import pacfl.report.page as p", {"pacfl.report.page"}),
        ("def f():\n    from ..learning import model", {"pacfl.learning.model"}),
        ("from . import angles", {"pacfl.data.angles"}),
        ("from pacfl import report", {"pacfl.report"}),
    ],
)
def test_imports_are_seen_in_every_form(source: str, seen: set[str]) -> None:
    assert set(imports(ast.parse(source), "pacfl.data")) == seen


def test_an_upward_import_is_noticed() -> None:
    below, same, above = "pacfl.subspace.angles", "pacfl.data.dataset", "pacfl.learning.client_context"
    assert upward("pacfl.data.sets", {below, same, above, "pacfl.cli", "numpy", "pacfl.__version__"}) == [
        "pacfl.cli",
        "pacfl.learning.client_context",
    ]
    assert upward("pacfl.cli", {below, same, above, "pacfl.signatures.figures"}) == []
