"""The cells of a factorial with four factors as a table: two factors down, two across, the number in each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from llama_workbench.harness.metrics.attribution.grid import Grid
from llama_workbench.harness.report.text import ratio_text

from .. import words
from ..views.attribution import Cell
from .colours import LIGHT, Palette
from .drawing import SMALL, Layout, axis, figure

ROW_PX = 62


def cell_table(grid: Grid, cells: Sequence[Cell], colours: Palette = LIGHT) -> go.Figure:
    """Speed-up of each cell over the all-old one, top left; the shade follows it, from the slowest cell.

    The first half of the factors is down, the second across. Raises ValueError where cells are missing.
    """
    if len(cells) != len(grid.cells()):
        raise ValueError(f"{len(cells)} cells, and the grid has {len(grid.cells())}")
    half = len(grid.factors) // 2
    across = 2 ** (len(grid.factors) - half)
    table = [cells[start : start + across] for start in range(0, len(cells), across)]
    values = [[math.log(cell.ratio) for cell in row] for row in table]
    names = [_levels(row[0].levels[:half]) for row in table]
    heads = [_levels(cell.levels[half:]) for cell in table[0]]
    down, over = (" × ".join(factor.name for factor in part) for part in (grid.factors[:half], grid.factors[half:]))
    flat = [value for row in values for value in row]
    cells_axis: Layout = {"showgrid": False, "tickfont": {"size": SMALL - 1}}
    x_axis = axis(
        words.label(f"down {down}, across {over}", 80),
        SMALL + 1,
        ticks_at=dict(enumerate(heads)),
        side="top",
        tickangle=0,
        standoff=4,
        **cells_axis,
    )
    heatmap = go.Heatmap(
        z=values,
        x=list(range(across)),
        y=list(range(len(table))),
        zmin=min(flat),
        zmax=max(max(flat), min(flat) + 1e-6),
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
        height=ROW_PX * len(table) + 108,
        margin=(76, 4, 62, 8),
        xaxis=x_axis,
        yaxis=axis(ticks_at=dict(enumerate(names)), autorange="reversed", **cells_axis),
    )


def cell_table_text(cells: Sequence[Cell], workload: str) -> str:
    """The table in words: the slowest and the fastest cell."""
    slowest, fastest = (pick(cells, key=lambda cell: cell.ratio) for pick in (min, max))
    return (
        f"Speed-up of {len(cells)} combinations over the all-old one on {workload}: least in {slowest.variant}, "
        f"{words.effect(slowest.ratio, slowest.low, slowest.high)}; most in {fastest.variant}, "
        f"{words.effect(fastest.ratio, fastest.low, fastest.high)}."
    )


def _text(cell: Cell, *, first: bool) -> str:
    return f"1×<br>{words.milliseconds(cell.call_ns)}" if first else f"<b>{ratio_text(cell.ratio)}</b><br>{_ends(cell)}"


def _ends(cell: Cell) -> str:
    if cell.low is None or cell.high is None:
        return "no interval"
    return f"{cell.low:.2f} – {cell.high:.2f}"


def _hover(cell: Cell) -> str:
    return (
        f"<b>{words.label(cell.variant, 60)}</b><br>{words.milliseconds(cell.call_ns)} a call<br>"
        f"{words.effect(cell.ratio, cell.low, cell.high)}"
    )


def _levels(levels: Sequence[str]) -> str:
    return "<br>".join(words.label(level.replace("_", " "), 20) for level in levels)
