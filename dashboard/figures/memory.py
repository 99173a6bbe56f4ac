"""Memory of a few variants as bars, time against memory, and what caching policies hold as more lengths are served."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import fmean

import plotly.graph_objects as go

from llama_workbench.harness.store.pass_schema import Memory

from .. import words
from ..views.forest import linear_ticks
from ..views.memory import AMOUNTS, FRONT, HELD, Policy, Spot, percent_of
from .colours import LIGHT, Palette
from .drawing import ABOVE, SMALL, Layout, Mark, axis, figure, line, log_span, marks, ratio_axis, row_notes, rows_axis

BAR_PX = 40  # a line of text and a bar
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "pentagon", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def memory(rows: Sequence[Memory], field: str, baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """Bars of one amount (a key of AMOUNTS) from 0, one per variant with its name and amount above it."""
    amounts: list[float | None] = [getattr(row, field) for row in rows]
    largest = max((amount or 0.0 for amount in amounts), default=0.0)
    divisor, unit = words.byte_unit(largest)
    height = BAR_PX * len(rows)
    middles = [height - BAR_PX * (place + 1) + 8 for place in range(len(rows))]
    notes: list[Layout] = []
    hovers = []
    for y, row, amount in zip(middles, rows, amounts, strict=True):
        notes += row_notes(y + 17, words.label(row.variant, 30), words.size(amount), colours)
        exact = f" ({amount:,.0f} bytes)" if amount is not None else f"<br>{words.label(row.reason or '', 90)}"
        hovers.append(f"<b>{words.label(row.variant)}</b><br>{AMOUNTS[field]}: {words.size(amount)}{exact}")
    bar = go.Bar(
        x=[amount or 0 for amount in amounts],
        y=middles,
        orientation="h",
        marker={"color": [colours.sides[row.variant != baseline] for row in rows]},
        hovertext=hovers,
        hoverinfo="text",
        width=12,
    )
    return figure(
        bar,
        height=height + 30,
        margin=(5, 24, 2, 28),
        annotations=notes,
        xaxis=axis(
            range=[0, largest or 1],
            ticks_at={
                place: f"{text} {unit}" if place else "0" for place, text in _byte_ticks(0.0, largest, divisor).items()
            },
            gridcolor=colours.rule,
        ),
        yaxis=rows_axis(height),
        showlegend=False,
    )


def memory_text(rows: Sequence[Memory], field: str) -> str:
    """The bars in words."""
    return ", ".join(f"{row.variant} {words.size(getattr(row, field))}" for row in rows) + "."


def tradeoff(spots: Sequence[Spot], title: str, baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """One numbered dot a variant: bytes to the right, speed-up upwards; the front is filled and joined by steps."""
    amounts = [spot.amount for spot in spots]
    divisor, unit = words.byte_unit(max(amounts))
    spread = max(amounts) - min(amounts)
    air = 0.12 * spread or 0.1 * max(amounts) or 1.0
    left, right = max(min(amounts) - air, -air), max(amounts) + air
    timings = [spot.timing for spot in spots]
    bottom, top = log_span([math.log(end) for t in timings for end in (t.low, t.value, t.high) if end], 0.08, 0.01)
    dots: dict[bool, dict[int, Mark]] = {True: {}, False: {}}
    for number, (x, spot) in enumerate(zip(side_by_side(spots, right - left), spots, strict=True), 1):
        ends = spot.timing.low or bottom, spot.timing.high or top
        dots[spot.rank == FRONT][number] = (x, spot.timing.value or 1.0, *ends, _spot_text(number, spot, baseline))
    traces = []
    if len(dots[True]) > 1:
        x, y = zip(*sorted(dot[:2] for dot in dots[True].values()), strict=True)
        traces.append(line(x, y, colours.muted, style={"dash": "dot", "shape": "hv"}, name="front"))
    traces += [_dots(chosen, on_front, colours) for on_front, chosen in dots.items() if chosen]
    ticks = _byte_ticks(max(left, 0.0), right, divisor)
    name = f"speed-up over {words.label(baseline, 24)} (log)"
    return figure(
        traces,
        height=440,
        margin=(8, 8, 34, 8),
        xaxis=axis(f"{words.label(title, 60)} ({unit})", range=[left, right], ticks_at=ticks, gridcolor=colours.rule),
        yaxis=ratio_axis(bottom, top, name, gridcolor=colours.rule),
        legend=ABOVE,
    )


def _dots(dots: Mapping[int, Mark], on_front: bool, colours: Palette) -> go.Scatter:
    """The dots on the front, filled, or those behind it, by number."""
    colour = colours.verdict["blue" if on_front else "gray"]
    return marks(
        dots.values(),
        colour=colour,
        name="on the front" if on_front else "behind the front",
        thickness=1.5,
        cap=5,
        mode="markers+text",
        text=list(map(str, dots)),
        textfont={"size": SMALL, "color": colours.page if on_front else colours.text},
        marker={"size": 20, "color": colour if on_front else colours.page, "line": {"width": 2, "color": colour}},
    )


def side_by_side(spots: Sequence[Spot], width: float) -> list[float]:
    """Where each dot lies on an axis of `width` bytes: at its amount, but beside those it would cover."""
    places = [spot.amount for spot in spots]
    groups: list[list[int]] = []
    for index in sorted(range(len(spots)), key=places.__getitem__):
        if groups and places[index] - places[groups[-1][-1]] < 0.03 * width:
            groups[-1].append(index)
        else:
            groups.append([index])
    for group in (group for group in groups if len(group) > 1):
        middle = fmean(places[index] for index in group)
        step = min(0.045, 0.6 / len(group)) * width
        for order, index in enumerate(sorted(group)):
            places[index] = middle + (order - (len(group) - 1) / 2) * step
    return places


def tradeoff_text(spots: Sequence[Spot], title: str, baseline: str) -> str:
    """The dots in words."""
    parts = [
        f"{number} {spot.variant}: {spot.timing.text}, {words.size(spot.amount)}, {spot.rank}"
        for number, spot in enumerate(spots, 1)
    ]
    return f"Speed-up over {baseline} against {title.lower()}. {'; '.join(parts)}."


def _spot_text(number: int, spot: Spot, baseline: str) -> str:
    speed = "the baseline" if spot.variant == baseline else spot.timing.text
    return (
        f"<b>{number} {words.label(spot.variant, 50)}</b><br>{words.label(speed)}<br>{words.size(spot.amount)}<br>"
        f"{words.label(spot.rank, 70)}"
    )


def policies(sweeps: Sequence[Policy], kind: str, colours: Palette = LIGHT) -> go.Figure:
    """Bytes of one kind (a key of HELD) over the number of lengths: dots measured, lines computed from the policy."""
    steps = [step for one in sweeps for step in one.steps]
    most = max(
        [size for step in steps for size in (step.measured.get(kind), step.computed.get(kind)) if size], default=1.0
    )
    divisor, unit = words.byte_unit(most)
    traces = []
    inks = cycle(reversed(list(colours.verdict.values())))
    for one, ink, symbol, dash in zip(sweeps, inks, cycle(SYMBOLS), cycle(DASHES), strict=False):
        name = words.label(one.row.variant, 40)
        computed = {step.lengths: step.computed[kind] for step in one.steps if kind in step.computed}
        measured = {step.lengths: step.measured[kind] for step in one.steps if kind in step.measured}
        if computed:
            x, y = list(computed), list(computed.values())
            traces.append(line(x, y, ink, 2, style={"dash": dash}, name=f"{name}, computed"))
        traces.append(
            go.Scatter(
                x=list(measured),
                y=list(measured.values()),
                mode="markers" if computed else "lines+markers",
                marker={"symbol": symbol, "size": 9, "color": ink},
                line={"color": ink, "width": 1, "dash": dash},
                name=f"{name}, measured",
                hovertext=[
                    f"<b>{name}</b><br>{lengths} lengths: {words.size(size)} ({size:,.0f} bytes)<br>"
                    f"{percent_of(size, one.row.weights_bytes)}"
                    for lengths, size in measured.items()
                ],
                hoverinfo="text",
            )
        )
    labels = {step.lengths: str(step.lengths) for step in steps}
    name = f"{HELD[kind]} ({unit})" if len(HELD[kind]) < 24 else unit
    grid: Layout = {"gridcolor": colours.rule}
    return figure(
        traces,
        height=360 + 20 * len(sweeps),
        margin=(8, 8, 8, 8),
        xaxis=axis("different prompt lengths served (log)", type="log", ticks_at=labels, **grid),
        yaxis=axis(name, range=[0, 1.08 * most], ticks_at=_byte_ticks(0.0, most, divisor), **grid),
        legend={**ABOVE, "y": -0.2, "yanchor": "top"},
    )


def _byte_ticks(low: float, high: float, divisor: float) -> dict[float, str]:
    """Round ticks in the unit of `divisor`."""
    ticks = linear_ticks(low / divisor, high / divisor)
    return {min(max(divisor * tick, low), high): text for tick, text in ticks.items()}
