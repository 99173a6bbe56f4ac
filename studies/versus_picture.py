"""What tools call different and what they find, as a picture: a row for each of their rules, in each column a share of
the trials with its exact interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

import altair

from llama_workbench.dashboard.export.svg import LIGHT
from llama_workbench.harness.slices.calibrate.rates import Rate

ROW_PX, COLUMN_PX = 18, 190


@dataclass(frozen=True)
class Place:
    """A dot of the picture. ours: of this workbench."""

    column: str
    row: str
    rate: Rate
    ours: bool


def picture(places: Sequence[Place]) -> str:
    """As SVG: rows and columns in the order in which they come."""
    values = [
        {"column": place.column, "row": place.row, "ours": place.ours}
        | {"share": place.rate.count / place.rate.of, "low": place.rate.ends[0], "high": place.rate.ends[1]}
        for place in places
        if place.rate.of
    ]
    ink = altair.when("datum.ours").then(altair.value(LIGHT.verdict["blue"])).otherwise(altair.value(LIGHT.muted))
    axis = altair.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], title=None, gridColor=LIGHT.rule)
    share = altair.X("share:Q", scale=altair.Scale(domain=[0, 1]), axis=axis)
    name = altair.Y("row:N", sort=None, title=None, axis=altair.Axis(labelLimit=300, ticks=False, domain=False))
    base = altair.Chart().encode(y=name, color=ink)
    interval = base.mark_rule(strokeWidth=2, opacity=0.5).encode(x=altair.X("low:Q"), x2="high:Q")
    drawn = altair.layer(interval, base.mark_circle(size=60, opacity=1).encode(x=share))
    chart = (
        drawn.properties(width=COLUMN_PX, height={"step": ROW_PX})
        .facet(
            column=altair.Column("column:N", sort=list(dict.fromkeys(place.column for place in places)), title=None),
            data=altair.Data(values=values),
        )
        .configure(background=LIGHT.page, padding={"left": 60, "top": 5, "right": 5, "bottom": 5})
        .configure_view(stroke=None)
        .configure_axis(labelColor=LIGHT.text)
        .configure_header(labelColor=LIGHT.text, labelFontWeight="bold")
    )
    made = StringIO()
    chart.save(made, format="svg")
    return made.getvalue() + "\n"
