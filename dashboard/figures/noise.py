"""What a machine made of the same code over the time of a run."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from .. import words
from .colours import LIGHT, Palette
from .drawing import Layout, axis, figure, legend, line

MOST_POINTS = 3000
BIN, MOST_BINS = 10, 100  # rounds in a point of the line, at least; points


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
