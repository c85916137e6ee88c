"""Draws figures, as SVG and PNG, with matplotlib."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from hippogriff.reproduce.figures import AVERAGE

if TYPE_CHECKING:
    from pathlib import Path

    from hippogriff.reproduce.figures import Figure, Panel, Value

# What is in several figures has one colour; the lighter one is of its second series there.
_KNOWN = {
    "hippogriff": ("#2f55c8", "#9db2f0"),
    "everything": ("#2f55c8", "#9db2f0"),
    "pipelined by hand": ("#e07b39", "#f4c19c"),
    "here": ("#2f55c8", "#9db2f0"),
    "conventional": ("#8a8a8a", "#c4c4c4"),
    "unmodified": ("#8a8a8a", "#c4c4c4"),
    "data movement": ("#e07b39", "#f4c19c"),
    "kernels": ("#8a8a8a", "#c4c4c4"),
}
_OTHERS = ("#2e9e5b", "#8c6bb1", "#b59f00", "#5aa7c7", "#a0522d", "#d687b5")
_PAPERS = "#c0392b"
_TEXT = "#333333"
_WIDTH_INCHES = 9.5
_HEIGHT_INCHES = 3.5
_PLACES_LEAST = 4  # A single bar is not as wide as a page.
_NUMBERS_MOST = 4
_LEGEND_CHARACTERS = 30
_LABEL_CHARACTERS = 34
# An SVG follows the reader's light or dark setting: its text has the page's colour.
_STYLE = (
    "<style>svg { color: #333333 } @media (prefers-color-scheme: dark) "
    "{ svg { color: #d0d0d0 } }</style>"
)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "hippogriff"  # The same results give the same file.
    for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"):
        mpl.rcParams[name] = _TEXT
    mpl.rcParams["ytick.labelsize"] = mpl.rcParams["xtick.labelsize"] = 9
    import matplotlib.pyplot as plt

    return plt


def _shown(panel: Panel) -> dict[str, list[Value | None]]:
    """Return the series that have values."""
    return {name: values for name, values in panel.series.items() if any(values)}


# No two alike: of the papers there are up to six lines in a panel.
_LINE_STYLES = ("--", ":", "-.", "-", (0, (8, 2, 1, 2, 1, 2)), (0, (1, 5)))


def _colours(panel: Panel) -> dict[str, str]:
    colours: dict[str, str] = {}
    for name in _shown(panel):
        known = _KNOWN.get(name.partition(", ")[0].partition(":")[0])
        if name == panel.theirs:
            colours[name] = _PAPERS
        else:
            wanted = (*(known or ()), *_OTHERS)
            free = [colour for colour in wanted if colour not in colours.values()]
            colours[name] = (free or list(_OTHERS))[0]
    return colours


def _wrapped(words: str, characters: int) -> str:
    return "\n".join(textwrap.wrap(words, characters))


def _spread(values: list[Value | None]) -> list[list[float]]:
    """Return how far the least and the most are below and above the medians."""
    below = [0.0 if value is None else value.median - value.least for value in values]
    above = [0.0 if value is None else value.most - value.median for value in values]
    return [below, above]


def _heights(values: list[Value | None]) -> list[float]:
    return [0.0 if value is None else value.median for value in values]


def _number(axes: Any, position: float, height: float, *, upright: bool) -> None:
    """Write a bar's value above it."""
    axes.annotate(
        f"{height:.2f}",
        (position, height),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7,
        rotation=90 if upright else 0,
        zorder=5,
    )


def _bars(axes: Any, panel: Panel) -> None:
    series, colours = _shown(panel), _colours(panel)
    # Places of which there is nothing are not shown.
    kept = [i for i in range(len(panel.places)) if any(values[i] for values in series.values())]
    places = [panel.places[i] for i in kept]
    bottoms = [0.0] * len(kept)
    width = 0.8 / len(series)
    for index, (name, all_values) in enumerate(series.items()):
        values = [all_values[i] for i in kept]
        heights = _heights(values)
        label = _wrapped(name, _LEGEND_CHARACTERS)
        if panel.stacked:
            axes.bar(range(len(kept)), heights, 0.7, bottoms, label=label, color=colours[name])
            bottoms = [sum(pair) for pair in zip(bottoms, heights, strict=True)]
            continue
        positions = [i + (index - (len(series) - 1) / 2) * width for i in range(len(kept))]
        axes.bar(
            positions,
            heights,
            width,
            label=label,
            color=colours[name],
            yerr=_spread(values),
            error_kw={"ecolor": _TEXT, "elinewidth": 0.8},
        )
        # Numbers of many narrow bars would overlap: then only ours has one.
        room = len(series) <= _NUMBERS_MOST or name in ("hippogriff", "everything")
        if room and AVERAGE in places and values[places.index(AVERAGE)] is not None:
            place = places.index(AVERAGE)
            _number(axes, positions[place], heights[place], upright=len(series) > 2)
    axes.set_xticks(range(len(places)), places, rotation=25, ha="right", rotation_mode="anchor")
    beside = max(_PLACES_LEAST - len(places), 0) / 2
    axes.set_xlim(-0.6 - beside, len(places) - 0.4 + beside)
    axes.margins(y=0.1)


def _lines(axes: Any, panel: Panel) -> None:
    from matplotlib import ticker

    colours = _colours(panel)
    for name, values in _shown(panel).items():
        points = [
            (x, value) for x, value in zip(panel.numbers, values, strict=True) if value is not None
        ]
        axes.errorbar(
            [x for x, _ in points],
            [value.median for _, value in points],
            yerr=_spread([value for _, value in points]),
            marker="o",
            ms=4,
            elinewidth=0.8,
            capsize=2,
            label=_wrapped(name, _LEGEND_CHARACTERS),
            color=colours[name],
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(panel.numbers, panel.places)
    axes.minorticks_off()
    locator = ticker.LogLocator(base=10, subs=(1, 2, 5))
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def _panel(axes: Any, panel: Panel) -> None:
    _lines(axes, panel) if panel.numbers else _bars(axes, panel)
    if panel.base is not None:
        axes.axhline(panel.base, color=_TEXT, lw=0.8, alpha=0.6, zorder=0.9)
    for index, said in enumerate(panel.said):
        style = _LINE_STYLES[index % len(_LINE_STYLES)]
        label = _wrapped(f"papers: {said.value:g}, {said.label}", _LEGEND_CHARACTERS)
        axes.axhline(said.value, color=_PAPERS, linestyle=style, lw=1.2, label=label)
    axes.set_title(panel.title, fontsize=10)
    # "…, higher is better" has a line of its own.
    unit = [_wrapped(words, _LABEL_CHARACTERS) for words in panel.unit.split(", ")]
    axes.set_ylabel("\n".join(unit), fontsize=9)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    legend = list(zip(*axes.get_legend_handles_labels(), strict=True))
    legend.sort(key=lambda each: each[1].startswith("papers:"))  # ours first
    handles, labels = zip(*legend, strict=True)
    axes.legend(
        handles, labels, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False
    )


def draw(figure: Figure, folder: Path) -> list[Path]:
    """Draw a figure's panels, one below the other; return the files."""
    plt = _pyplot()
    panels = [panel for panel in figure.panels if not panel.empty]
    if not panels:
        return []
    drawn, rows = plt.subplots(
        len(panels),
        1,
        figsize=(_WIDTH_INCHES, _HEIGHT_INCHES * len(panels) + 0.3),
        layout="constrained",
        squeeze=False,
    )
    drawn.suptitle(f"{figure.experiment}: {figure.title}", fontsize=12)
    for axes, panel in zip(rows[:, 0], panels, strict=True):
        _panel(axes, panel)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.name}.{ending}" for ending in ("svg", "png")]
    drawn.savefig(paths[0], metadata={"Date": None}, transparent=True)
    drawn.savefig(paths[1], dpi=120, facecolor="white")
    plt.close(drawn)
    _follow_the_page(paths[0])
    return paths


def _follow_the_page(svg: Path) -> None:
    text = svg.read_text().replace(_TEXT, "currentColor")
    head, defs, rest = text.partition("<defs>")
    svg.write_text(f"{head}{_STYLE}{defs}{rest}")
