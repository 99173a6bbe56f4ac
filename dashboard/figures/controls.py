"""What a machine made of identical code: one row a workload, its controls around 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from .. import words
from ..views.controls import Control, smallest
from .colours import LIGHT, Palette
from .drawing import Layout, box, figure, legend, marks, note, ratio_axis, rows_axis, rule

ROW_PX = 38  # a line of text and a track
TRACK_PX = 16
FOOT_PX = 58
LEGEND_PX = 30

KINDS = {"aa": ("entered twice", "circle"), "copy": ("identical copy", "diamond")}


def controls_forest(controls: Sequence[Control], colours: Palette = LIGHT) -> go.Figure:
    """One row a workload: its controls' ratios with their intervals around 1. What fired is red and says so.

    Controls without an interval are not drawn. The x axis is logarithmic.
    """
    known = [one for one in controls if one.smallest is not None]
    sizes = smallest(known)
    height = ROW_PX * max(1, len(sizes))
    ends = [end for one in known for end in (one.low, one.high, one.ratio) if end is not None]
    reach = max([0.01, *(abs(math.log(end)) for end in ends)]) * 1.06
    left, right = math.exp(-reach), math.exp(reach)
    tracks = {workload: height - ROW_PX * place - 28 for place, workload in enumerate(sizes)}
    several = len(known) > len(sizes)
    rows = [(tracks[one.workload] + several * (4 if one.kind == "aa" else -4), one) for one in known]
    ink, quiet = (colours.text, colours.page), (colours.muted, colours.page)
    shapes, notes = list[Layout](), list[Layout]()
    fired_on = {one.workload for one in known if one.fired}
    for workload, y in tracks.items():
        shapes.append(box(y, left, right, TRACK_PX / 2, colours.track))
        alarm = " <b>fired</b>" if workload in fired_on else ""
        notes.append(note(0, y + 17, f"{words.label(workload, 28)}{alarm}", "left", ink))
        notes.append(note(1, y + 17, f"±{100 * (sizes[workload] or 0):.2g} %", "right", quiet))
    return figure(
        [
            _marks([(y, one) for y, one in rows if one.kind == kind and one.fired == fired], colours)
            for kind in KINDS
            for fired in (False, True)
            if any(one.kind == kind and one.fired == fired for one in known)
        ],
        height=height + FOOT_PX + LEGEND_PX,
        margin=(5, 20, LEGEND_PX, FOOT_PX),
        shapes=[*shapes, rule(1, 1, 0, height, colours.muted)],
        annotations=notes,
        xaxis=ratio_axis(left, right, "time of the original / time of its twin [×]", gridcolor=colours.rule),
        yaxis=rows_axis(height),
        legend=legend(colours.text),
        showlegend=True,
    )


def _marks(rows: Sequence[tuple[float, Control]], colours: Palette) -> go.Scatter:
    """Controls of one kind that all fired, or none."""
    _, first = rows[0]
    name, symbol = KINDS[first.kind]
    colour = colours.verdict["red" if first.fired else "blue" if first.kind == "aa" else "gray"]
    return marks(
        [y for y, _ in rows],
        [1.0 if one.ratio is None else one.ratio for _, one in rows],
        [(one.low or 1, one.high or 1) for _, one in rows],
        [_hover(one) for _, one in rows],
        across=True,
        colour=colour,
        name=f"{name}{', fired' if first.fired else ''}",
        cap=3,
        marker={"symbol": symbol, "size": 8, "color": colour},
    )


def _hover(one: Control) -> str:
    name = KINDS.get(one.kind, (one.kind, ""))[0]
    ratio = "" if one.ratio is None else f"{one.ratio:.4f}× "
    return (
        f"<b>{words.label(one.workload)}</b><br>{words.label(one.variant)} ({words.label(name)})<br>"
        f"{ratio}[{one.low:.4f}, {one.high:.4f}], {one.rounds} rounds"
    )


def controls_text(controls: Sequence[Control]) -> str:
    """The forest in words: the widest five, and what fired."""
    known = [one for one in controls if one.smallest is not None]
    fired = [one.workload for one in known if one.fired]
    widest = ", ".join(f"{one.workload} ±{100 * (one.smallest or 0):.2g} %" for one in known[:5])
    return (
        f"{len(controls)} controls of identical code, {len(controls) - len(known)} with too few rounds for an "
        f"interval. {'Fired: ' + words.listing(fired) if fired else 'None fired'}. Widest: {widest or 'none'}."
    )
