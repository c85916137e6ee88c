"""What the plots of all pages have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_GREY = "#808080"  # Legible on light and on dark pages; the background is the page's own.


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up for SVG files that are the same for the same results."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "hippogriff"
    for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"):
        mpl.rcParams[name] = _GREY
    import matplotlib.pyplot as plt

    return plt


def save(plt: Any, figure: Any, path: Path) -> Path:
    """Write a figure and forget it."""
    figure.savefig(path, metadata={"Date": None}, transparent=True)
    plt.close(figure)
    return path
