"""The forest plot: one row per effect, its interval against what is claimed and the machine's A/A floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from llama_workbench.dashboard import words
from llama_workbench.dashboard.views.data import Claim, Effect, Floor
from llama_workbench.harness.report.text import duration_text

from ..views.forest import linear_span, region, region_name, rows, span
from .colours import LIGHT, Palette
from .drawing import FLOOR, SMALL, TRACK_PX, Layout, box, note, ratio_ticks, rule

LEGEND_PX = 34
FOOT_PX = 66  # tick labels and title


def forest(
    claim: Claim, floors: Mapping[str, Floor], colours: Palette = LIGHT, *, heading: str = "against "
) -> go.Figure:
    """One row per effect: its value with its interval, the claimed region, the line at 1 and the A/A floor.

    The x axis is logarithmic, so that twice as fast and half as fast are equally far from 1; of readings, which have a
    unit, it is linear and has neither the line nor a floor. A row is a line of text
    and a track under it, which needs no room at the side and so fits a phone. Rows stand in the order of the file,
    under a `heading` and the baseline where there are several. An open end of an interval runs to the edge.
    """
    placed, headings, height = rows(claim.effects)
    if claim.unit:
        floors = {}
    left, right = linear_span(claim) if claim.unit else span(claim, floors)
    claimed = region(claim)
    shapes: list[Layout] = []
    for y, effect in placed:
        shapes.append(box(y, left, right, TRACK_PX / 2, colours.track))
        if claimed is not None:
            low = left if claimed[0] is None else max(claimed[0], left)
            high = right if claimed[1] is None else min(claimed[1], right)
            shapes.append(box(y, low, high, TRACK_PX / 2, colours.region, name=region_name(claim)))
            shapes += [rule(y, edge, colours.region_edge, "dot") for edge in claimed if edge is not None]
        if floor := floors.get(effect.workload):
            band = box(y, floor.low, floor.high, TRACK_PX / 2 - 3, colours.floor, colours.floor_edge, FLOOR)
            shapes.append(band)
        if not claim.unit:
            shapes.append(rule(y, 1, colours.muted, "solid"))
    for name in (region_name(claim), FLOOR):  # each once in the legend
        if first := next((shape for shape in shapes if shape["name"] == words.label(name, 40)), None):
            first["showlegend"] = True
    ink, quiet = (colours.text, colours.page), (colours.muted, colours.page)
    notes = [note(0, y, f"{heading}<b>{words.label(name, 40)}</b>", "left", ink) for y, name in headings]
    for y, effect in placed:
        above = y + TRACK_PX / 2 + 10
        notes.append(note(0, above, words.label(effect.where, 30), "left", ink))
        notes.append(note(1, above, f"{words.label(effect.text)} · {effect.rounds}", "right", ink))
    column = (
        "value [interval] · count" if claim.unit else f"speed-up [{words.percent(1 - claim.alpha)} interval] · rounds"
    )
    notes.append(note(1, height - 8, column, "right", quiet))
    if not claim.unit:
        notes.append(note(0, 14 - FOOT_PX, "◂ variant slower", "left", quiet, under=True))
        notes.append(note(1, 14 - FOOT_PX, "variant faster ▸", "right", quiet, under=True))
    traces = []
    for verdict in dict.fromkeys(effect.verdict for _, effect in placed):
        chosen = [(y, effect) for y, effect in placed if effect.verdict == verdict and effect.value is not None]
        if chosen:
            traces.append(_intervals(verdict, chosen, claim, floors, (left, right), colours))
    if claim.unit:
        title = words.label(f"{claim.effects[0].metric} [{claim.unit}]", 80)
        axis: Layout = {"type": "linear", "range": [left, right], "nticks": 6}
    else:
        ticks = ratio_ticks(left, right)
        title = "speed-up (t_baseline / t_variant), log scale"
        axis = {
            "type": "log",
            "range": [math.log10(left), math.log10(right)],
            "tickvals": list(ticks),
            "ticktext": list(ticks.values()),
        }
    # All at once: plotly checks every shape again with each one that is added, which took 0.3 s for eight rows.
    return go.Figure(
        data=traces,
        layout={
            "shapes": shapes,
            "annotations": notes,
            "xaxis": {
                **axis,
                "title": {"text": title, "font": {"size": SMALL + 1}, "standoff": 10},
                "showgrid": False,
                "zeroline": False,
                "ticks": "outside",
                "fixedrange": True,
            },
            "yaxis": {"range": [0, height], "visible": False, "fixedrange": True},
            "height": int(height + FOOT_PX + LEGEND_PX),
            "margin": {"l": 2, "r": 2, "t": LEGEND_PX, "b": FOOT_PX},
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": 1,
                "yanchor": "bottom",
                "xanchor": "left",
                "font": {"size": SMALL},
            },
            "hovermode": "closest",
            "dragmode": False,
        },
    )


def _intervals(
    verdict: str,
    chosen: Sequence[tuple[float, Effect]],
    claim: Claim,
    floors: Mapping[str, Floor],
    ends: tuple[float, float],
    colours: Palette,
) -> go.Scatter:
    """The rows of one verdict: one trace, so that the legend names the marker."""
    shown = words.look(verdict)
    colour = colours.verdict[shown.colour]
    ratios = [1.0 if effect.value is None else effect.value for _, effect in chosen]
    reach = [
        (ends[0] if effect.low is None else effect.low, ends[1] if effect.high is None else effect.high)
        for _, effect in chosen
    ]
    return go.Scatter(
        x=ratios,
        y=[y for y, _ in chosen],
        mode="markers",
        name=words.label(shown.word.lower(), 28),
        marker={"symbol": shown.symbol, "size": 8, "color": colour, "line": {"width": 2, "color": colour}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [end - x for x, (_, end) in zip(ratios, reach, strict=True)],
            "arrayminus": [x - start for x, (start, _) in zip(ratios, reach, strict=True)],
            "color": colour,
            "thickness": 2,
            "width": 6,
        },
        hovertext=[_effect_text(effect, claim, floors.get(effect.workload)) for _, effect in chosen],
        hoverinfo="text",
        showlegend=True,
    )


def _effect_text(effect: Effect, claim: Claim, floor: Floor | None) -> str:
    lines = [
        f"<b>{words.label(effect.where, 60)}</b>",
        words.label(effect.sides, 90),
        f"{words.label(effect.text)} · {words.label(words.look(effect.verdict).word.lower())}",
        f"{effect.rounds} rounds, {duration_text(effect.seconds or 0)}",
    ]
    if claim.claimed:
        lines.append(words.label(region_name(claim), 60))
    if floor:
        lines.append(f"A/A floor: {floor.low:.4f} to {floor.high:.4f}, {floor.rounds} rounds")
    lines += [words.label(note, 70) for note in effect.warnings]
    return "<br>".join(lines)
