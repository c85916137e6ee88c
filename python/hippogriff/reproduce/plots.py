"""Draws figures, as SVG and PNG, with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from hippogriff.reproduce.figures import Figure, Panel, Value

_COLOURS = ("#3b4cc0", "#e07b39", "#2e9e5b", "#8c6bb1", "#c2b000", "#5aa7c7", "#777777")
_GREY = "#808080"
_WIDTH_INCHES = 9.0
_HEIGHT_INCHES = 3.4


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "hippogriff"  # The same results give the same file.
    for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"):
        mpl.rcParams[name] = _GREY
    import matplotlib.pyplot as plt

    return plt


def _spread(values: list[Value | None]) -> list[list[float]]:
    """Return how far the least and the most are below and above the medians."""
    below = [0.0 if value is None else value.median - value.least for value in values]
    above = [0.0 if value is None else value.most - value.median for value in values]
    return [below, above]


def _heights(values: list[Value | None]) -> list[float]:
    return [0.0 if value is None else value.median for value in values]


def _bars(axes: Any, panel: Panel) -> None:
    count = len(panel.series)
    bottoms = [0.0] * len(panel.places)
    for index, (name, values) in enumerate(panel.series.items()):
        heights = _heights(values)
        colour = _COLOURS[index % len(_COLOURS)]
        if panel.stacked:
            axes.bar(range(len(heights)), heights, 0.7, bottoms, label=name, color=colour)
            bottoms = [sum(pair) for pair in zip(bottoms, heights, strict=True)]
            continue
        width = 0.8 / count
        places = [place + (index - (count - 1) / 2) * width for place in range(len(heights))]
        axes.bar(
            places,
            heights,
            width,
            label=name,
            color=colour,
            yerr=_spread(values),
            error_kw={"ecolor": _GREY, "elinewidth": 0.8},
        )
    axes.set_xticks(range(len(panel.places)), panel.places, rotation=30, ha="right", fontsize=8)


def _lines(axes: Any, panel: Panel) -> None:
    from matplotlib import ticker

    for index, (name, values) in enumerate(panel.series.items()):
        points = [
            (x, value.median)
            for x, value in zip(panel.numbers, values, strict=True)
            if value is not None
        ]
        if points:
            colour = _COLOURS[index % len(_COLOURS)]
            axes.plot(*zip(*points, strict=True), marker="o", ms=3, label=name, color=colour)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(panel.numbers, panel.places, rotation=30, ha="right", fontsize=8)
    axes.minorticks_off()
    locator = ticker.LogLocator(base=10, subs=(1, 2, 5))
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def draw(figure: Figure, folder: Path) -> list[Path]:
    """Draw a figure's panels, one below the other; return the files."""
    plt = _pyplot()
    panels = [panel for panel in figure.panels if not panel.empty]
    if not panels:
        return []
    drawn, rows = plt.subplots(
        len(panels),
        1,
        figsize=(_WIDTH_INCHES, _HEIGHT_INCHES * len(panels)),
        layout="constrained",
        squeeze=False,
    )
    for axes, panel in zip(rows[:, 0], panels, strict=True):
        _lines(axes, panel) if panel.numbers else _bars(axes, panel)
        for index, said in enumerate(panel.said):
            style = ("--", ":", "-.", (0, (1, 3)))[index % 4]
            axes.axhline(said.value, color="#c0392b", linestyle=style, lw=1, label=said.label)
        axes.set_title(panel.title, fontsize=10)
        axes.set_ylabel(panel.unit, fontsize=8)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.name}.{ending}" for ending in ("svg", "png")]
    drawn.savefig(paths[0], metadata={"Date": None}, transparent=True)
    drawn.savefig(paths[1], dpi=110, facecolor="white")
    plt.close(drawn)
    return paths
