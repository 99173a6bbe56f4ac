"""Memory of a few variants as bars."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from llama_workbench.dashboard import words
from llama_workbench.dashboard.views.data import Memory

from .colours import LIGHT, Palette
from .drawing import Layout, byte_unit, note, round_step

BAR_PX = 40  # a line of text and a bar

AMOUNTS = {
    "peak_transient_bytes": "Peak transient, above the weights",
    "parameter_bytes": "Parameters",
    "cache_bytes": "Caches",
}
"""What is drawn of `Memory`, each on an axis of its own: they differ by orders of magnitude."""


def memory(rows: Sequence[Memory], field: str, baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """Bars of one amount (a key of AMOUNTS) from 0, one per variant with its name and amount above it."""
    amounts: list[float | None] = [getattr(row, field) for row in rows]
    largest = max((amount for amount in amounts if amount is not None), default=0.0)
    divisor, unit = byte_unit(largest)
    step = round_step(largest / divisor)
    ticks = [step * k for k in range(6) if step * k * divisor <= largest]
    height = BAR_PX * len(rows)
    middles = [height - BAR_PX * (place + 1) + 8 for place in range(len(rows))]
    ink = (colours.text, colours.page)
    notes: list[Layout] = []
    hovers = []
    for y, row, amount in zip(middles, rows, amounts, strict=True):
        notes.append(note(0, y + 17, words.label(row.variant, 30), "left", ink))
        notes.append(note(1, y + 17, words.size(amount), "right", ink))
        exact = f" ({amount:,.0f} bytes)" if amount is not None else f"<br>{words.label(row.reason, 90)}"
        hovers.append(f"<b>{words.label(row.variant)}</b><br>{AMOUNTS[field]}: {words.size(amount)}{exact}")
    return go.Figure(
        data=go.Bar(
            x=[amount or 0 for amount in amounts],
            y=middles,
            orientation="h",
            marker={"color": [colours.sides[row.variant != baseline] for row in rows]},
            hovertext=hovers,
            hoverinfo="text",
            width=12,
        ),
        layout={
            "annotations": notes,
            "xaxis": {
                "range": [0, largest or 1],
                "tickvals": [tick * divisor for tick in ticks],
                "ticktext": [f"{tick:g} {unit}" if tick else "0" for tick in ticks],
                "gridcolor": colours.rule,
                "zeroline": False,
                "fixedrange": True,
            },
            "yaxis": {"range": [0, height], "visible": False, "fixedrange": True},
            "height": height + 30,
            "margin": {"l": 5, "r": 24, "t": 2, "b": 28},
            "dragmode": False,
            "showlegend": False,
        },
    )


def memory_text(rows: Sequence[Memory], field: str) -> str:
    """The bars in words."""
    return ", ".join(f"{row.variant} {words.size(getattr(row, field))}" for row in rows) + "."
