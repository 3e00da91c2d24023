"""Pictures of a federation: its dendrogram and its proximity matrix."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np
from scipy.cluster.hierarchy import dendrogram as draw_dendrogram
from scipy.cluster.hierarchy import leaves_list

from pacfl.errors import library
from pacfl.files import replaced
from pacfl.subspace.compared import Compared, compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pacfl.signatures.federation import Federation

Picture = Literal["svg", "png"]
PICTURES: Final[tuple[Picture, ...]] = get_args(Picture)
Plot = Literal["dendrogram", "heatmap"]
PLOTS: Final[tuple[Plot, ...]] = get_args(Plot)
FILES: Final = tuple(f"{name}.{kind}" for name in PLOTS for kind in PICTURES)

IN_NONE: Final = "in no cluster"  # beside the name of a client that cannot be judged
MOST_NAMES: Final = 120  # more would not be legible
MOST_LEAVES: Final = 300  # more would not be visible


def check_library() -> None:
    """Refuse to draw where matplotlib is missing."""
    library("matplotlib.figure", "drawing pictures", "figures")


def draw(federation: "Federation", folder: Path, kind: Picture) -> list[Path]:
    """Write dendrogram and heat map into the folder; their paths."""
    check_library()
    from matplotlib.figure import Figure

    if len(federation.names) < 2:
        return []
    paths = []
    for name, (size, draw_on) in plots(federation).items():
        figure = Figure(figsize=size, layout="constrained")
        draw_on(federation, figure.subplots())
        paths.append(_save(figure, folder / f"{name}.{kind}", kind))
    return paths


def plots(federation: "Federation") -> dict[Plot, tuple[tuple[float, float], Callable[["Federation", "Axes"], None]]]:
    """For each picture: its size in inches, and the function that draws it."""
    n_leaves = min(len(federation.names), MOST_LEAVES)
    width = max(5.0, min(16.0, 0.16 * n_leaves + 2))
    return {"dendrogram": ((width, 4.5), _draw_dendrogram), "heatmap": ((6.4, 5.4), _draw_heatmap)}


def _draw_dendrogram(federation: "Federation", axes: "Axes") -> None:
    clustering, shown = federation.clustering, _compared(federation)
    labels = _names(federation) if len(federation.names) <= MOST_NAMES else None
    draw_dendrogram(
        shown.merges,
        ax=axes,
        labels=labels,
        no_labels=labels is None,
        color_threshold=shown.threshold,
        above_threshold_color="0.6",
        truncate_mode="lastp" if len(federation.names) > MOST_LEAVES else None,
        p=MOST_LEAVES,
        leaf_rotation=90,
    )
    axes.axhline(shown.threshold, color="black", linestyle="--", linewidth=0.8)
    axes.set_ylabel(shown.scale)
    n_clusters = len(clustering.numbers)
    left = int((clustering.labels < 0).sum())
    none = f", {left} client{'s'[: left != 1]} in none" if left else ""
    unit = "times the noise" if shown.in_noise else "degrees"
    axes.set_title(f"{n_clusters} cluster{'s'[: n_clusters != 1]} at {shown.threshold:.3g} {unit}{none}")


def _compared(federation: "Federation") -> Compared:
    return compared(federation.clustering, [one.table for one in federation.descriptions])


def _names(federation: "Federation") -> list[str]:
    """With a mark on those that cannot be judged."""
    labels = federation.clustering.labels
    plain = [name.replace("$", r"\$") for name in federation.names]  # no formula
    return [f"{name} ({IN_NONE})" if k < 0 else name for name, k in zip(plain, labels, strict=True)]


def _draw_heatmap(federation: "Federation", axes: "Axes") -> None:
    clustering, shown = federation.clustering, _compared(federation)
    order = np.lexsort([np.argsort(leaves_list(shown.merges)), clustering.labels])
    image = axes.imshow(shown.distances[np.ix_(order, order)], cmap="viridis", interpolation="nearest")
    for boundary in np.flatnonzero(np.diff(clustering.labels[order])) + 0.5:
        axes.axhline(boundary, color="white", linewidth=0.8)
        axes.axvline(boundary, color="white", linewidth=0.8)
    if len(order) <= MOST_NAMES // 3:
        names = _names(federation)
        axes.set_xticks(range(len(order)), [names[i] for i in order], rotation=90, fontsize=7)
        axes.set_yticks(range(len(order)), [names[i] for i in order], fontsize=7)
    axes.figure.colorbar(image, ax=axes, label=shown.what + ("" if shown.in_noise else " (degrees)"))
    axes.set_title("Clients by cluster")


def _save(figure: "Figure", path: Path, kind: Picture) -> Path:
    with replaced(path) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # the font lacks a letter of a name: a box is drawn
        figure.savefig(file, format=kind, dpi=120)
    return path
