"""An effect over the width, the length or the position: points with intervals, as a ratio and in microseconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go

from .. import words
from ..views.data import Floor
from ..views.scaling import AXES, Cost, Series, sweep
from .colours import LIGHT, Palette
from .drawing import ABOVE, Layout, area, axis, figure, mark, marks, ratio_axis, rule

HEIGHT = 380


def ratios(series: Series, floors: Mapping[str, Floor], colours: Palette = LIGHT) -> go.Figure:
    """The effect over log size: points with intervals (hollow where not settled), the claimed region, the line at 1,
    each point's A/A floor, and the bracket in which the effect crosses the region's edge."""
    left, right = _ends([point.size for point in series.points])
    known = [1.0, series.low, series.high]
    for point in series.points:
        known += [point.effect.value, point.effect.low, point.effect.high]
        if floor := floors.get(point.effect.workload):
            known += [floor.low, floor.high]
    logs = [math.log(value) for value in known if value]
    air = max(0.06 * (max(logs) - min(logs)), 0.003)
    bottom, top = math.exp(min(logs) - air), math.exp(max(logs) + air)
    boxes = [(left, right, series.low or bottom, series.high or top, colours.region, colours.region_edge)]
    for point in series.points:
        if floor := floors.get(point.effect.workload):
            around = (point.size / 1.13, point.size * 1.13, floor.low, floor.high)
            boxes.append((*around, colours.floor, colours.floor_edge))
    shapes = [area(*each) for each in boxes]
    for each in shapes:
        each["line"]["dash"] = "dot"
    shapes.append(rule(left, right, 1, 1, colours.muted))
    edges = [edge for crossing in sweep(series).crossings for edge in (crossing.low, crossing.high)]
    dashes = {"line": {"color": colours.verdict["violet"], "width": 2, "dash": "dash"}}
    shapes += [rule(edge, edge, bottom, top, "") | dashes for edge in edges]
    traces = []
    for settled, name, symbol in ((True, "settled", "circle"), (False, "not settled", "circle-open")):
        chosen = [point for point in series.points if point.settled is settled and point.effect.value]
        if chosen:
            rows = []
            for point in chosen:
                effect = point.effect
                hover = f"<b>{words.label(effect.workload, 60)}</b><br>{words.label(effect.text)}<br>"
                hover += f"{effect.rounds} rounds, {name}"
                rows.append((point.size, effect.value or 1.0, effect.low or bottom, effect.high or top, hover))
            traces.append(_points(rows, name, symbol, colours))
    return _figure(traces, shapes, series, (left, right), ratio_axis(bottom, top, "speed-up (log)"), colours)


def ratios_text(series: Series, floors: Mapping[str, Floor]) -> str:
    """The figure in words, point by point."""
    parts = []
    for point in series.points:
        floor = floors.get(point.effect.workload)
        known = f", A/A floor {floor.low:.3f} to {floor.high:.3f}" if floor else ""
        state = "settled" if point.settled else "not settled"
        parts.append(f"at {point.size:,.0f}: {point.effect.text}, {state}{known}")
    return f"Speed-up of {series.variant} over {series.baseline} against {AXES[series.axis]}. {'; '.join(parts)}."


def microseconds(series: Series, costs: Sequence[Cost], colours: Palette = LIGHT) -> go.Figure:
    """Microseconds a call that the baseline takes longer, over log size: linear near 0, logarithmic beyond."""
    left, right = _ends([cost.size for cost in costs])
    known = [cost for cost in costs if cost.us is not None]
    finite = [abs(end) for cost in known for end in (cost.us, cost.low, cost.high) if end is not None]
    knee = min((abs(cost.us or 0) for cost in known if cost.us), default=1.0)

    def bent(us: float) -> float:
        return math.asinh(us / knee)

    most = bent(max(finite, default=1.0)) * 1.08
    traces = []
    for settled, name, symbol in ((True, "sign settled", "circle"), (False, "sign not settled", "circle-open")):
        chosen = [cost for cost in known if cost.signed is settled]
        if chosen:
            rows = []
            for cost in chosen:
                low = -most if cost.low is None else bent(cost.low)
                high = most if cost.high is None else bent(cost.high)
                hover = f"{cost_text(cost)}<br>{cost.rounds} rounds, {name}"
                rows.append((cost.size, bent(cost.us or 0), low, high, hover))
            traces.append(_points(rows, name, symbol, colours))
    powers = [10.0**power for power in range(-2, 8) if knee <= 10.0**power <= max(finite, default=1.0) * 1.1]
    step = 1 if len(powers) <= 4 else 2
    values = [0.0, *(sign * power for power in powers[::step] for sign in (1, -1))]
    y_axis = axis(
        "µs a call",
        range=[-most, most],
        ticks_at={bent(value): f"{value:,.10g}" for value in values},
    )
    return _figure(traces, [rule(left, right, 0, 0, colours.muted)], series, (left, right), y_axis, colours)


def microseconds_text(series: Series, costs: Sequence[Cost]) -> str:
    """The figure in words."""
    parts = [f"at {cost.size:,.0f}: {cost_text(cost)}" for cost in costs]
    return f"Microseconds a call that {series.baseline} takes longer than {series.variant}: {'; '.join(parts)}."


def cost_text(cost: Cost) -> str:
    """Microseconds with their interval."""
    if cost.us is None:
        return "not measured"
    if cost.low is None or cost.high is None:
        return f"{cost.us:,.3g} µs, too few rounds for an interval ({cost.rounds})"
    return words.plain_interval(cost.us, cost.low, cost.high, "µs")


def _points(
    rows: Iterable[tuple[float, float, float, float, str]], name: str, symbol: str, colours: Palette
) -> go.Scatter:
    blue = colours.verdict["blue"]
    return marks(rows, colour=blue, name=name, marker=mark(symbol, blue, 10), showlegend=True)


def _figure(
    traces: Sequence[go.Scatter],
    shapes: Sequence[Layout],
    series: Series,
    ends: tuple[float, float],
    y_axis: Layout,
    colours: Palette,
) -> go.Figure:
    return figure(
        list(traces),
        height=HEIGHT,
        margin=(8, 8, 34, 8),
        shapes=list(shapes),
        xaxis=axis(
            f"{AXES[series.axis]}, log",
            type="log",
            range=[math.log10(end) for end in ends],
            ticks_at={point.size: f"{point.size:,.0f}" for point in series.points},
            showgrid=False,
            ticks="outside",
        ),
        yaxis={**y_axis, "gridcolor": colours.rule, "automargin": True},
        legend=ABOVE,
    )


def _ends(sizes: Sequence[float]) -> tuple[float, float]:
    return min(sizes) / 1.5, max(sizes) * 1.5
