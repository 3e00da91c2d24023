"""Pictures: only where matplotlib is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from pacfl.errors import MissingLibraryError
from pacfl.files import replaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
else:

    def Figure(**settings: Any) -> Any:  # noqa: N802 - it makes one
        """A figure of matplotlib."""
        try:
            from matplotlib.figure import Figure as Drawn
        except ImportError:
            raise MissingLibraryError("pictures need matplotlib: pip install 'pacfl[figures]'") from None
        return Drawn(**settings)


def save(figure: Any, path: Path) -> Path:
    """Write a figure as SVG, the same bytes for the same figure."""
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "pacfl"}), replaced(path) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
    return path


def heat_map(matrix: ArrayLike, names: Sequence[str], label: str, path: Path) -> Path:
    """A matrix as colours; without names, positions are not labelled."""
    figure = Figure(figsize=(5.4, 4.6), layout="constrained")
    axes: Any = figure.subplots()
    image = axes.imshow(matrix, cmap="viridis", interpolation="nearest")
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    figure.colorbar(image, label=label)
    return save(figure, path)
