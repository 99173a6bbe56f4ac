"""Shares of the time by phase as stacked bars, one bar a row; and where a difference is, a bar for each place."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from llama_workbench.harness.report.causes import CauseRow
from llama_workbench.variants.phase_map import PHASES

from .. import words
from ..views.breakdown import NAMES, PhaseShare, interval
from .colours import DARK, LIGHT, Palette
from .drawing import SMALL, Layout, axis, bar_rows, rule

Rows = Sequence[tuple[str, Sequence[PhaseShare]]]
"""The label of each bar, and its shares."""

CSS_PATTERNS = {
    "": "",
    "/": "repeating-linear-gradient(135deg, {ink} 0 1px, transparent 1px 4px), ",
    "x": "repeating-linear-gradient(135deg, {ink} 0 1px, transparent 1px 4px), "
    "repeating-linear-gradient(45deg, {ink} 0 1px, transparent 1px 4px), ",
    "\\": "repeating-linear-gradient(45deg, {ink} 0 1px, transparent 1px 4px), ",
}
"""Plotly's patterns in the legend."""

# Okabe and Ito's colours, light and dark enough that black text on one and white text on the other can be read. Parts
# of one thing share a colour and differ in their pattern; no colour is needed, since every bar has its name on it.
_LOOKS: dict[str, tuple[str, str, str]] = {
    "mask_create": ("#F2A27C", "#A4481A", ""),
    "mask_apply": ("#F2A27C", "#A4481A", "/"),
    "rope": ("#F3CF8E", "#7F6119", ""),
    "qkv": ("#8CC0E8", "#1F5F8B", ""),
    "scores": ("#BFE1F5", "#2B6F80", ""),
    "softmax": ("#BFE1F5", "#2B6F80", "/"),
    "output": ("#BFE1F5", "#2B6F80", "\\"),
    "attention_fused": ("#BFE1F5", "#2B6F80", "x"),
    "o_proj": ("#8CC0E8", "#1F5F8B", "/"),
    "cache": ("#F0E58A", "#6E6A1E", ""),
    "mlp": ("#8FD3BC", "#176B54", ""),
    "norm": ("#DDB5CC", "#7B4767", ""),
    "final_norm": ("#DDB5CC", "#7B4767", "/"),
    "lm_head": ("#C3B5E0", "#5A4B8A", ""),
    "embedding": ("#D5DAE0", "#4A545F", "/"),
    "other": ("#D5DAE0", "#4A545F", ""),
}


def phase_bars(rows: Rows, colours: Palette = LIGHT) -> go.Figure:
    """One bar of 100 % a row: phases in the order of a forward, named where there is room; above it label and ms."""
    ticks: Layout = {"tickvals": [0, 25, 50, 75, 100], "ticksuffix": " %", "gridcolor": colours.rule}
    times = [words.milliseconds(1e6 * sum(part.ms for part in parts)) for _, parts in rows]
    return bar_rows(
        [(words.label(name, 34), time) for (name, _), time in zip(rows, times, strict=True)],
        [_bar(phase, rows, colours) for phase in _present(rows)],
        colours,
        row_px=58,
        bar_px=28,
        foot_px=46,
        right_px=20,
        barmode="stack",
        uniformtext={"mode": "hide", "minsize": SMALL},
        xaxis=axis("share of the time [%]", standoff=4, range=[0, 100], **ticks),
    )


def _present(rows: Rows) -> list[str]:
    """The phases that were measured, in the order of a forward."""
    measured = {part.phase for _, parts in rows for part in parts}
    return [phase for phase in PHASES if phase in measured]


def phase_legend(rows: Rows, colours: Palette = LIGHT) -> str:
    """What each colour and pattern of the bars is, as HTML: plotly's own legend does not grow with its lines.

    Nothing of a file is in it.
    """
    entries = "".join(_legend_entry(phase, colours) for phase in _present(rows))
    return f'<div style="display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 12px">{entries}</div>'


def _legend_entry(phase: str, colours: Palette) -> str:
    light_fill, dark_fill, pattern = _LOOKS[phase]
    fill = dark_fill if colours == DARK else light_fill
    square = f"width: 12px; height: 12px; background: {CSS_PATTERNS[pattern].format(ink=colours.muted)}{fill}"
    return (
        '<span style="display: inline-flex; align-items: center; gap: 5px">'
        f'<span style="{square}"></span>{NAMES.get(phase, phase)}</span>'
    )


def _bar(phase: str, rows: Rows, colours: Palette) -> Layout:
    """One phase over all rows."""
    light_fill, dark_fill, pattern = _LOOKS[phase]
    shares = [next((part for part in parts if part.phase == phase), None) for _, parts in rows]
    return {
        "name": NAMES.get(phase, phase),
        "x": [share.percent if share else 0 for share in shares],
        "marker": {
            "color": dark_fill if colours == DARK else light_fill,
            "line": {"color": colours.page, "width": 1},
            "pattern": {
                "shape": pattern,
                "fillmode": "overlay",
                "size": 7,
                "solidity": 0.12,
                "fgcolor": colours.text,
                "fgopacity": 0.3,
            },
        },
        "text": [f"{share.name} {share.percent:.0f} %" if share and share.percent >= 4 else "" for share in shares],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "inside",
        "insidetextfont": {"color": colours.frame_text, "size": SMALL},
        "hovertext": [_hover(name, share) if share else "" for (name, _), share in zip(rows, shares, strict=True)],
    }


def _hover(name: str, share: PhaseShare) -> str:
    return (
        f"<b>{share.name}</b>, {words.label(name)}<br>{interval(share)}<br>"
        f"{words.milliseconds(share.ms * 1e6)} a call, {share.grade}"
    )


def phase_bars_text(rows: Rows) -> str:
    """The bars in words, the five largest phases of each."""
    largest = [(name, sorted(parts, key=lambda part: -part.percent)[:5]) for name, parts in rows]
    bars = [f"{name}: {', '.join(f'{part.name} {interval(part)}' for part in parts)}" for name, parts in largest]
    return f"Shares of the time. {'; '.join(bars)}."


# -- where a difference is ---------------------------------------------------------------------------------------------


def cause_bars(rows: Sequence[CauseRow], variant: str, colours: Palette) -> go.Figure:
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
        row_px=42,
        bar_px=12,
        foot_px=42,
        right_px=10,
        shapes=[rule(0, 0, 0, 1, colours.muted, yref="paper")],
        xaxis=axis(
            f"← less time in {words.label(variant, 20)}   [{rows[0].unit} a call]   more →",
            standoff=4,
            gridcolor=colours.rule,
        ),
    )


def cause_text(rows: Sequence[CauseRow]) -> str:
    """The bars in words."""
    return f"Where the difference is. {'; '.join(f'{row.name}: {row}' for row in rows)}."
