"""Curves as SVG files that can be read on light and on dark pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

INK = "#808890"
COLOURS = ("#1f8ceb", "#e0702c", "#2fa36b", "#b860d0")
Points = Sequence[tuple[float, float]]


def number(value: float) -> str:
    """As it stands at an axis: 10, 1k, 100k, 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"


def in_between(value: float) -> str:
    """The same for marks between powers of ten: 20 and 50, and no others."""
    return number(value) if f"{value:e}"[0] in "25" else ""


def draw(path: Path, title: str, axes: tuple[str, str], curves: Mapping[str, Points]) -> None:
    """Draw curves on logarithmic axes; ``axes`` are the names of x and y. A point at x = 0 stands at the left edge."""
    everywhere = sorted({x for points in curves.values() for x, _ in points})
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": path.name, "font.family": "sans-serif", "font.size": 10}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        plot = figure.add_subplot()
        for (name, points), colour in zip(curves.items(), COLOURS, strict=False):
            xs, ys = zip(*points, strict=True)
            plot.plot(xs, ys, marker="o", markersize=4, linewidth=1.8, color=colour, label=name)
        smallest = min(x for x in everywhere if x > 0)
        plot.set_xscale("symlog", linthresh=smallest, linscale=0.5)
        plot.set_yscale("log")
        plot.set_xticks(everywhere, [number(x) for x in everywhere])
        plot.xaxis.set_minor_locator(NullLocator())
        plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        low, high = plot.get_ylim()
        low, high = min(low, 1.0), max(high, 10 * low)
        plot.set_ylim(low, high)
        is_wide = high > 200 * low
        plot.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: "" if is_wide else in_between(value)))
        plot.set_title(title, color=INK, fontsize=11, loc="left")
        plot.set_xlabel(axes[0], color=INK)
        plot.set_ylabel(axes[1], color=INK)
        plot.tick_params(which="both", colors=INK)
        plot.grid(which="major", color=INK, alpha=0.25, linewidth=0.6)
        for spine in plot.spines.values():
            spine.set_color(INK)
            spine.set_alpha(0.5)
        plot.legend(frameon=False, labelcolor=INK)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
