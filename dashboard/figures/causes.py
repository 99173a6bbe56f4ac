"""Where a difference is: a bar for each place, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from llama_workbench.harness.report.causes import CauseRow

from .. import words
from .colours import Palette
from .drawing import Layout, axis, figure, row_notes, rows_axis, rule

ROW_PX, BAR_PX = 46, 14


def cause_bars(rows: Sequence[CauseRow], colours: Palette) -> go.Figure:
    """To the left what the variant saves, to the right what it costs; above each bar its place and its change."""
    height = ROW_PX * len(rows)
    middles = [height - ROW_PX * number - 32 for number in range(len(rows))]
    notes: list[Layout] = []
    for y, row in zip(middles, rows, strict=True):
        notes += row_notes(y + BAR_PX / 2 + 11, words.label(row.name, 52), words.label(row), colours, quiet=True)
    saved, costs = colours.difference[0], colours.difference[-1]
    ends = {
        "type": "data", "symmetric": False, "color": colours.text, "thickness": 1, "width": 4,
        "array": [row.high - row.value for row in rows],
        "arrayminus": [row.value - row.low for row in rows],
    }  # fmt: skip
    bars = go.Bar(
        x=[row.value for row in rows],
        y=middles,
        orientation="h",
        width=BAR_PX,
        marker={"color": [(saved if row.value < 0 else costs) if row.is_told else colours.rule for row in rows]},
        error_x=ends,
        hovertext=[f"{words.label(row.name)}<br>{words.label(row)}" for row in rows],
        hoverinfo="text",
    )
    return figure(
        [bars],
        colours,
        height=height + 40,
        margin=(5, 10, 2, 40),
        annotations=notes,
        shapes=[rule(0, 0, 0, height, colours.muted)],
        xaxis=axis(f"change of a call's time [{rows[0].unit}]", standoff=4, gridcolor=colours.rule),
        yaxis=rows_axis(height),
        showlegend=False,
    )


def cause_text(rows: Sequence[CauseRow]) -> str:
    """The bars in words."""
    return f"Where the difference is. {'; '.join(f'{row.name}: {row}' for row in rows)}."
