"""A variant over many runs: its ratio to the yardstick with intervals, and breaks where runs cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from .. import words
from ..views.entries import when
from ..views.history import Break, Point
from ..views.samples import ratios
from .colours import LIGHT, Palette
from .drawing import ABOVE, SMALL, axis, figure, line, mark, marks, note, ratio_axis, rule

HEIGHT_PX = 340
MOST_TICKS = 4
CROWDED = 60  # with more points than that, marks are smaller and bars have no caps

KINDS = {
    "run": ("circle", "a run"),
    "baseline": ("diamond", "a baseline"),
    "doubtful": ("circle-open", "stopped early, a control fired, or it drifted"),
}
"""Marker and legend of each kind of point."""


def timeline(
    points: Sequence[Point], breaks: Sequence[Break], changed: Sequence[str] = (), colours: Palette = LIGHT
) -> go.Figure:
    """One point a run, oldest left, evenly spaced; log y axis, up is faster. Raises ValueError without points.

    The line stops at a break, a numbered dotted upright. `changed`: names of the runs that get a ring, for the variant
    changed there. An open interval has no bar.
    """
    if not points:
        raise ValueError("no runs to draw")
    broken = {each.index for each in breaks}
    places = [place for index in range(len(points)) for place in ((None, index) if index in broken else (index,))]
    heights = [None if index is None else _ratio(points[index]) for index in places]
    traces = [line(places, heights, colours.muted, showlegend=False, connectgaps=False)]
    for name, (symbol, legend) in KINDS.items():
        chosen = [(index, point) for index, point in enumerate(points) if kind(point) == name]
        if chosen:
            traces.append(_marks(chosen, symbol, legend, colours, crowded=len(points) > CROWDED))
    if any(point.name in changed for point in points):
        traces.append(_rings(points, changed, colours))
    orange = colours.verdict["orange"]
    few = len(breaks) <= 20  # more numbers than that would hide the points; the table below has them
    labels = {index: words.label(_when(points[index].started, points), 20) for index in _ticks(len(points))}
    against = words.label(points[-1].against or "yardstick", 30)
    x_axis = axis(
        "runs, oldest left (start, UTC)",
        SMALL + 1,
        ticks_at=labels,
        range=[-0.6, max(len(points) - 0.4, 0.6)],
        showgrid=False,
        standoff=8,
    )
    return figure(
        traces,
        height=HEIGHT_PX,
        margin=(62, 36, 46, 52),
        shapes=[rule(x, x, 0, 1, orange, "dot", yref="paper") for x in (each.index - 0.5 for each in breaks)],
        annotations=[
            note(each.index - 0.5, 0.98, str(number), "center", (orange, colours.page)) | {"xref": "x", "yref": "paper"}
            for number, each in enumerate(breaks, 1)
            if few
        ],
        xaxis=x_axis,
        yaxis=ratio_axis(*_span(points), f"t_{against} / t_variant, log", SMALL + 1, gridcolor=colours.rule),
        legend={**ABOVE, "y": 1.02},
    )


def _rings(points: Sequence[Point], changed: Sequence[str], colours: Palette) -> go.Scatter:
    """Around the runs in which the variant changed significantly."""
    ringed = [(index, _ratio(point)) for index, point in enumerate(points) if point.name in changed]
    return go.Scatter(
        x=[index for index, _ in ringed],
        y=[ratio for _, ratio in ringed],
        mode="markers",
        name="changed beyond noise",
        marker={"symbol": "square-open", "size": 17, "color": colours.verdict["red"], "line": {"width": 2}},
        hoverinfo="skip",
    )


def timeline_text(workload: str, variant: str, points: Sequence[Point], breaks: Sequence[Break]) -> str:
    """The picture in words: first and last run with their intervals, and the breaks."""
    if not points:
        return f"No run has a number for {variant} on {workload}."
    first, last = points[0], points[-1]
    told = (
        f"{variant} on {workload} over {len(points)} run{'s' * (len(points) > 1)}: "
        f"{text(last)} in the newest ({last.name})"
    )
    if len(points) > 1:
        told += f", {text(first)} in the oldest ({first.name})"
    broken = f"{len(breaks)} break{'s' * (len(breaks) != 1)} where runs cannot be compared" if breaks else "no break"
    return f"{told}; {broken}."


def text(point: Point) -> str:
    """A ratio with interval and rounds."""
    if not point.interval.n:
        return "not measured"
    return f"{words.effect(*ratios(point.interval))}, {point.interval.n} rounds"


def kind(point: Point) -> str:
    """Which of KINDS a point is; doubt goes before where the run lies."""
    return "doubtful" if not point.sound else "baseline" if point.baseline else "run"


def _marks(
    chosen: Sequence[tuple[int, Point]], symbol: str, legend: str, colours: Palette, *, crowded: bool
) -> go.Scatter:
    colour = colours.sides[1]
    rows = []
    for index, point in chosen:
        value, (_, low, high) = _ratio(point) or 1.0, ratios(point.interval)
        lines = (words.label(when(point.started), 30), words.label(text(point)))
        hover = "<br>".join([f"<b>{words.label(point.name, 60)}</b>", *lines])
        rows.append((index, value, low or value, high or value, hover))
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
    logs = [
        value
        for point in points
        if point.interval.n
        for value in (point.interval.centre, point.interval.low, point.interval.high)
        if math.isfinite(value)
    ] or [0.0]
    air = max(0.08 * (max(logs) - min(logs)), 0.01)
    return math.exp(min(logs) - air), math.exp(max(logs) + air)


def _ticks(count: int) -> list[int]:
    """Up to MOST_TICKS indices, the first and the last among them."""
    steps = min(MOST_TICKS, count) - 1
    return sorted({round(index * (count - 1) / steps) for index in range(steps + 1)}) if steps else [0]


def _when(started: str, points: Sequence[Point]) -> str:
    """The date, or the time of day where all are of one day."""
    one_day = len({point.started[:10] for point in points}) == 1 and len(points) > 1
    return started[11:16] if one_day else started[:10] or "no date"
