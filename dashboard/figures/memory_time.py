"""Time against memory, and what caching policies hold as more lengths are served."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from llama_workbench.dashboard import words
from llama_workbench.dashboard.views.memory import FRONT, HELD, Policy, Spot

from .colours import LIGHT, Palette
from .drawing import SMALL, Layout, byte_unit, ratio_ticks

SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "pentagon", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def tradeoff(spots: Sequence[Spot], title: str, baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """One numbered dot a variant (its place in `spots`, from 1): bytes to the right, speed-up upwards.

    Filled and joined by steps: the front. Numbers instead of names, because names of dots side by side overlap.
    """
    amounts = [spot.amount for spot in spots]
    divisor, unit = byte_unit(max(amounts))
    spread = max(amounts) - min(amounts)
    air = 0.12 * spread or 0.1 * max(amounts) or 1.0
    left, right = max(min(amounts) - air, -air), max(amounts) + air
    places = side_by_side(spots, right - left)
    ends = [(spot.timing.low, spot.timing.ratio, spot.timing.high) for spot in spots]
    logs = [math.log(end) for three in ends for end in three if end]
    room = max(0.08 * (max(logs) - min(logs)), 0.01)
    bottom, top = math.exp(min(logs) - room), math.exp(max(logs) + room)
    traces = []
    front = sorted(
        ((x, spot.timing.ratio) for x, spot in zip(places, spots, strict=True) if spot.standing == FRONT),
        key=lambda dot: dot[0],
    )
    if len(front) > 1:
        traces.append(
            go.Scatter(
                x=[x for x, _ in front],
                y=[ratio for _, ratio in front],
                mode="lines",
                line={"color": colours.muted, "width": 1, "dash": "dot", "shape": "hv"},
                name="front",
                hoverinfo="skip",
            )
        )
    for on_front, name in ((True, "on the front"), (False, "behind the front")):
        chosen = [(number, spot) for number, spot in enumerate(spots, 1) if (spot.standing == FRONT) is on_front]
        if not chosen:
            continue
        colour = colours.verdict["blue" if on_front else "gray"]
        middles = [spot.timing.ratio or 1.0 for _, spot in chosen]
        traces.append(
            go.Scatter(
                x=[places[number - 1] for number, _ in chosen],
                y=middles,
                mode="markers+text",
                text=[str(number) for number, _ in chosen],
                textfont={"size": SMALL, "color": colours.page if on_front else colours.text},
                marker={
                    "size": 20,
                    "color": colour if on_front else colours.page,
                    "line": {"width": 2, "color": colour},
                },
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [(s.timing.high or top) - y for (_, s), y in zip(chosen, middles, strict=True)],
                    "arrayminus": [y - (s.timing.low or bottom) for (_, s), y in zip(chosen, middles, strict=True)],
                    "color": colour,
                    "thickness": 1.5,
                    "width": 5,
                },
                name=name,
                hovertext=[_spot_text(number, spot, baseline) for number, spot in chosen],
                hoverinfo="text",
            )
        )
    ticks = ratio_ticks(bottom, top)
    return go.Figure(
        data=traces,
        layout={
            "xaxis": {
                "range": [left, right],
                "title": {"text": f"{words.label(title, 60)} ({unit})", "font": {"size": SMALL}},
                **_byte_ticks(max(left, 0.0), right, divisor),
                "gridcolor": colours.rule,
                "zeroline": False,
                "fixedrange": True,
            },
            "yaxis": {
                "type": "log",
                "range": [math.log10(bottom), math.log10(top)],
                "tickvals": list(ticks),
                "ticktext": list(ticks.values()),
                "title": {"text": f"speed-up over {words.label(baseline, 24)} (log)", "font": {"size": SMALL}},
                "gridcolor": colours.rule,
                "zeroline": False,
                "fixedrange": True,
            },
            "height": 440,
            "margin": {"l": 8, "r": 8, "t": 34, "b": 8},
            "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": SMALL}},
            "hovermode": "closest",
            "dragmode": False,
        },
    )


def side_by_side(spots: Sequence[Spot], width: float) -> list[float]:
    """Where each dot stands on an axis of `width` bytes: at its amount, but beside those it would cover."""
    order = sorted(range(len(spots)), key=lambda place: spots[place].amount)
    groups: list[list[int]] = []
    for place in order:
        if groups and spots[place].amount - spots[groups[-1][-1]].amount < 0.03 * width:
            groups[-1].append(place)
        else:
            groups.append([place])
    found = [spot.amount for spot in spots]
    for group in groups:
        middle = sum(spots[place].amount for place in group) / len(group)
        step = min(0.045, 0.6 / len(group)) * width
        if len(group) > 1:
            for index, place in enumerate(sorted(group)):
                found[place] = middle + (index - (len(group) - 1) / 2) * step
    return found


def tradeoff_text(spots: Sequence[Spot], title: str, baseline: str) -> str:
    """The dots in words."""
    parts = [
        f"{number} {spot.variant}: {words.effect(spot.timing.ratio, spot.timing.low, spot.timing.high)}, "
        f"{words.size(spot.amount)}, {spot.standing}"
        for number, spot in enumerate(spots, 1)
    ]
    return f"Speed-up over {baseline} against {title.lower()}. {'; '.join(parts)}."


def _spot_text(number: int, spot: Spot, baseline: str) -> str:
    timing = spot.timing
    speed = "the baseline" if spot.variant == baseline else words.effect(timing.ratio, timing.low, timing.high)
    return (
        f"<b>{number} {words.label(spot.variant, 50)}</b><br>{words.label(speed)}<br>{words.size(spot.amount)}<br>"
        f"{words.label(spot.standing, 70)}"
    )


def policies(sweeps: Sequence[Policy], kind: str, colours: Palette = LIGHT) -> go.Figure:
    """Bytes of one kind (a key of HELD) over the number of lengths: dots measured, lines computed from the policy."""
    amounts = [
        size
        for one in sweeps
        for step in one.steps
        for size in (step.measured.get(kind), step.computed.get(kind))
        if size
    ]
    divisor, unit = byte_unit(max(amounts, default=0.0))
    inks = list(colours.verdict.values())
    traces = []
    counts = sorted({step.lengths for one in sweeps for step in one.steps})
    for place, one in enumerate(sweeps):
        ink, name = inks[(place * 5 + 5) % len(inks)], words.label(one.variant, 40)
        computed = [step for step in one.steps if kind in step.computed]
        measured = [step for step in one.steps if kind in step.measured]
        if computed:
            traces.append(
                go.Scatter(
                    x=[step.lengths for step in computed],
                    y=[step.computed[kind] for step in computed],
                    mode="lines",
                    line={"color": ink, "width": 2, "dash": DASHES[place % len(DASHES)]},
                    name=f"{name}, computed",
                    hoverinfo="skip",
                )
            )
        traces.append(
            go.Scatter(
                x=[step.lengths for step in measured],
                y=[step.measured[kind] for step in measured],
                mode="markers" if computed else "lines+markers",
                marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 9, "color": ink},
                line={"color": ink, "width": 1, "dash": DASHES[place % len(DASHES)]},
                name=f"{name}, measured",
                hovertext=[
                    f"<b>{name}</b><br>{step.lengths} lengths: {words.size(step.measured[kind])}"
                    f" ({step.measured[kind]:,.0f} bytes)<br>{percent_of(step.measured[kind], one.weights_bytes)}"
                    for step in measured
                ],
                hoverinfo="text",
            )
        )
    return go.Figure(
        data=traces,
        layout={
            "xaxis": {
                "type": "log",
                "tickvals": counts,
                "ticktext": [str(count) for count in counts],
                "title": {"text": "different prompt lengths served (log)", "font": {"size": SMALL}},
                "gridcolor": colours.rule,
                "fixedrange": True,
            },
            "yaxis": {
                "range": [0, 1.08 * max(amounts, default=1.0)],
                "title": {"text": f"{HELD[kind]} ({unit})" if len(HELD[kind]) < 24 else unit, "font": {"size": SMALL}},
                **_byte_ticks(0.0, max(amounts, default=1.0), divisor),
                "gridcolor": colours.rule,
                "zeroline": False,
                "fixedrange": True,
            },
            "height": 360 + 20 * len(sweeps),
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "legend": {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": SMALL}},
            "hovermode": "closest",
            "dragmode": False,
        },
    )


def policies_text(sweeps: Sequence[Policy], kind: str) -> str:
    """First and last step of every sweep in words."""
    parts = []
    for one in sweeps:
        steps = [step for step in one.steps if kind in step.measured]
        if steps:
            first, last = steps[0], steps[-1]
            parts.append(
                f"{one.variant} {words.size(first.measured[kind])} after {first.lengths} and "
                f"{words.size(last.measured[kind])} after {last.lengths} lengths"
            )
    return f"{HELD[kind]} held: {'; '.join(parts) or 'nothing measured'}."


def percent_of(size: float | None, weights: float | None) -> str:
    """How much of the weights' bytes."""
    return "–" if size is None or not weights else f"{100 * size / weights:.3g} % of the weights"


def _byte_ticks(low: float, high: float, divisor: float) -> Layout:
    """About five round ticks in the unit of `divisor`."""
    width = (high - low) / divisor or 1.0
    power = 10.0 ** math.floor(math.log10(width))
    step = next(digit * power for digit in (0.1, 0.2, 0.5, 1, 2, 5) if width / (digit * power) <= 6)
    first, last = math.ceil(low / divisor / step), math.floor(high / divisor / step)
    ticks = [round(step * k, 9) for k in range(first, last + 1)]
    return {"tickvals": [tick * divisor for tick in ticks], "ticktext": [f"{tick:,.6g}" for tick in ticks]}
