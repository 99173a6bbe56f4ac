"""The forest plot in plotly: a row an effect, its interval against what is claimed; below it, how identical code came
out."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from llama_workbench.harness.report.text import duration_text
from llama_workbench.harness.spec.words import Word

from .. import words
from ..views.data import Claim, Floor
from ..views.forest import FASTER, SLOWER, TRACK_PX, Forest, Row, region_name
from ..views.forest import forest as describe
from .colours import LIGHT, Palette
from .drawing import (
    ABOVE,
    SMALL,
    Layout,
    Mark,
    axis,
    box,
    figure,
    floor_text,
    identical,
    mark,
    note,
    ratio_axis,
    row_notes,
    rows_axis,
    rule,
    some_bounded,
)

LEGEND_PX = 34
FOOT_PX = 66  # tick labels and title


def forest(
    claim: Claim, floors: Mapping[str, Floor], colours: Palette = LIGHT, *, heading: str = "against "
) -> go.Figure:
    """The claim's effects with the floor of each workload. `heading`: before the name of each baseline."""
    plan = describe(claim, floors)
    ends = plan.left, plan.right
    foot: Layout = {"size": SMALL + 1, "showgrid": False, "ticks": "outside", "standoff": 10}
    if plan.is_ratio:
        x_axis = ratio_axis(*ends, plan.title, **foot)
    else:
        x_axis = axis(words.label(plan.title, 80), type="linear", range=ends, nticks=6, **foot)
    return figure(
        [*(each for verdict in plan.verdicts for each in _intervals(plan, verdict, colours)), *_floors(plan, colours)],
        colours,
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
    name, half = region_name(plan.claim), TRACK_PX / 2
    for row in plan.rows:
        track: Layout = {"y0": row.y - half, "y1": row.y + half, "name": ""}
        shapes.append(box(row.y, plan.left, plan.right, half, colours.track))
        if plan.region is not None:
            low, high = plan.ends(*plan.region)
            shapes.append(box(row.y, max(low, plan.left), min(high, plan.right), half, colours.region, name=name))
            edges = [edge for edge in plan.region if edge is not None]
            shapes += [rule(edge, edge, colour=colours.region_edge, dash="dot", **track) for edge in edges]
        if plan.is_ratio:
            shapes.append(rule(1, 1, colour=colours.muted, **track))
    if first := next((shape for shape in shapes if shape["name"] == words.label(name, 40)), None):
        first["showlegend"] = True  # once
    return shapes


def _floors(plan: Forest, colours: Palette) -> list[go.Scatter]:
    """How identical code came out on each row's workload, each on a lane below its row."""
    known = [(row.lane, row.floor) for row in plan.rows if row.floor]
    points = [(lane, floor.value, floor.low, floor.high, floor_text(floor)) for lane, floor in known]
    return [identical(points, colours, across=True)] if points else []


def _notes(plan: Forest, heading: str, colours: Palette) -> list[Layout]:
    notes = [note(0, y, f"{heading}<b>{words.label(name, 40)}</b>", colours) for y, name in plan.headings]
    for row in plan.rows:
        where, value = words.label(row.effect.where, 36), words.label(row.told)
        notes += row_notes(row.y + TRACK_PX / 2 + 10, where, value, colours)
    notes.append(note(1, plan.height - 8, plan.column, colours, quiet=True))
    if plan.is_ratio:
        below = {"yref": "paper", "yshift": 14 - FOOT_PX}  # pixels from the x axis
        notes += [note(x, 0, text, colours, quiet=True) | below for x, text in ((0, SLOWER), (1, FASTER))]
    return notes


def _intervals(plan: Forest, verdict: Word, colours: Palette) -> list[go.Scatter]:
    """The rows of one verdict; those without an interval are a dot alone."""
    shown = verdict.look
    colour = colours.verdict[shown.colour]
    rows = [row for row in plan.rows if row.effect.verdict == verdict and row.effect.value is not None]
    alone = [row for row in rows if row.effect.lower is None and row.effect.upper is None]
    bounded = [row for row in rows if row not in alone]
    return some_bounded(
        [_mark(row, plan) for row in bounded],
        [_mark(row, plan) for row in alone],
        across=True,
        colour=colour,
        name=words.label(shown.word.lower(), 28),
        marker=mark(shown.symbol, colour),
    )


def _mark(row: Row, plan: Forest) -> Mark:
    effect = row.effect
    return (row.y, effect.value or 0.0, *plan.ends(effect.lower, effect.upper), _hover(row, plan.claim))


def _hover(row: Row, claim: Claim) -> str:
    effect, floor = row.effect, row.floor
    lines = [
        f"<b>{words.label(effect.where, 60)}</b>",
        words.label(effect.sides, 90),
        f"{words.label(words.effect(effect))} · {words.label(effect.verdict.look.word.lower())}",
        f"{effect.rounds} rounds, {duration_text(effect.seconds or 0)}",
        words.label(region_name(claim), 60) if claim.claimed else "",
        floor_text(floor) if floor else "",
        *(words.label(each, 70) for each in effect.said),
    ]
    return "<br>".join(filter(None, lines))
