"""A variant over many runs: its ratio to the yardstick with intervals, and breaks where runs cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures.colours import LIGHT, Palette
from llama_workbench.dashboard.figures.drawing import SMALL, note, ratio_ticks
from llama_workbench.dashboard.views.history import Break, Point
from llama_workbench.harness.report.text import interval_text, ratio_text

HEIGHT_PX = 340
MOST_TICKS = 4
CROWDED = 60  # with more points than that, marks are smaller and bars have no caps

KINDS = {
    "run": ("circle", "a run"),
    "baseline": ("diamond", "a baseline"),
    "doubtful": ("circle-open", "not to its end, a control fired, or it moved"),
}
"""Marker and legend of each kind of point."""


def timeline(
    points: Sequence[Point], breaks: Sequence[Break], changed: Sequence[str] = (), colours: Palette = LIGHT
) -> go.Figure:
    """One point a run, oldest left, evenly spaced; the y axis is logarithmic, up is faster.

    The line runs through runs that may be compared and stops at a break, which is an upright dotted line with its
    number. `changed`: names of the runs in which the variant changed significantly; they have a ring. An interval
    that is still open has no bar. Raises ValueError without points.
    """
    if not points:
        raise ValueError("no runs to draw")
    low, high = _span(points)
    broken = {each.index: number for number, each in enumerate(breaks, 1)}
    line_x: list[float | None] = []
    line_y: list[float | None] = []
    for index, point in enumerate(points):
        if index in broken:
            line_x.append(None)
            line_y.append(None)
        line_x.append(index)
        line_y.append(_ratio(point))
    line = go.Scatter(
        x=line_x,
        y=line_y,
        mode="lines",
        line={"color": colours.muted, "width": 1},
        hoverinfo="skip",
        showlegend=False,
        connectgaps=False,
    )
    traces: list[Any] = [line]
    for name, (symbol, legend) in KINDS.items():
        chosen = [(index, point) for index, point in enumerate(points) if kind(point) == name]
        if chosen:
            traces.append(_marks(chosen, symbol, legend, colours, crowded=len(points) > CROWDED))
    ringed = [(index, point) for index, point in enumerate(points) if point.name in changed]
    if ringed:
        traces.append(
            go.Scatter(
                x=[index for index, _ in ringed],
                y=[_ratio(point) for _, point in ringed],
                mode="markers",
                name="changed beyond noise",
                marker={"symbol": "square-open", "size": 17, "color": colours.verdict["red"], "line": {"width": 2}},
                hoverinfo="skip",
            )
        )
    few = len(breaks) <= 20  # more numbers than that would hide the points; the table below has them
    shapes = [
        {
            "type": "line",
            "x0": each.index - 0.5,
            "x1": each.index - 0.5,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"color": colours.verdict["orange"], "width": 1, "dash": "dot"},
            "layer": "below",
        }
        for each in breaks
    ]
    numbers = [
        note(each.index - 0.5, 0.98, str(number), "center", (colours.verdict["orange"], colours.page))
        | {"xref": "x", "yref": "paper"}
        for number, each in enumerate(breaks, 1)
        if few
    ]
    ticks = ratio_ticks(low, high)
    every = _ticks(len(points))
    labels = [words.label(_when(points[index].started, points), 20) for index in every]
    against = words.label(points[-1].against or "yardstick", 30)
    return go.Figure(
        data=traces,
        layout={
            "shapes": shapes,
            "annotations": numbers,
            "height": HEIGHT_PX,
            "margin": {"l": 62, "r": 36, "t": 46, "b": 52},
            "xaxis": {
                "title": {"text": "runs, oldest left (start, UTC)", "font": {"size": SMALL + 1}, "standoff": 8},
                "tickvals": every,
                "ticktext": labels,
                "range": [-0.6, max(len(points) - 0.4, 0.6)],
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
            },
            "yaxis": {
                "type": "log",
                "title": {"text": f"t_{against} / t_variant, log", "font": {"size": SMALL + 1}},
                "range": [math.log10(low), math.log10(high)],
                "tickvals": list(ticks),
                "ticktext": list(ticks.values()),
                "gridcolor": colours.rule,
                "zeroline": False,
                "fixedrange": True,
            },
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": 1.02,
                "yanchor": "bottom",
                "xanchor": "left",
                "font": {"size": SMALL},
            },
            "hovermode": "closest",
            "dragmode": False,
        },
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
    ends = (math.exp(end) if math.isfinite(end) else None for end in (point.interval.low, point.interval.high))
    return f"{ratio_text(_ratio(point))} {interval_text(*ends)}, {point.interval.n} rounds"


def kind(point: Point) -> str:
    """Which of KINDS a point is; doubt goes before where the run lies."""
    return "doubtful" if not point.sound else "baseline" if point.baseline else "run"


def _marks(
    chosen: Sequence[tuple[int, Point]], symbol: str, legend: str, colours: Palette, *, crowded: bool
) -> go.Scatter:
    colour = colours.sides[1]
    ratios = [_ratio(point) or 1.0 for _, point in chosen]
    ends = [
        tuple(math.exp(end) if math.isfinite(end) else ratio for end in (point.interval.low, point.interval.high))
        for ratio, (_, point) in zip(ratios, chosen, strict=True)
    ]
    return go.Scatter(
        x=[index for index, _ in chosen],
        y=ratios,
        mode="markers",
        name=legend,
        marker={
            "symbol": symbol,
            "size": 4 if crowded else 8,
            "color": colour,
            "line": {"width": 1.5, "color": colour},
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [high - ratio for ratio, (_, high) in zip(ratios, ends, strict=True)],
            "arrayminus": [ratio - low for ratio, (low, _) in zip(ratios, ends, strict=True)],
            "color": colour,
            "thickness": 1 if crowded else 1.5,
            "width": 0 if crowded else 3,
        },
        hovertext=[
            f"<b>{words.label(point.name, 60)}</b><br>{words.label(point.started[:16].replace('T', ' '), 30)}<br>"
            f"{words.label(text(point))}"
            for _, point in chosen
        ],
        hoverinfo="text",
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
