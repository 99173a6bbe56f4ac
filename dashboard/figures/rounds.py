"""Round by round: the paired ratios of one comparison, and how the interval closed in on what they say."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from .. import words
from ..views.samples import Paired
from .colours import LIGHT, Palette
from .drawing import ABOVE, SMALL, Layout, area, axis, figure, line, log_span, mark, marks, note, ratio_axis, rule


def paired_rounds(
    paired: Paired,
    *,
    verdict: str = "",
    claimed: str = "",
    low: float | None = None,
    high: float | None = None,
    colours: Palette = LIGHT,
) -> go.Figure:
    """A dot a round, the interval as it closed in, and where it ended. Raises ValueError without rounds.

    `low` to `high`: the claimed region of ratios, if any. Where it lies far from all rounds, an arrow says so instead.
    """
    if not len(paired.ratios):
        raise ValueError("no rounds to draw")
    count = len(paired.ratios)
    bottom, top, beyond = _span(paired, low, high)
    end = count + max(1.0, 0.04 * count)
    traces = _closing(paired, colours)
    traces.append(
        go.Scatter(
            x=np.arange(1, count + 1),
            y=paired.ratios,
            mode="markers",
            marker={"size": 6, "color": colours.sides[1], "symbol": "circle-open", "line": {"width": 1.5}},
            name="one round",
            hovertext=[f"round {k}: {ratio:.4f}×" for k, ratio in enumerate(paired.ratios, 1)],
            hoverinfo="text",
        )
    )
    if paired.ratio is not None:
        look = words.look(verdict)
        colour = colours.verdict[look.colour]
        traces.append(
            marks(
                [(end, paired.ratio, paired.low or bottom, paired.high or top, words.label(paired.text))],
                colour=colour,
                name=f"after {count} rounds",
                thickness=2.5,
                marker=mark(look.symbol, colour, 10),
                showlegend=False,
            )
        )
    return figure(
        traces,
        height=360,
        margin=(8, 8, 8, 8),
        shapes=_shapes(paired, claimed, (None, None) if beyond else (low, high), (bottom, top), colours),
        annotations=[_arrow(beyond, claimed, colours)] if beyond else [],
        xaxis=axis(
            "round, in the order of measuring",
            SMALL + 1,
            range=[0.5, end + max(0.7, 0.02 * count)],
            showgrid=False,
            ticks="outside",
            nticks=7,
        ),
        yaxis=ratio_axis(bottom, top, "t_baseline / t_variant, log scale", SMALL + 1, gridcolor=colours.rule),
        legend={**ABOVE, "y": 1.02},
    )


def _shapes(
    paired: Paired, claimed: str, region: tuple[float | None, float | None], ends: tuple[float, float], colours: Palette
) -> list[Layout]:
    """The line at 1, the median of the rounds, and the claimed region within the picture's ends."""
    (low, high), (bottom, top) = region, ends
    across: Layout = {"x0": 0, "x1": 1, "xref": "paper"}
    middle = float(np.median(paired.ratios))
    median = rule(y0=middle, y1=middle, colour=colours.sides[1], dash="dash", **across)
    median |= {"name": "median of the rounds", "showlegend": True}
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
    """The interval so far as a band, and the estimate in it; nothing while there are too few rounds."""
    known = np.isfinite(paired.highs) & (paired.lows > 0) & (paired.lows <= paired.highs)
    if not known.any():
        return []
    x = np.arange(1, len(paired.ratios) + 1)[known]
    edge: Layout = {"colour": colours.floor, "width": 0, "style": {"shape": "hv"}}
    filled: Layout = {"fill": "tonexty", "fillcolor": colours.floor, "name": "interval so far"}
    return [
        line(x, paired.highs[known], showlegend=False, **edge),
        line(x, paired.lows[known], **filled, **edge),
        line(x, paired.estimates[known], colours.text, 1.5, name="estimate so far", showlegend=False),
    ]


def in_words(paired: Paired, baseline: str, variant: str, workload: str) -> str:
    """The picture in a sentence, for those who do not see it."""
    if not len(paired.ratios):
        return f"No rounds of {variant} against {baseline} on {workload}."
    least, most = float(paired.ratios.min()), float(paired.ratios.max())
    return (
        f"Paired rounds of {variant} against {baseline} on {workload}: {len(paired.ratios)} rounds from {least:.3f}× "
        f"to {most:.3f}×, median {paired.median:.3f}×, after all of them {paired.text}."
    )


def _span(paired: Paired, low: float | None, high: float | None) -> tuple[float, float, str]:
    """Ends of the axis, and where a claimed region lies that is too far away to be drawn: "above", "below" or ""."""
    shown = [1.0, *paired.ratios.tolist(), paired.low, paired.high]
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
