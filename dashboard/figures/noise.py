"""What a machine made of the same code: over the time of a run, and in each pair of identical sides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from llama_workbench.harness.store.schema import Control

from .. import words
from ..views.noise import smallest, smallest_by_workload
from .colours import LIGHT, Palette
from .drawing import Layout, axis, box, figure, legend, line, marks, ratio_axis, row_notes, rows_axis, rule

MOST_POINTS = 3000
BIN, MOST_BINS = 10, 100  # rounds in a point of the line, at least; points

ROW_PX = 38  # a line of text and a track
TRACK_PX = 16
FOOT_PX = 58
LEGEND_PX = 30
KINDS = {"aa": ("entered twice", "circle"), "copy": ("identical copy", "diamond")}


def drift(frame: pd.DataFrame, colours: Palette = LIGHT) -> go.Figure:
    """Rounds over the time of the run (columns as `views.noise.drift` gives them), with the middle as a line."""
    frame = frame.assign(order=range(1, len(frame) + 1))
    shown = frame if len(frame) <= MOST_POINTS else frame.iloc[:: math.ceil(len(frame) / MOST_POINTS)]
    bins = np.arange(len(frame)) // max(BIN, math.ceil(len(frame) / MOST_BINS))
    middle = frame.groupby(bins)[["order", "relative"]].median()
    percent = 100 * (shown["relative"].to_numpy(np.float64) - 1)
    columns = zip(shown["workload"], shown["variant"], shown["seconds"], percent, strict=True)
    rounds = go.Scatter(
        name="a round",
        x=shown["order"],
        y=percent,
        mode="markers",
        marker={"size": 4, "color": colours.sides[0], "opacity": 0.55},
        hovertext=[
            f"<b>{words.label(workload)}</b><br>{words.label(variant)}"
            f"<br>{value:+.1f} %, after {second:.0f} s of samples"
            for workload, variant, second, value in columns
        ],
        hoverinfo="text",
    )
    heights = 100 * (middle["relative"] - 1)
    median = line(middle["order"], heights, colours.sides[1], 2, name="median of neighbouring rounds")
    grid: Layout = {"gridcolor": colours.rule}
    zero: Layout = {"zeroline": True, "zerolinecolor": colours.muted}
    return figure(
        [rounds, median],
        height=320,
        margin=(5, 12, 30, 46),
        xaxis=axis("rounds, in the order they were taken", rangemode="tozero", **grid),
        yaxis=axis("time of a call over its median [%]", tickformat="+.0f", **zero, **grid),
        legend=legend(colours.text),
    )


def drift_text(frame: pd.DataFrame) -> str:
    """The rounds in words."""
    low, high = (100 * (end - 1) for end in frame["relative"].quantile([0.05, 0.95]))
    worst = frame.sort_values("relative").iloc[-1]
    return (
        f"{len(frame)} rounds of the same code: nine in ten lie between {low:+.1f} % and {high:+.1f} % of their "
        f"workload's median; the slowest is {100 * (worst['relative'] - 1):+.0f} % on {worst['workload']}."
    )


def controls_forest(controls: Sequence[Control], colours: Palette = LIGHT) -> go.Figure:
    """One row a workload: its bounded controls around 1, log axis. What fired is red and says so."""
    known = [one for one in controls if math.isfinite(smallest(one))]
    sizes = smallest_by_workload(known)
    height = ROW_PX * max(1, len(sizes))
    reach = max([0.01, *(one.shift for one in known)]) * 1.06
    left, right = math.exp(-reach), math.exp(reach)
    tracks = {workload: height - ROW_PX * place - 28 for place, workload in enumerate(sizes)}
    several = len(known) > len(sizes)
    rows = [(tracks[one.workload] + several * (4 if one.kind == "aa" else -4), one) for one in known]
    shapes, notes = list[Layout](), list[Layout]()
    fired_on = {one.workload for one in known if one.fired}
    for workload, y in tracks.items():
        shapes.append(box(y, left, right, TRACK_PX / 2, colours.track))
        alarm = " <b>fired</b>" if workload in fired_on else ""
        name, size = f"{words.label(workload, 28)}{alarm}", f"±{100 * sizes[workload]:.2g} %"
        notes += row_notes(y + 17, name, size, colours, quiet=True)
    kinds = product(KINDS, (False, True))
    groups = [[(y, one) for y, one in rows if (one.kind, one.fired) == kind] for kind in kinds]
    return figure(
        [_control_marks(group, colours) for group in groups if group],
        height=height + FOOT_PX + LEGEND_PX,
        margin=(5, 20, LEGEND_PX, FOOT_PX),
        shapes=[*shapes, rule(1, 1, 0, height, colours.muted)],
        annotations=notes,
        xaxis=ratio_axis(left, right, "time of the original / time of its twin [×]", gridcolor=colours.rule),
        yaxis=rows_axis(height),
        legend=legend(colours.text),
        showlegend=True,
    )


def _control_marks(rows: Sequence[tuple[float, Control]], colours: Palette) -> go.Scatter:
    """Controls of one kind that all fired, or none."""
    _, first = rows[0]
    name, symbol = KINDS[first.kind]
    colour = colours.verdict["red" if first.fired else "blue" if first.kind == "aa" else "gray"]
    points = []
    for y, one in rows:
        ratio, low, high = map(math.exp, (one.centre, one.low, one.high))
        hover = f"<b>{words.label(one.workload)}</b><br>{words.label(one.variant)} ({name})<br>"
        points.append((y, ratio, low, high, f"{hover}{ratio:.4f}× [{low:.4f}, {high:.4f}], {one.rounds} rounds"))
    return marks(
        points,
        across=True,
        colour=colour,
        name=f"{name}{', fired' if first.fired else ''}",
        cap=3,
        marker={"symbol": symbol, "size": 8, "color": colour},
    )


def controls_text(controls: Sequence[Control]) -> str:
    """The forest in words: the widest five, and what fired."""
    known = [one for one in controls if math.isfinite(smallest(one))]
    fired = [one.workload for one in known if one.fired]
    widest = ", ".join(f"{one.workload} ±{100 * smallest(one):.2g} %" for one in known[:5])
    return (
        f"{len(controls)} controls of identical code, {len(controls) - len(known)} with too few rounds for an "
        f"interval. {'Fired: ' + words.listing(fired) if fired else 'None fired'}. Widest: {widest or 'none'}."
    )
