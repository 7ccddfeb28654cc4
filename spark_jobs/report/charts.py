"""Inline SVG without a script. Pure: figures in, markup out; every text goes through escaping.

Widths are percentages and heights are pixels, so charts fit a phone without scaling their text. Colours are classes of the
style sheet (`page.css`). Nothing depends on colour alone: series also have patterns or shapes, and labels.
"""

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from spark_jobs.report.numbers import MISSING, clean, count, share

SERIES = 7
"""Number of series that can be told apart in a stack. The last one is for all others."""
_PLOT_PX = 220


def svg(name: str, title: str, description: str, height_px: int, body: Markup) -> Markup:
    """One drawing, with a title and a description for screen readers."""
    form = '<svg class="{}" role="img" width="100%" height="{}"><title>{}</title><desc>{}</desc>{}</svg>'
    return Markup(form).format(name, height_px, title, description, body)


def _rect(x: float, y: float, width: float, height: float, classes: str, title: str = "", unit: str = "") -> Markup:
    """``x`` and ``width`` are in percent, ``y`` and ``height`` in pixels or in ``unit``."""
    tip = Markup("<title>{}</title>").format(title) if title else Markup("")
    form = '<rect class="{}" x="{:.3f}%" y="{:.2f}{}" width="{:.3f}%" height="{:.2f}{}">{}</rect>'
    return Markup(form).format(classes, x, y, unit, width, height, unit, tip)


def _line(x1: float, y1: float, x2: float, y2: float, classes: str) -> Markup:
    form = '<line class="{}" x1="{:.3f}%" y1="{:.2f}" x2="{:.3f}%" y2="{:.2f}"/>'
    return Markup(form).format(classes, x1, y1, x2, y2)


def _text(x: str, y: float, anchor: str, text: str) -> Markup:
    return Markup('<text x="{}" y="{:.2f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def joined(parts: Sequence[Markup]) -> Markup:
    return Markup("").join(parts)


def ticks(largest: float, wanted: int = 4) -> list[float]:
    """Round steps from 0 to at least ``largest``."""
    if largest <= 0:
        return [0, 1]
    raw = largest / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    step = max(step, 1.0)
    return [step * place for place in range(math.ceil(largest / step - 1e-9) + 1)]


def short(value: float) -> str:
    """The label of a tick: ``20k`` for 20 000."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def hourly_stack(volume: dict[str, Any]) -> Markup:
    """Messages per hour, stacked, with the busiest route at the bottom."""
    series = [*((row, lane(row)) for row in volume["routes"])]
    if volume["others"]:
        series.append((volume["others"], f"{volume['others']['routes']} more routes"))
    scale = ticks(max(volume["hours"]))
    bottom = 10 + _PLOT_PX
    px = _PLOT_PX / scale[-1]
    parts = [_patterns()]
    for tick in scale:
        y = bottom - tick * px
        parts += [_line(0, y, 100, y, "grid"), _text("-8", y + 4, "end", short(tick))]
    for hour in range(24):
        y = float(bottom)
        for place, (row, label) in enumerate(series):
            if not (messages := row["hours"][hour]):
                continue
            slot = SERIES - 1 if row is volume["others"] else place
            height = messages * px
            y -= height
            tip = f"{hour:02d}:00 to {hour + 1:02d}:00 UTC, {clean(label)}: {count(messages)} messages"
            box = (hour * 100 / 24 + 0.45, y, 100 / 24 - 0.9, max(height - 0.8, 0.4))
            parts.append(_rect(*box, f"bar s{slot}", tip))
            parts.append(_rect(*box, f"hatch p{slot}"))
        if not volume["hours"][hour]:
            parts.append(_text(f"{(hour + 0.5) * 100 / 24:.3f}%", bottom - 5, "middle", "0"))
    parts.append(_line(0, bottom, 100, bottom, "axis"))
    parts += _hour_labels(bottom + 18, every=3)
    parts.append(_text("50%", bottom + 38, "middle", "hour of the day, UTC"))
    description = f"Stacked bars, one for each hour; the busiest hour has {count(max(volume['hours']))} messages."
    return svg("chart", "Messages per hour by route", description, bottom + 46, joined(parts))


def lane(row: dict[str, Any]) -> str:
    """The name of a route with its streamer; without one where it is summed up over a fleet."""
    name = row["route"] or "no route"
    return name if row["streamer"] is None else f"{name} · {row['streamer']}"


def _patterns() -> Markup:
    """Hatching for every second series, so that the stack can be read without colours."""
    paths = {1: "M-1,1l2,-2M0,6l6,-6M5,7l2,-2", 3: "M-1,5l2,2M0,0l6,6M5,-1l2,2", 5: "M0,3h6"}
    form = '<pattern id="h{}" width="6" height="6" patternUnits="userSpaceOnUse"><path d="{}"/></pattern>'
    return Markup("<defs>{}</defs>").format(joined([Markup(form).format(slot, path) for slot, path in paths.items()]))


def _hour_labels(y: float, every: int) -> list[Markup]:
    return [_text(f"{(hour + 0.5) * 100 / 24:.3f}%", y, "middle", f"{hour:02d}") for hour in range(0, 24, every)]


def swatch(slot: int) -> Markup:
    """The legend entry of a series."""
    body = _rect(0, 0, 100, 12, f"bar s{slot}") + _rect(0, 0, 100, 12, f"hatch p{slot}")
    return Markup('<svg class="swatch" aria-hidden="true" width="16" height="12">{}</svg>').format(body)


def bars(values: Sequence[float | None], title: str, description: str, height_px: int = 28) -> Markup:
    """A trend as small bars, the last one emphasised; an unknown day is a dot."""
    largest = max((value for value in values if value is not None), default=0) or 1
    width = 100 / max(len(values), 1)
    parts = [_line(0, height_px - 0.5, 100, height_px - 0.5, "axis")]
    for place, value in enumerate(values):
        last = " today" if place == len(values) - 1 else ""
        if value is None:
            parts.append(_text(f"{(place + 0.5) * width:.3f}%", height_px - 3, "middle", "·"))
        elif value > 0:
            height = max(value / largest * (height_px - 2), 1.5)
            parts.append(_rect(place * width + width * 0.12, height_px - height - 1, width * 0.76, height, f"spark{last}"))
    return svg("trend", title, description, height_px, joined(parts))


def stacked(row: dict[str, Any], order: Sequence[str], largest: float, title: str) -> Markup:
    """One bar in a table: the parts of a row, in this order. ``largest`` fills the cell."""
    parts, x = [_line(0, 0, 0, 14, "axis")], 0.0
    for name in order:
        if row[name]:
            width = row[name] / (largest or 1) * 100
            parts.append(_rect(x, 1, width, 12, f"o-{name}", f"{name.replace('_', ' ')}: {count(row[name])}"))
            x += width
    description = ", ".join(f"{name.replace('_', ' ')} {count(row[name])}" for name in order)
    return svg("share", title, description, 14, joined(parts))


def share_bar(part: float | None, title: str) -> Markup:
    """One bar for a share of one. A negative share is drawn with its absolute length, in the colour for bad values."""
    width = min(abs(part or 0), 1) * 100
    bar = _rect(0, 1, width, 8, "over" if (part or 0) < 0 else "spark today")
    return svg("share", title, share(part), 10, _rect(0, 1, 100, 8, "track") + bar)


def percent(part: int, whole: int) -> str:
    """A part of a whole as text."""
    return share(part / whole) if whole else MISSING
