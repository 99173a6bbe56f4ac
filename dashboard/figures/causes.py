"""Where a difference is: a bar for each place, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from llama_workbench.harness.report.causes import CauseRow

from .. import words
from .colours import Palette
from .drawing import Layout, axis, bar_rows, rule

ROW_PX, BAR_PX = 46, 14


def cause_bars(rows: Sequence[CauseRow], colours: Palette) -> go.Figure:
    """To the left what the variant saves, to the right what it costs; above each bar its place and its change."""
    saved, costs = colours.difference[0], colours.difference[-1]
    ends = {
        "type": "data", "symmetric": False, "color": colours.text, "thickness": 1, "width": 4,
        "array": [row.high - row.value for row in rows],
        "arrayminus": [row.value - row.low for row in rows],
    }  # fmt: skip
    bar: Layout = {
        "x": [row.value for row in rows],
        "marker": {"color": [(saved if row.value < 0 else costs) if row.is_told else colours.rule for row in rows]},
        "error_x": ends,
        "hovertext": [f"{words.label(row.name)}<br>{words.label(row)}" for row in rows],
    }
    return bar_rows(
        [(words.label(row.name, 52), words.label(row)) for row in rows],
        [bar],
        colours,
        row_px=ROW_PX,
        bar_px=BAR_PX,
        foot_px=42,
        right_px=10,
        shapes=[rule(0, 0, 0, 1, colours.muted, yref="paper")],
        xaxis=axis(f"what it adds to a call [{rows[0].unit}]", standoff=4, gridcolor=colours.rule),
    )


def cause_text(rows: Sequence[CauseRow]) -> str:
    """The bars in words."""
    return f"Where the difference is. {'; '.join(f'{row.name}: {row}' for row in rows)}."
