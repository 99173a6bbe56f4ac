"""A variant over many runs: its ratio to the yardstick with intervals, and breaks where runs cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from llama_workbench.variants import YARDSTICKS

from .. import words
from ..views.entries import when
from ..views.history import Break, Point
from ..views.samples import ratios
from .colours import LIGHT, Palette
from .drawing import ABOVE, SMALL, Layout, axis, figure, line, log_span, mark, marks, note, ratio_axis, rule

MOST_TICKS = 4
CROWDED = 60  # with more points than that, marks are smaller and bars have no caps

KINDS = {
    "run": ("circle", "a run"),
    "baseline": ("diamond", "a baseline"),
    "doubtful": ("square-open", "stopped early, a control fired, or it drifted"),
}
"""Marker and legend of each kind of point."""


def timeline(
    points: Sequence[Point],
    breaks: Sequence[Break],
    changed: Sequence[str] = (),
    colours: Palette = LIGHT,
    *,
    steps: Sequence[str] = (),
) -> go.Figure:
    """One point a run, oldest left, evenly spaced; log y axis, up is faster. Raises ValueError without points.

    The line stops at a break, a numbered dotted upright. `changed`: names of the runs that get a ring, for the variant
    changed there. `steps`: names of the first runs behind a change point, a red upright. An open interval has no bar.
    """
    if not points:
        raise ValueError("no runs to draw")
    broken = {each.index for each in breaks}
    places = [place for index in range(len(points)) for place in ((None, index) if index in broken else (index,))]
    heights = [None if index is None else _ratio(points[index]) for index in places]
    traces = [line(places, heights, colours.muted, showlegend=False, connectgaps=False)]
    kinds = ["doubtful" if not point.sound else "baseline" if point.baseline else "run" for point in points]
    for name in KINDS:
        if chosen := [(index, point) for index, point in enumerate(points) if kinds[index] == name]:
            traces.append(_marks(chosen, name, colours, crowded=len(points) > CROWDED))
    if ringed := {index: _ratio(point) for index, point in enumerate(points) if not {*point.runs}.isdisjoint(changed)}:
        red = mark("square-open", colours.verdict["red"], 17)
        rings: Layout = {"x": list(ringed), "y": list(ringed.values()), "name": "changed beyond noise", "marker": red}
        traces.append(go.Scatter(mode="markers", hoverinfo="skip", **rings))
    orange = colours.verdict["orange"]
    in_break: Layout = {"xref": "x", "xanchor": "center", "yref": "paper", "font": {"size": SMALL, "color": orange}}
    numbers = [note(each.index - 0.5, 0.98, str(number), colours) | in_break for number, each in enumerate(breaks, 1)]
    uprights = [(each.index - 0.5, orange, "dot") for each in breaks]
    behind = (index for index, point in enumerate(points) if not {*point.runs}.isdisjoint(steps))
    uprights += [(index - 0.5, colours.verdict["red"], "solid") for index in behind]
    starts = [point.started for point in points]
    days = [started[:10] or "no date" for started in starts]
    one_day = len(days) > 1 and len(set(days)) == 1
    labels = {k: words.label(starts[k][11:16] if one_day else days[k], 20) for k in _ticks(len(points))}
    against = points[-1].against
    against = "the yardstick" if not against or against in YARDSTICKS else words.label(against, 16)  # the axis is short
    return figure(
        traces,
        colours,
        height=340,
        margin=(62, 36, 46, 52),
        shapes=[rule(x, x, 0, 1, colour, dash, yref="paper") for x, colour, dash in uprights],
        annotations=numbers if len(numbers) <= 20 else [],  # more would hide the points; the table below has them
        xaxis=axis(
            "runs, oldest left (start, UTC)",
            SMALL + 1,
            ticks_at=labels,
            range=[-0.6, max(len(points) - 0.4, 0.6)],
            showgrid=False,
            standoff=8,
        ),
        yaxis=ratio_axis(*_span(points), f"speed (log), against {against}", SMALL + 1, gridcolor=colours.rule),
        legend={**ABOVE, "y": 1.02},
    )


def timeline_text(workload: str, variant: str, points: Sequence[Point], breaks: Sequence[Break]) -> str:
    """The picture in words: first and last run with their intervals, and the breaks."""
    if not points:
        return f"No run has a number for {variant} on {workload}."
    first, last = points[0], points[-1]
    count = sum(len(point.runs) for point in points)
    runs, oldest = f"{count} run{'s' * (count > 1)}", ""
    if len(points) > 1:
        oldest = f", {text(first)} in the oldest ({first.name})"
    broken = f"{len(breaks)} break{'s' * (len(breaks) != 1)} where runs cannot be compared" if breaks else "no break"
    return f"{variant} on {workload} over {runs}: {text(last)} in the newest ({last.name}){oldest}; {broken}."


def text(point: Point) -> str:
    """A ratio with interval and rounds."""
    if not point.interval.n:
        return "not measured"
    return f"{words.ratio(*ratios(point.interval))}, {point.interval.n} rounds"


def _marks(chosen: Sequence[tuple[int, Point]], name: str, colours: Palette, *, crowded: bool) -> go.Scatter:
    """The points of one kind."""
    colour, (symbol, legend) = colours.sides[1], KINDS[name]
    rows = []
    for index, point in chosen:
        value, (_, low, high) = _ratio(point) or 1.0, ratios(point.interval)
        hover = f"<b>{words.label(point.name, 60)}</b><br>{words.label(when(point.started), 30)}<br>"
        rows.append((index, value, low or value, high or value, hover + words.label(text(point))))
    return marks(
        rows,
        colour=colour,
        name=legend,
        thickness=1 if crowded else 1.5,
        cap=0 if crowded else 3,
        marker=mark(symbol, colour, 4 if crowded else 8, 1.5),
    )


def _ratio(point: Point) -> float | None:
    return math.exp(point.interval.centre) if point.interval.n else None


def _span(points: Sequence[Point]) -> tuple[float, float]:
    known = [point.interval for point in points if point.interval.n]
    logs = [end for each in known for end in (each.centre, each.low, each.high) if math.isfinite(end)]
    return log_span(logs or [0.0], 0.08, 0.01)


def _ticks(count: int) -> list[int]:
    """Up to MOST_TICKS indices, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(MOST_TICKS, count))})
