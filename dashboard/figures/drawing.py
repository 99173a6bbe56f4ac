"""What the figures are drawn with: axes, shapes, notes, marks with their intervals.

Text that is ours lies on a fill that is ours, if only one that looks like the page: the server learns late that
somebody's browser turned dark, and text must be readable until then. Strings from files go through `words.label`, since
plotly reads HTML tags in every label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import sub
from typing import Any

import plotly.graph_objects as go

from ..views.forest import FASTER, SLOWER, ratio_ticks
from .colours import Palette

SMALL = 12  # font size of labels inside a figure

Layout = dict[str, Any]
"""One part of a figure, as plotly takes it."""

Mark = tuple[float, float, float, float, str]
"""Place, value, low end and high end of a point, and its text on hover."""

ABOVE: Layout = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": SMALL}}
"""A legend above the plot."""


def axis(
    title: str = "",
    size: int = SMALL,
    *,
    standoff: int | None = None,
    ticks_at: Mapping[int, str] | Mapping[float, str] | None = None,
    **more: Any,
) -> Layout:
    """An axis without zoom; its title is `standoff` pixels away. `ticks_at`: labels by place."""
    if ticks_at is not None:
        more |= {"tickvals": list(ticks_at), "ticktext": list(ticks_at.values())}
    if title:
        more["title"] = {"text": title, "font": {"size": size}, "standoff": standoff}
    return {"zeroline": False, "fixedrange": True, **more}


def ratio_axis(low: float, high: float, title: str, size: int = SMALL, **more: Any) -> Layout:
    """A logarithmic axis of speed-ups between two ends, which says where faster is."""
    ends = [math.log10(low), math.log10(high)]
    title = "   ".join(filter(None, (SLOWER, title, FASTER)))
    return axis(title, size, type="log", range=ends, ticks_at=ratio_ticks(low, high), **more)


def log_span(logs: Sequence[float], air_share: float, least_air: float) -> tuple[float, float]:
    """Ends of an axis of ratios with these logarithms: air on both sides is a share of their span, or the least."""
    low, high = min(logs), max(logs)
    air = max(air_share * (high - low), least_air)
    return math.exp(low - air), math.exp(high + air)


def figure(data: Any, colours: Palette, *, height: float, margin: Sequence[float], **more: Any) -> go.Figure:
    """A figure with nothing to drag. `margin`: left, right, top, bottom in pixels.

    All at once: plotly checks every shape again with each one that is added, which took 0.3 s for eight rows.
    """
    layout = {"height": height, "margin": dict(zip("lrtb", margin, strict=True)), "dragmode": False}
    layout |= {"hovermode": "closest", "paper_bgcolor": colours.page, "plot_bgcolor": colours.page}
    axes = {name: _readable(more.pop(name), colours) for name in ("xaxis", "yaxis")}
    return go.Figure(data=data, layout={**layout, **axes, **more})


def _readable(shown: Layout, colours: Palette) -> Layout:
    """An axis with its texts in our ink: those of Streamlit's theme have a contrast of 3.7."""
    ink = {"color": colours.muted}
    title = {"title": {**shown["title"], "font": {**shown["title"]["font"], **ink}}} if "title" in shown else {}
    return {**shown, "tickfont": {**shown.get("tickfont", {}), **ink}, **title}


def marks(
    points: Iterable[Mark],
    *,
    colour: str,
    name: str,
    thickness: float = 2,
    cap: float = 6,
    **more: Any,
) -> go.Scatter:
    """Points with upright intervals; one trace is one legend entry."""
    places, values, lows, highs, hovers = zip(*points, strict=True)
    interval = {
        "type": "data",
        "symmetric": False,
        "array": list(map(sub, highs, values)),
        "arrayminus": list(map(sub, values, lows)),
        "color": colour,
        "thickness": thickness,
        "width": cap,
    }
    drawn = {"x": places, "y": values, "error_y": interval, "name": name, "hovertext": hovers, "hoverinfo": "text"}
    return go.Scatter(**{"mode": "markers", **drawn, **more})


def line(x: Any, y: Any, colour: str, width: float = 1, *, style: Layout | None = None, **more: Any) -> go.Scatter:
    """A line without a text on hover. `style`: dashes and steps."""
    drawn = {"color": colour, "width": width, **(style or {})}
    return go.Scatter(x=x, y=y, mode="lines", line=drawn, hoverinfo="skip", **more)


def mark(symbol: str, colour: str, size: float = 8, line: float = 2) -> Layout:
    """One kind of marker."""
    return {"symbol": symbol, "size": size, "color": colour, "line": {"width": line, "color": colour}}


def area(x0: float, x1: float, y0: float, y1: float, fill: str, edge: str = "", **more: Any) -> Layout:
    """A rectangle below the data, with a line around it where it has an `edge`."""
    line = {"width": 1, "color": edge} if edge else {"width": 0}
    ends = {"x0": x0, "x1": x1, "y0": y0, "y1": y1}
    return {"type": "rect", **ends, "fillcolor": fill, "line": line, "layer": "below", **more}


def rule(x0: float, x1: float, y0: float, y1: float, colour: str, dash: str = "solid", **more: Any) -> Layout:
    """A straight line below the data."""
    line = {"width": 1, "color": colour, "dash": dash}
    return {"type": "line", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line, "layer": "below", **more}


def note(x: float, y: float, text: str, colours: Palette, *, quiet: bool = False) -> Layout:
    """Text at the height `y` of the y axis, at the left edge of the plot (`x` is 0) or the right one (1)."""
    return {
        "x": x,
        "xref": "paper",
        "y": y,
        "text": text,
        "showarrow": False,
        "xanchor": "right" if x else "left",
        "yanchor": "middle",
        "borderpad": 0,
        "bgcolor": colours.page,
        "font": {"size": SMALL, "color": colours.muted if quiet else colours.text},
    }


def bar_rows(
    rows: Sequence[tuple[str, str]],
    bars: Sequence[Layout],
    colours: Palette,
    *,
    row_px: int,
    bar_px: int,
    foot_px: int,
    right_px: int,
    quiet: bool = True,
    **more: Any,
) -> go.Figure:
    """Rows of bars from left to right: above each its name at the left edge and its value at the right one, `quiet` or
    not. `bars`: what plotly's have beside their place, each over all rows. The y axis counts pixels."""
    height = row_px * len(rows)
    middles = [height - row_px * place - bar_px / 2 - 26 for place in range(len(rows))]
    notes = []
    for y, (name, value) in zip(middles, rows, strict=True):
        above = y + bar_px / 2 + 11
        notes += [note(0, above, name, colours), note(1, above, value, colours, quiet=quiet)]
    return figure(
        [go.Bar(y=middles, orientation="h", width=bar_px, hoverinfo="text", **bar) for bar in bars],
        colours,
        height=height + foot_px,
        margin=(5, right_px, 2, foot_px - 2),
        annotations=notes,
        yaxis={"range": [0, height], "visible": False, "fixedrange": True},
        **{"showlegend": False, **more},
    )
