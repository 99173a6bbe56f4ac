"""The cells of a factorial with four factors as a table: two factors down, two across, the number in each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from llama_workbench.harness.metrics.attribution import Grid
from llama_workbench.harness.report.text import ratio_text

from .. import words
from ..views.attribution import Cell
from .colours import LIGHT, Palette
from .drawing import SMALL, Layout, axis, figure


def cell_table(grid: Grid, cells: Sequence[Cell], colours: Palette = LIGHT) -> go.Figure:
    """Speed-up of each cell over the all-old one, top left; the shade follows it, from the slowest cell.

    The first half of the factors is down, the second across. Raises ValueError where cells are missing.
    """
    if len(cells) != len(grid.cells()):
        raise ValueError(f"{len(cells)} cells, and the grid has {len(grid.cells())}")
    half = len(grid.factors) // 2
    across = 2 ** (len(grid.factors) - half)
    table = [cells[start : start + across] for start in range(0, len(cells), across)]
    rows = {place: _levels(row[0].levels[:half]) for place, row in enumerate(table)}
    columns = {place: _levels(cell.levels[half:]) for place, cell in enumerate(table[0])}
    down, over = (" × ".join(factor.name for factor in part) for part in (grid.factors[:half], grid.factors[half:]))
    title = words.label(f"down {down}, across {over}", 80)
    logs = [math.log(cell.ratio) for cell in cells]
    shared: Layout = {"showgrid": False, "tickfont": {"size": SMALL - 1}}
    heatmap = go.Heatmap(
        z=[logs[start : start + across] for start in range(0, len(cells), across)],
        x=list(columns),
        y=list(rows),
        zmin=min(logs),
        zmax=max(max(logs), min(logs) + 1e-6),
        colorscale=[[0, colours.page], [1, colours.frames["variant"]]],
        showscale=False,
        xgap=3,
        ygap=3,
        text=[[_text(cell, first=cell is cells[0]) for cell in row] for row in table],
        texttemplate="%{text}",
        textfont={"size": SMALL, "color": colours.frame_text},
        hovertext=[[_hover(cell) for cell in row] for row in table],
        hoverinfo="text",
    )
    return figure(
        heatmap,
        colours,
        height=62 * len(table) + 108,
        margin=(76, 4, 62, 8),
        xaxis=axis(title, SMALL + 1, ticks_at=columns, side="top", tickangle=0, standoff=4, **shared),
        yaxis=axis(ticks_at=rows, autorange="reversed", **shared),
    )


def cell_table_text(cells: Sequence[Cell], workload: str) -> str:
    """The table in words: the slowest and the fastest cell."""
    slowest, fastest = (
        f"{cell.variant}, {words.ratio(cell.ratio, cell.low, cell.high)}"
        for cell in (pick(cells, key=lambda cell: cell.ratio) for pick in (min, max))
    )
    return (
        f"Speed-up of {len(cells)} combinations over the all-old one on {workload}: least in {slowest}; "
        f"most in {fastest}."
    )


def _text(cell: Cell, *, first: bool) -> str:
    if first:
        return f"1×<br>{words.milliseconds(cell.call_ns)}"
    ends = "no interval" if cell.low is None or cell.high is None else f"{cell.low:.2f} – {cell.high:.2f}"
    return f"<b>{ratio_text(cell.ratio)}</b><br>{ends}"


def _hover(cell: Cell) -> str:
    return (
        f"<b>{words.label(cell.variant, 60)}</b><br>{words.milliseconds(cell.call_ns)} a call<br>"
        f"{words.ratio(cell.ratio, cell.low, cell.high)}"
    )


def _levels(levels: Sequence[str]) -> str:
    return "<br>".join(words.label(level.replace("_", " "), 20) for level in levels)
