"""An effect over the width, the length or the position: points with intervals, as a ratio and in microseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from llama_workbench.harness.store.verdict_schema import Effect

from .. import words
from ..views.data import Floor
from ..views.forest import FASTER, FLOOR, SLOWER
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
    left, right = _ends(series)
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
    traces = _traces(rows, ("settled", "not settled"), colours)
    if grey:
        texts = [f"{FLOOR}: {words.label(floor.text)}, {floor.rounds} rounds" for _, floor in grey]
        beside = [(at / LANE, one.value, one.low, one.high, text) for (at, one), text in zip(grey, texts, strict=True)]
        dot, ink = mark("circle", colours.muted, 4, 0), colours.muted  # thin lines with a dot, as no effect has
        traces.append(marks(beside, colour=ink, name=FLOOR, thickness=1, cap=2, marker=dot, showlegend=True))
    return _figure(traces, shapes, series, ratio_axis(bottom, top, "speed-up (log)"), colours)


def ratios_text(series: Series, floors: Mapping[str, Floor]) -> str:
    """The figure in words, point by point."""
    parts = []
    for size, effect in series.effects.items():
        floor = floors.get(effect.workload)
        known = f", {FLOOR} {floor.text}" if floor else ""
        state = "settled" if series.settled(size) else "not settled"
        parts.append(f"at {size:,.0f}: {words.effect(effect)}, {state}{known}")
    return f"Speed-up of {series.variant} over {series.baseline} against {AXES[series.axis]}. {'; '.join(parts)}."


def microseconds(series: Series, costs: Mapping[float, Effect], colours: Palette = LIGHT) -> go.Figure:
    """Microseconds a call that the baseline takes longer, over log size: linear near 0, logarithmic beyond."""
    known = {size: (cost, cost.value) for size, cost in costs.items() if cost.value is not None}
    finite = [abs(end) for cost, us in known.values() for end in (us, cost.lower, cost.upper) if end is not None]
    knee = min((abs(us) for _, us in known.values() if us), default=1.0)

    def bent(us: float) -> float:
        return math.asinh(us / knee)

    most = bent(max(finite, default=1.0)) * 1.08
    rows: list[Point] = []
    for size, (cost, us) in known.items():
        settled = cost.lower is not None and cost.upper is not None and cost.lower * cost.upper > 0
        low, high = (None if end is None else bent(end) for end in (cost.lower, cost.upper))
        ends = _drawn_ends(bent(us), low, high, -most, most)
        rows.append((settled, size, bent(us), *ends, f"{words.told(cost)}<br>{cost.rounds} rounds"))
    traces = _traces(rows, ("sign settled", "sign not settled"), colours)
    largest = max(finite, default=1.0)
    steps = (1.0, 2.0, 5.0) if largest < 30 * knee else (1.0,)
    ticks = [step * 10.0**power for power in range(-2, 8) for step in steps if knee <= step * 10.0**power <= largest]
    values = [0.0, *(sign * tick for tick in ticks[:: max(1, round(len(ticks) / 5))] for sign in (1, -1))]
    y_axis = axis(
        f"{SLOWER}   µs a call   {FASTER}",
        range=[-most, most],
        ticks_at={bent(value): f"{value:,.10g}" for value in values},
    )
    return _figure(traces, [rule(*_ends(series), 0, 0, colours.muted)], series, y_axis, colours)


def microseconds_text(series: Series, costs: Mapping[float, Effect]) -> str:
    """The figure in words."""
    parts = [f"at {size:,.0f}: {words.told(cost)}" for size, cost in costs.items()]
    return f"Microseconds a call that {series.baseline} takes longer than {series.variant}: {'; '.join(parts)}."


def _traces(points: Sequence[Point], names: tuple[str, str], colours: Palette) -> list[go.Scatter]:
    """Filled marks for what is settled, hollow ones for what is not; `names`: of both in the legend."""
    blue = colours.verdict["blue"]
    traces: list[go.Scatter] = []
    no_cap = {"visible": False}  # even an interval without length would have one
    for settled, name, symbol in zip((True, False), names, ("circle", "circle-open"), strict=True):
        chosen = [point for point in points if point[0] is settled]
        rows = [(place, value, low, high, f"{hover}, {name}") for _, place, value, low, high, hover in chosen]
        alone = [row for row in rows if row[2] == row[3]]
        bounded = [row for row in rows if row not in alone]
        drawn: Layout = {"colour": blue, "name": name, "marker": mark(symbol, blue, 10)}
        traces += [marks(bounded, showlegend=True, **drawn)] if bounded else []
        traces += [marks(alone, showlegend=not bounded, error_y=no_cap, **drawn)] if alone else []
    return traces


def _figure(
    traces: list[go.Scatter], shapes: list[Layout], series: Series, y_axis: Layout, colours: Palette
) -> go.Figure:
    return figure(
        traces,
        colours,
        height=380,
        margin=(8, 8, 34, 8),
        shapes=shapes,
        xaxis=axis(
            f"{AXES[series.axis]}, log",
            type="log",
            range=[math.log10(end) for end in _ends(series)],
            ticks_at={size: f"{size:,.0f}" for size in series.effects},
            showgrid=False,
            ticks="outside",
        ),
        yaxis={**y_axis, "gridcolor": colours.rule, "automargin": True},
        legend=ABOVE,
    )


def _drawn_ends(value: float, low: float | None, high: float | None, bottom: float, top: float) -> tuple[float, float]:
    """An interval that is open at one end runs to the edge; where there is none, none is drawn."""
    if low is None and high is None:
        return value, value
    return bottom if low is None else low, top if high is None else high


def _ends(series: Series) -> tuple[float, float]:
    """The sizes at the ends of the axis."""
    return min(series.effects) / 1.5, max(series.effects) * 1.5
