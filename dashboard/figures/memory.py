"""Memory of a few variants as bars, time against memory, and what caching policies hold as more lengths are served."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle

import plotly.graph_objects as go

from llama_workbench.harness.profilers.peak_memory import Memory

from .. import words
from ..views.forest import linear_ticks
from ..views.memory import BEATEN, FRONT, HELD, OPEN, RANKS, Policy, Spot, percent_of
from .colours import LIGHT, Palette
from .drawing import ABOVE, SMALL, Layout, Mark, axis, bar_rows, figure, line, log_span, mark, marks, ratio_axis

SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "pentagon", "hexagon")
STANDING = {FRONT: ("blue", "circle"), BEATEN: ("gray", "x-thin"), OPEN: ("gray", "circle-open")}
"""Colour and marker of each rank."""

PLOT_PX, PHONE_PX = 350, 280  # the height of a plot, and its width on a phone
LABEL_PX, LINE_PX = 16, 15  # how far right of its dot a number stands, and how high it is
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def memory(rows: Sequence[Memory], field: str, title: str, baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """Bars of one amount (a field of the rows) from 0, one per variant with its name and amount above it. title: what
    the amount is called."""
    amounts: list[float | None] = [getattr(row, field) for row in rows]
    largest = max((amount or 0.0 for amount in amounts), default=0.0)
    divisor, unit = words.byte_unit(largest)
    hovers = []
    for row, amount in zip(rows, amounts, strict=True):
        exact = f" ({amount:,.0f} bytes)" if amount is not None else f"<br>{words.label(row.reason or '', 90)}"
        hovers.append(f"<b>{words.label(row.variant)}</b><br>{title}: {words.size(amount)}{exact}")
    ticks = {place: f"{text} {unit}" if place else "0" for place, text in _byte_ticks(0.0, largest, divisor).items()}
    bar: Layout = {
        "x": [amount or 0 for amount in amounts],
        "marker": {"color": [colours.sides[row.variant != baseline] for row in rows]},
        "hovertext": hovers,
    }
    return bar_rows(
        [(words.label(row.variant, 30), words.size(amount)) for row, amount in zip(rows, amounts, strict=True)],
        [bar],
        colours,
        row_px=40,
        bar_px=12,
        foot_px=30,
        right_px=24,
        quiet=False,
        xaxis=axis(range=[0, largest or 1], ticks_at=ticks, gridcolor=colours.rule),
    )


def memory_text(rows: Sequence[Memory], field: str) -> str:
    """The bars in words."""
    return ", ".join(f"{row.variant} {words.size(getattr(row, field))}" for row in rows) + "."


def tradeoff(spots: Sequence[Spot], title: str, baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """One numbered dot a variant where it was measured: bytes to the right, speed-up upwards; steps join the front."""
    amounts = [spot.amount for spot in spots]
    divisor, unit = words.byte_unit(max(amounts))
    spread = max(amounts) - min(amounts)
    air = 0.12 * spread or 0.1 * max(amounts) or 1.0
    left, right = max(min(amounts) - air, -air), max(amounts) + air
    timings = [spot.timing for spot in spots]
    bottom, top = log_span([math.log(end) for t in timings for end in (t.lower, t.value, t.upper) if end], 0.08, 0.01)
    dots: dict[str, list[Mark]] = {rank: [] for rank in RANKS}
    for number, spot in enumerate(spots, 1):
        ends = spot.timing.lower or bottom, spot.timing.upper or top
        hover = _spot_text(number, spot, baseline)
        dots[spot.standing].append((spot.amount, spot.timing.value or 1.0, *ends, hover))
    traces = []
    if len(dots[FRONT]) > 1:
        x, y = zip(*sorted(dot[:2] for dot in dots[FRONT]), strict=True)
        traces.append(line(x, y, colours.muted, style={"dash": "dot", "shape": "hv"}, name="front"))
    for rank, (ink, symbol) in STANDING.items():
        if dots[rank]:
            dot = mark(symbol, colours.verdict[ink], 9)
            traces.append(marks(dots[rank], colour=dot["color"], name=rank, thickness=1.5, cap=5, marker=dot))
    ticks = _byte_ticks(max(left, 0.0), right, divisor)
    name = f"speed-up over {words.label(baseline, 24)} (log)"
    shares = [
        ((spot.amount - left) / (right - left), math.log((spot.timing.value or 1.0) / bottom) / math.log(top / bottom))
        for spot in spots
    ]
    return figure(
        traces,
        colours,
        height=PLOT_PX + 90,
        margin=(8, 8, 34, 8),
        annotations=[
            _number(number, spot, lift, colours)
            for number, (spot, lift) in enumerate(zip(spots, lifts(shares), strict=True), 1)
        ],
        xaxis=axis(f"{words.label(title, 60)} ({unit})", range=[left, right], ticks_at=ticks, gridcolor=colours.rule),
        yaxis=ratio_axis(bottom, top, name, gridcolor=colours.rule),
        legend=ABOVE,
    )


def _number(number: int, spot: Spot, lift: float, colours: Palette) -> Layout:
    """The number of a spot at its right, with a line to its dot."""
    return {
        "x": spot.amount,
        "y": math.log10(spot.timing.value or 1.0),  # on a logarithmic axis
        "text": str(number),
        "ax": LABEL_PX,
        "ay": -lift,
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": colours.muted,
        "standoff": 6,
        "xanchor": "left",
        "font": {"size": SMALL, "color": colours.text},
    }


def lifts(dots: Sequence[tuple[float, float]]) -> list[float]:
    """How many pixels above its dot each label stands, so that none covers another label or dot.

    `dots`: shares of the width and of PLOT_PX. Labels move up and down alone, and dots closer than a label on a phone
    count as one above the other: a wider page only draws them apart.
    """
    placed: list[tuple[float, float]] = []
    free = [step * side for step in range(2 * len(dots) + 2) for side in ((LINE_PX, -LINE_PX) if step else (0.0,))]
    heights = [0.0] * len(dots)
    for index in sorted(range(len(dots)), key=lambda number: (-dots[number][1], dots[number][0])):
        x, y = dots[index][0] * PHONE_PX, dots[index][1] * PLOT_PX
        taken = [height for place, height in placed if abs(place - x) < 2 * LABEL_PX]
        taken += [PLOT_PX * up for left, up in dots if 0 < PHONE_PX * left - x < 2 * LABEL_PX]
        heights[index] = next(
            (lift for lift in free if all(abs(y + lift - height) >= LINE_PX for height in taken)), free[-1]
        )
        placed.append((x, y + heights[index]))
    return heights


def tradeoff_text(spots: Sequence[Spot], title: str, baseline: str) -> str:
    """The dots in words."""
    parts = [
        f"{number} {spot.variant}: {words.effect(spot.timing)}, {words.size(spot.amount)}, {spot.rank}"
        for number, spot in enumerate(spots, 1)
    ]
    return f"Speed-up over {baseline} against {title.lower()}. {'; '.join(parts)}."


def _spot_text(number: int, spot: Spot, baseline: str) -> str:
    speed = "the baseline" if spot.variant == baseline else words.effect(spot.timing)
    return (
        f"<b>{number} {words.label(spot.variant, 50)}</b><br>{words.label(speed)}<br>{words.size(spot.amount)}<br>"
        f"{words.label(spot.rank, 70)}"
    )


def policies(sweeps: Sequence[Policy], kind: str, colours: Palette = LIGHT) -> go.Figure:
    """Bytes of one kind (a key of HELD) over the number of lengths: dots measured, lines computed from the policy."""
    steps = [step for sweep in sweeps for step in sweep.steps]
    most = max(
        [size for step in steps for size in (step.measured.get(kind), step.computed.get(kind)) if size], default=1.0
    )
    divisor, unit = words.byte_unit(most)
    traces = []
    inks = cycle(reversed(list(colours.verdict.values())))
    for sweep, ink, symbol, dash in zip(sweeps, inks, cycle(SYMBOLS), cycle(DASHES), strict=False):
        name = words.label(sweep.row.variant, 40)
        computed = {step.lengths: step.computed[kind] for step in sweep.steps if kind in step.computed}
        measured = {step.lengths: step.measured[kind] for step in sweep.steps if kind in step.measured}
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
                    f"{percent_of(size, sweep.row.weights_bytes)} of the weights"
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
        colours,
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
