"""What a machine made of identical code, and of the same code over the time of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from llama_workbench.dashboard import words
from llama_workbench.dashboard.views.noise import Control, smallest

from .colours import LIGHT, Palette
from .drawing import SMALL, Layout, box, legend, note, ratio_ticks

ROW_PX = 38  # a line of text and a track
TRACK_PX = 16
FOOT_PX = 58
LEGEND_PX = 30

KINDS = {"aa": ("entered twice", "circle"), "copy": ("identical copy", "diamond")}

MOST_POINTS = 3000
BIN, MOST_BINS = 10, 100  # rounds in a point of the line, at least; points


def controls_forest(controls: Sequence[Control], colours: Palette = LIGHT) -> go.Figure:
    """One row a workload: its controls' ratios with their intervals around 1. What fired is red and says so.

    Controls without an interval are not drawn. The x axis is logarithmic.
    """
    known = [one for one in controls if one.smallest is not None]
    sizes = smallest(known)
    workloads = list(sizes)
    height = ROW_PX * max(1, len(workloads))
    ends = [end for one in known for end in (one.low, one.high, one.ratio) if end is not None]
    reach = max([0.01, *(abs(math.log(end)) for end in ends)]) * 1.06
    left, right = math.exp(-reach), math.exp(reach)
    tracks = {workload: height - ROW_PX * place - 28 for place, workload in enumerate(workloads)}
    several = len(known) > len(workloads)
    rows = [(tracks[one.workload] + several * (4 if one.kind == "aa" else -4), one) for one in known]
    ink, quiet = (colours.text, colours.page), (colours.muted, colours.page)
    shapes: list[Layout] = []
    notes: list[Layout] = []
    fired_on = {one.workload for one in known if one.fired}
    for workload, y in tracks.items():
        shapes.append(box(y, left, right, TRACK_PX / 2, colours.track))
        alarm = " <b>fired</b>" if workload in fired_on else ""
        notes.append(note(0, y + 17, f"{words.label(workload, 28)}{alarm}", "left", ink))
        notes.append(note(1, y + 17, f"±{100 * (sizes[workload] or 0):.2g} %", "right", quiet))
    traces = []
    for kind, (name, symbol) in KINDS.items():
        for fired in (False, True):
            found = [(y, one) for y, one in rows if one.kind == kind and one.fired == fired]
            if not found:
                continue
            values = [one.ratio if one.ratio is not None else 1.0 for _, one in found]
            colour = colours.verdict["red" if fired else "blue" if kind == "aa" else "gray"]
            traces.append(
                go.Scatter(
                    name=f"{name}{', fired' if fired else ''}",
                    x=values,
                    y=[y for y, _ in found],
                    mode="markers",
                    marker={"symbol": symbol, "size": 8, "color": colour},
                    error_x={
                        "type": "data",
                        "symmetric": False,
                        "array": [(one.high or 1) - value for value, (_, one) in zip(values, found, strict=True)],
                        "arrayminus": [value - (one.low or 1) for value, (_, one) in zip(values, found, strict=True)],
                        "color": colour,
                        "thickness": 2,
                        "width": 3,
                    },
                    hovertext=[_hover(one) for _, one in found],
                    hoverinfo="text",
                )
            )
    ticks = ratio_ticks(left, right)
    return go.Figure(
        data=traces,
        layout={
            "shapes": [
                *shapes,
                {
                    "type": "line",
                    "x0": 1,
                    "x1": 1,
                    "y0": 0,
                    "y1": height,
                    "line": {"color": colours.muted, "width": 1},
                    "layer": "below",
                },
            ],
            "annotations": notes,
            "xaxis": {
                "type": "log",
                "range": [math.log10(left), math.log10(right)],
                "tickvals": list(ticks),
                "ticktext": list(ticks.values()),
                "title": {"text": "time of the original / time of its twin [×]", "font": {"size": SMALL}},
                "gridcolor": colours.rule,
                "fixedrange": True,
            },
            "yaxis": {"range": [0, height], "visible": False, "fixedrange": True},
            "height": height + FOOT_PX + LEGEND_PX,
            "margin": {"l": 5, "r": 20, "t": LEGEND_PX, "b": FOOT_PX},
            "legend": legend(colours.text),
            "showlegend": True,
            "dragmode": False,
        },
    )


def _hover(one: Control) -> str:
    name = KINDS.get(one.kind, (one.kind, ""))[0]
    ratio = "" if one.ratio is None else f"{one.ratio:.4f}× "
    return (
        f"<b>{words.label(one.workload)}</b><br>{words.label(one.variant)} ({words.label(name)})<br>"
        f"{ratio}[{one.low:.4f}, {one.high:.4f}], {one.rounds} rounds"
    )


def controls_text(controls: Sequence[Control]) -> str:
    """The forest in words: the widest five, and what fired."""
    known = [one for one in controls if one.smallest is not None]
    fired = [one.workload for one in known if one.fired]
    widest = ", ".join(f"{one.workload} ±{100 * (one.smallest or 0):.2g} %" for one in known[:5])
    return (
        f"{len(controls)} controls of identical code, {len(controls) - len(known)} with too few rounds for an "
        f"interval. {'Fired: ' + words.listing(fired) if fired else 'None fired'}. Widest: {widest or 'none'}."
    )


def drift(frame: pd.DataFrame, colours: Palette = LIGHT) -> go.Figure:
    """Rounds over the time of the run (columns as `dashboard.noise.drift` gives them), with the middle as a line."""
    frame = frame.assign(order=range(1, len(frame) + 1))
    shown = frame if len(frame) <= MOST_POINTS else frame.iloc[:: math.ceil(len(frame) / MOST_POINTS)]
    bins = np.arange(len(frame)) // max(BIN, math.ceil(len(frame) / MOST_BINS))
    middle = frame.groupby(bins)[["order", "relative"]].median()
    percent = 100 * (shown["relative"].to_numpy(np.float64) - 1)
    return go.Figure(
        data=[
            go.Scatter(
                name="a round",
                x=shown["order"],
                y=percent,
                mode="markers",
                marker={"size": 4, "color": colours.sides[0], "opacity": 0.55},
                hovertext=[
                    f"<b>{words.label(workload)}</b><br>{words.label(variant)}"
                    f"<br>{value:+.1f} %, after {second:.0f} s of samples"
                    for workload, variant, second, value in zip(
                        shown["workload"], shown["variant"], shown["seconds"], percent, strict=True
                    )
                ],
                hoverinfo="text",
            ),
            go.Scatter(
                name="median of neighbouring rounds",
                x=middle["order"],
                y=100 * (middle["relative"] - 1),
                mode="lines",
                line={"color": colours.sides[1], "width": 2},
                hoverinfo="skip",
            ),
        ],
        layout={
            "xaxis": {
                "title": {"text": "rounds, in the order they were taken", "font": {"size": SMALL}},
                "gridcolor": colours.rule,
                "rangemode": "tozero",
                "zeroline": False,
                "fixedrange": True,
            },
            "yaxis": {
                "title": {"text": "time of a call over its median [%]", "font": {"size": SMALL}},
                "gridcolor": colours.rule,
                "zerolinecolor": colours.muted,
                "tickformat": "+.0f",
                "fixedrange": True,
            },
            "height": 320,
            "margin": {"l": 5, "r": 12, "t": 30, "b": 46},
            "legend": legend(colours.text),
            "dragmode": False,
        },
    )


def drift_text(frame: pd.DataFrame) -> str:
    """The rounds in words."""
    if frame.empty:
        return "No rounds."
    low, high = (100 * (end - 1) for end in frame["relative"].quantile([0.05, 0.95]))
    worst = frame.sort_values("relative").iloc[-1]
    return (
        f"{len(frame)} rounds of the same code: nine in ten lie between {low:+.1f} % and {high:+.1f} % of their "
        f"workload's median; the slowest is {100 * (worst['relative'] - 1):+.0f} % on {worst['workload']}."
    )
