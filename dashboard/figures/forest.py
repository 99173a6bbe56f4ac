"""The forest plot in plotly: one row per effect, its interval against what is claimed and the machine's A/A floor."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from llama_workbench.harness.report.text import duration_text

from .. import words
from ..views.data import Claim, Floor
from ..views.forest import FASTER, FLOOR, SLOWER, TRACK_PX, Forest, Row, region_name
from ..views.forest import forest as describe
from .colours import LIGHT, Palette
from .drawing import ABOVE, SMALL, Layout, axis, box, figure, mark, marks, note, ratio_axis, rows_axis, track_rule

LEGEND_PX = 34
FOOT_PX = 66  # tick labels and title


def forest(
    claim: Claim, floors: Mapping[str, Floor], colours: Palette = LIGHT, *, heading: str = "against "
) -> go.Figure:
    """The claim's effects with the floor of each workload. `heading`: before the name of each baseline."""
    plan = describe(claim, floors)
    foot: Layout = {"showgrid": False, "ticks": "outside", "standoff": 10}
    if plan.is_ratio:
        x_axis = ratio_axis(plan.left, plan.right, plan.title, SMALL + 1, **foot)
    else:
        ends = [plan.left, plan.right]
        x_axis = axis(words.label(plan.title, 80), SMALL + 1, type="linear", range=ends, nticks=6, **foot)
    return figure(
        [_intervals(plan, verdict, colours) for verdict in plan.verdicts],
        height=int(plan.height + FOOT_PX + LEGEND_PX),
        margin=(2, 2, LEGEND_PX, FOOT_PX),
        shapes=_shapes(plan, colours),
        annotations=_notes(plan, heading, colours),
        xaxis=x_axis,
        yaxis=rows_axis(plan.height),
        legend=ABOVE,
    )


def _shapes(plan: Forest, colours: Palette) -> list[Layout]:
    shapes: list[Layout] = []
    name = region_name(plan.claim)
    for row in plan.rows:
        shapes.append(box(row.y, plan.left, plan.right, TRACK_PX / 2, colours.track))
        if plan.region is not None:
            low, high = plan.ends(*plan.region)
            shapes.append(
                box(row.y, max(low, plan.left), min(high, plan.right), TRACK_PX / 2, colours.region, name=name)
            )
            edges = [edge for edge in plan.region if edge is not None]
            shapes += [track_rule(row.y, edge, colours.region_edge, "dot") for edge in edges]
        if floor := row.floor:
            grey = (colours.floor, colours.floor_edge, FLOOR)
            shapes.append(box(row.y, floor.low, floor.high, TRACK_PX / 2 - 3, *grey))
        if plan.is_ratio:
            shapes.append(track_rule(row.y, 1, colours.muted, "solid"))
    for each in (name, FLOOR):  # once in the legend
        if first := next((shape for shape in shapes if shape["name"] == words.label(each, 40)), None):
            first["showlegend"] = True
    return shapes


def _notes(plan: Forest, heading: str, colours: Palette) -> list[Layout]:
    ink, quiet = (colours.text, colours.page), (colours.muted, colours.page)
    notes = [note(0, y, f"{heading}<b>{words.label(name, 40)}</b>", "left", ink) for y, name in plan.headings]
    for row in plan.rows:
        above = row.y + TRACK_PX / 2 + 10
        notes.append(note(0, above, words.label(row.effect.where, 30), "left", ink))
        notes.append(note(1, above, words.label(row.told), "right", ink))
    notes.append(note(1, plan.height - 8, plan.column, "right", quiet))
    if plan.is_ratio:
        notes.append(note(0, 14 - FOOT_PX, SLOWER, "left", quiet, under=True))
        notes.append(note(1, 14 - FOOT_PX, FASTER, "right", quiet, under=True))
    return notes


def _intervals(plan: Forest, verdict: str, colours: Palette) -> go.Scatter:
    """The rows of one verdict."""
    shown = words.look(verdict)
    colour = colours.verdict[shown.colour]
    return marks(
        [
            (row.y, effect.value, *plan.ends(effect.low, effect.high), _hover(row, plan.claim))
            for row in plan.rows
            if (effect := row.effect).verdict == verdict and effect.value is not None
        ],
        across=True,
        colour=colour,
        name=words.label(shown.word.lower(), 28),
        marker=mark(shown.symbol, colour),
        showlegend=True,
    )


def _hover(row: Row, claim: Claim) -> str:
    effect, floor = row.effect, row.floor
    lines = [
        f"<b>{words.label(effect.where, 60)}</b>",
        words.label(effect.sides, 90),
        f"{words.label(effect.text)} · {words.label(words.look(effect.verdict).word.lower())}",
        f"{effect.rounds} rounds, {duration_text(effect.seconds or 0)}",
    ]
    if claim.claimed:
        lines.append(words.label(region_name(claim), 60))
    if floor:
        lines.append(f"{FLOOR}: {floor.low:.4f} to {floor.high:.4f}, {floor.rounds} rounds")
    lines += [words.label(each, 70) for each in effect.warnings]
    return "<br>".join(lines)
