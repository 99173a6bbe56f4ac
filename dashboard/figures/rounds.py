"""Process by process: the ratios of one comparison with the closing interval; the same code over a whole run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from llama_workbench.harness.report.text import call_time, unit_of
from llama_workbench.harness.spec.words import Word

from .. import words
from ..views.samples import Paired
from .colours import LIGHT, Palette
from .drawing import ABOVE, SMALL, Layout, area, axis, figure, line, log_span, mark, marks, note, ratio_axis, rule


def paired_rounds(
    paired: Paired,
    *,
    look: words.Appearance = Word.NOT_ASKED.look,
    claimed: str = "",
    low: float | None = None,
    high: float | None = None,
    colours: Palette = LIGHT,
) -> go.Figure:
    """A dot a process, the interval as it closed in, and where it ended. Raises ValueError without processes.

    look: of the verdict. `low` to `high`: the claimed region of ratios, if any. Far from all processes, an arrow says
    so instead.
    """
    if not len(paired.ratios):
        raise ValueError("no processes to draw")
    count = len(paired.ratios)
    bottom, top, beyond = _span(paired, low, high)
    end = count + max(1.0, 0.04 * count)
    traces = _closing(paired, colours)
    traces.append(
        go.Scatter(
            x=np.arange(1, count + 1),
            y=paired.ratios,
            mode="markers",
            marker={"size": 5, "color": colours.sides[1], "opacity": 0.6},
            name="one process",
            hovertext=[f"process {k}: {ratio:.4f}×" for k, ratio in enumerate(paired.ratios, 1)],
            hoverinfo="text",
        )
    )
    if (settled := paired.effect).value is not None:
        colour, ends = colours.verdict[look.colour], (settled.lower or bottom, settled.upper or top)
        traces.append(
            marks(
                [(end, settled.value, *ends, words.label(words.effect(settled)))],
                colour=colour,
                name=f"after {count} processes",
                thickness=2.5,
                marker=mark(look.symbol, colour, 10),
                showlegend=False,
            )
        )
    quiet: Layout = {"showgrid": False, "ticks": "outside", "nticks": 7}
    return figure(
        traces,
        colours,
        height=360,
        margin=(8, 8, 8, 8),
        shapes=_shapes(paired, claimed, (None, None) if beyond else (low, high), (bottom, top), colours),
        annotations=[_arrow(beyond, claimed, colours)] if beyond else [],
        xaxis=axis("process, in the order of measuring", SMALL + 1, range=[0.5, end + max(0.7, 0.02 * count)], **quiet),
        yaxis=ratio_axis(bottom, top, "speed-up over the baseline (log scale)", SMALL + 1, gridcolor=colours.rule),
        legend={**ABOVE, "y": 1.02},
    )


def distributions(times_ns: Mapping[str, NDArray[np.float64]], colours: Palette) -> go.Figure:
    """Both sides below each other on one axis: a dot a process, their quartiles and their median."""
    unit_ns, unit = unit_of(max(float(np.median(times)) for times in times_ns.values()))
    boxes = [
        go.Box(
            x=times / unit_ns,
            name=words.label(side, 40),
            orientation="h",
            boxpoints="all",
            jitter=0.6,
            pointpos=0,
            marker={"size": 4, "color": ink, "opacity": 0.6},
            line={"width": 1.5, "color": ink},
            fillcolor="rgba(0,0,0,0)",
            hoverinfo="x",
        )
        for (side, times), ink in zip(times_ns.items(), colours.sides, strict=True)
    ]
    return figure(
        boxes,
        colours,
        height=190,
        margin=(8, 8, 4, 8),
        xaxis=axis(f"time of a call [{unit}]", rangemode="tozero", gridcolor=colours.rule),
        yaxis={"autorange": "reversed", "automargin": True, "fixedrange": True},
        showlegend=False,
    )


def distributions_text(times_ns: Mapping[str, NDArray[np.float64]]) -> str:
    """The same in words."""
    parts = [
        f"{side} {call_time(middle)} in the middle of {len(times)} processes, half of them from {call_time(low)} to "
        f"{call_time(high)}"
        for side, times in times_ns.items()
        for low, middle, high in [np.quantile(times, [0.25, 0.5, 0.75]).tolist()]
    ]
    return f"Times of a call by process: {'; '.join(parts)}."


def _shapes(
    paired: Paired, claimed: str, region: tuple[float | None, float | None], ends: tuple[float, float], colours: Palette
) -> list[Layout]:
    """The line at 1, the median of the processes, and the claimed region within the picture's ends."""
    (low, high), (bottom, top) = region, ends
    across: Layout = {"x0": 0, "x1": 1, "xref": "paper"}
    middle = float(np.median(paired.ratios))
    median = rule(y0=middle, y1=middle, colour=colours.sides[1], dash="dash", **across)
    median |= {"name": "median of the processes", "showlegend": True}
    median["line"]["width"] = 1.5
    shapes = [rule(y0=1, y1=1, colour=colours.muted, **across), median]
    if low is not None or high is not None:
        inside = max(low or 0, bottom), min(high or math.inf, top)
        named: Layout = {"xref": "paper", "name": words.label(claimed, 40), "showlegend": True}
        shapes.append(area(0, 1, *inside, colours.region, **named))
        edges = [edge for edge in (low, high) if edge and bottom < edge < top]
        shapes += [rule(y0=edge, y1=edge, colour=colours.region_edge, dash="dot", **across) for edge in edges]
    return shapes


def _closing(paired: Paired, colours: Palette) -> list[go.Scatter]:
    """The interval so far as a band, and the estimate in it; nothing while there are too few processes."""
    known = np.isfinite(paired.highs) & (paired.lows > 0) & (paired.lows <= paired.highs)
    if not known.any():
        return []
    x = np.arange(1, len(paired.ratios) + 1)[known]
    edge: Layout = {"colour": colours.band, "width": 0, "style": {"shape": "hv"}}
    filled: Layout = {"fill": "tonexty", "fillcolor": colours.band, "name": "interval so far"}
    return [
        line(x, paired.highs[known], showlegend=False, **edge),
        line(x, paired.lows[known], **filled, **edge),
        line(x, paired.estimates[known], colours.text, 1.5, name="estimate so far", showlegend=False),
    ]


def in_words(paired: Paired) -> str:
    """The picture in a sentence, for those who do not see it."""
    least, middle, most = np.quantile(paired.ratios, [0, 0.5, 1])
    return (
        f"Paired times of {paired.effect.sides} on {paired.effect.workload}: {len(paired.ratios)} processes from "
        f"{least:.3f}× to {most:.3f}×, median {middle:.3f}×, after all of them {words.effect(paired.effect)}."
    )


def _span(paired: Paired, low: float | None, high: float | None) -> tuple[float, float, str]:
    """Ends of the axis, and where a claimed region lies that is too far away to be drawn: "above", "below" or ""."""
    shown = [1.0, *paired.ratios.tolist(), paired.effect.lower, paired.effect.upper]
    logs = [math.log(ratio) for ratio in shown if ratio]
    reach = max(max(logs) - min(logs), 0.01)  # a claimed range is far away where it begins beyond another such span
    nearest, farthest = min(logs) - reach, max(logs) + reach
    if low is not None and math.log(low) > farthest:
        beyond = "above"
    elif high is not None and math.log(high) < nearest:
        beyond = "below"
    else:
        beyond = ""
        edges = [math.log(edge) for edge in (low, high) if edge is not None]
        logs += [edge for edge in edges if nearest <= edge <= farthest]
    return *log_span(logs, 0.08, 0.0008), beyond


def _arrow(beyond: str, claimed: str, colours: Palette) -> Layout:
    arrow, y, edge = ("▲", 1, "top") if beyond == "above" else ("▼", 0, "bottom")
    text = f"{arrow} {words.label(claimed, 40)}, {beyond} this picture"
    return note(0, y, text, colours) | {"x": 0.01, "yref": "paper", "yanchor": edge}


# -- the same code over a run ------------------------------------------------------------------------------------------

MOST_POINTS = 3000
BIN, MOST_BINS = 10, 100  # rounds in a point of the line, at least; points


def drift(frame: pd.DataFrame, colours: Palette = LIGHT) -> go.Figure:
    """Rounds over the time of the run (columns as `views.noise.drift` gives them), with the middle as a line."""
    frame = frame.assign(order=range(1, len(frame) + 1))
    shown = frame if len(frame) <= MOST_POINTS else frame.iloc[:: math.ceil(len(frame) / MOST_POINTS)]
    bins = np.arange(len(frame)) // max(BIN, math.ceil(len(frame) / MOST_BINS))
    middle = frame.groupby(bins)[["order", "relative"]].median()
    heights = 100 * (middle["relative"] - 1)
    median = line(middle["order"], heights, colours.sides[1], 2, name="median of neighbouring rounds")
    grid: Layout = {"gridcolor": colours.rule}
    zero: Layout = {"zeroline": True, "zerolinecolor": colours.muted, "range": _seen(100 * (frame["relative"] - 1))}
    top: Layout = {"yref": "container", "yanchor": "top", "font": {"size": SMALL, "color": colours.text}}
    return figure(
        [_dots(shown, colours), median],
        colours,
        height=320,
        margin=(5, 12, 30, 46),
        xaxis=axis("rounds, in the order they were taken", rangemode="tozero", **grid),
        yaxis=axis("← faster   time of a call over its median [%]   slower →", tickformat="+.0f", **zero, **grid),
        legend={**ABOVE, **top, "itemclick": False, "itemdoubleclick": False},
    )


def _dots(shown: pd.DataFrame, colours: Palette) -> go.Scatter:
    """A dot a round."""
    percent = 100 * (shown["relative"].to_numpy(np.float64) - 1)
    columns = zip(shown["workload"], shown["variant"], shown["seconds"], percent, strict=True)
    return go.Scatter(
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


def _seen(percent: pd.Series) -> tuple[float, float]:
    """Ends of the axis: all but the 1 % that lie furthest out, which would squash the others."""
    low, high = percent.quantile([0.005, 0.995])
    air = 0.25 * max(high - low, 1.0)
    return low - air, high + air


def drift_text(frame: pd.DataFrame) -> str:
    """The rounds in words."""
    low, high = (100 * (end - 1) for end in frame["relative"].quantile([0.05, 0.95]))
    worst = frame.sort_values("relative").iloc[-1]
    bottom, top = _seen(100 * (frame["relative"] - 1))
    outside = int((~(100 * (frame["relative"] - 1)).between(bottom, top)).sum())
    beyond = f" {outside} lie outside of the picture." if outside else ""
    return (
        f"{len(frame)} rounds of the same code: nine in ten lie between {low:+.1f} % and {high:+.1f} % of their "
        f"workload's median; the slowest is {100 * (worst['relative'] - 1):+.0f} % on {worst['workload']}.{beyond}"
    )
