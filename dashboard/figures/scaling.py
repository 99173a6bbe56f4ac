"""An effect over the width, the length or the position: points with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from .. import words
from ..views.data import Floor
from ..views.forest import FLOOR
from ..views.scaling import AXES, Series
from .colours import LIGHT, Palette
from .drawing import ABOVE, Layout, Mark, area, axis, figure, log_span, mark, marks, ratio_axis, rule

LANE = 1.12
"""How far left of a point stands what identical code came out at, as a factor of the size."""

Point = tuple[bool, *Mark]
"""Whether it is settled, and its mark."""


def ratios(series: Series, floors: Mapping[str, Floor], colours: Palette = LIGHT) -> go.Figure:
    """The effect over log size: points with intervals (hollow where not settled), the claimed region, the line at 1.

    Left of each point stands how identical code came out; uprights are where the effect crosses the region's edge.
    """
    left, right = min(series.effects) / 1.5, max(series.effects) * 1.5
    grey = [(size, floor) for size, one in series.effects.items() if (floor := floors.get(one.workload))]
    known = [1.0, series.low, series.high, *(floor.value for _, floor in grey)]
    known += [end for effect in series.effects.values() for end in (effect.value, effect.lower, effect.upper)]
    bottom, top = log_span([math.log(value) for value in known if value], 0.06, 0.003)
    shapes = [area(left, right, series.low or bottom, series.high or top, colours.region, colours.region_edge)]
    for shape in shapes:
        shape["line"]["dash"] = "dot"
    shapes.append(rule(left, right, 1, 1, colours.muted))
    edges = [edge for crossing in series.sweep.crossings for edge in (crossing.low, crossing.high)]
    dashes = {"line": {"color": colours.verdict["violet"], "width": 2, "dash": "dash"}}
    shapes += [rule(edge, edge, bottom, top, "") | dashes for edge in edges]
    rows: list[Point] = []
    for size, effect in series.effects.items():
        if effect.value:
            lines = (
                f"<b>{words.label(effect.workload, 60)}</b>",
                words.label(words.effect(effect)),
                f"{effect.rounds} rounds",
            )
            hover = "<br>".join(lines)
            ends = _drawn_ends(effect.value, effect.lower or None, effect.upper, bottom, top)
            rows.append((series.settled(size), size, effect.value, *ends, hover))
    traces = _traces(rows, colours)
    if grey:
        texts = [f"{FLOOR}: {words.label(floor.text)}, {floor.rounds} rounds" for _, floor in grey]
        beside = [(at / LANE, one.value, one.low, one.high, text) for (at, one), text in zip(grey, texts, strict=True)]
        dot, ink = mark("circle", colours.muted, 4, 0), colours.muted  # thin lines with a dot, as no effect has
        traces.append(marks(beside, colour=ink, name=FLOOR, thickness=1, cap=2, marker=dot, showlegend=True))
    return figure(
        traces,
        colours,
        height=380,
        margin=(8, 8, 34, 8),
        shapes=shapes,
        xaxis=axis(
            f"{AXES[series.axis]}, log",
            type="log",
            range=[math.log10(left), math.log10(right)],
            ticks_at={size: f"{size:,.0f}" for size in series.effects},
            showgrid=False,
            ticks="outside",
        ),
        yaxis={**ratio_axis(bottom, top, "speed-up (log)"), "gridcolor": colours.rule, "automargin": True},
        legend=ABOVE,
    )


def ratios_text(series: Series, floors: Mapping[str, Floor]) -> str:
    """The figure in words, point by point."""
    parts = []
    for size, effect in series.effects.items():
        floor = floors.get(effect.workload)
        known = f", {FLOOR} {floor.text}" if floor else ""
        state = "settled" if series.settled(size) else "not settled"
        parts.append(f"at {size:,.0f}: {words.effect(effect)}, {state}{known}")
    return f"Speed-up of {series.variant} over {series.baseline} against {AXES[series.axis]}. {'; '.join(parts)}."


def _traces(points: Sequence[Point], colours: Palette) -> list[go.Scatter]:
    """Filled marks for what is settled, hollow ones for what is not."""
    blue = colours.verdict["blue"]
    traces: list[go.Scatter] = []
    no_cap = {"visible": False}  # even an interval without length would have one
    for settled, name, symbol in ((True, "settled", "circle"), (False, "not settled", "circle-open")):
        chosen = [point for point in points if point[0] is settled]
        rows = [(place, value, low, high, f"{hover}, {name}") for _, place, value, low, high, hover in chosen]
        alone = [row for row in rows if row[2] == row[3]]
        bounded = [row for row in rows if row not in alone]
        drawn: Layout = {"colour": blue, "name": name, "marker": mark(symbol, blue, 10)}
        traces += [marks(bounded, showlegend=True, **drawn)] if bounded else []
        traces += [marks(alone, showlegend=not bounded, error_y=no_cap, **drawn)] if alone else []
    return traces


def _drawn_ends(value: float, low: float | None, high: float | None, bottom: float, top: float) -> tuple[float, float]:
    """An interval that is open at one end runs to the edge; where there is none, none is drawn."""
    if low is None and high is None:
        return value, value
    return bottom if low is None else low, top if high is None else high
