"""Data → plotly figures: pure functions, so that a test can look at every trace and label.

Colours are Okabe and Ito's, which people with any of the common colour-vision deficiencies can tell apart, and no
meaning rests on colour alone. Text that is ours lies on a fill that is ours, if only one that looks like the page: the
server learns late that somebody's browser turned dark, and text must be readable until then. Strings from files go
through `words.label`, since plotly reads HTML tags in every label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from llama_workbench.harness.report import duration_text

from . import words
from .data import Claim, Effect, Floor, Memory, Profile
from .frames import Frame, by_own_time

# Heights in pixels. The forest plot's y axis counts pixels, so that a row is as high on a phone as on a wall.
ROW_PX = 46  # a line of text and a track
TRACK_PX = 20
GROUP_PX = 26  # a heading
HEAD_PX = 18
LEGEND_PX = 34
FOOT_PX = 66  # tick labels and title
BAR_PX = 40  # a line of text and a bar
LEVEL_PX = 24  # a level of a flamegraph
SMALL = 12  # font size of labels inside a figure

FLOOR = "A/A floor"
EITHER = "#707A85"  # can be read on white and on the dark background

Layout = dict[str, Any]  # one shape or annotation, as plotly takes it


@dataclass(frozen=True)
class Palette:
    """Colours of one appearance; `verdict` follows the theme's green, red, ... of the same names."""

    verdict: Mapping[str, str]
    region: str
    region_edge: str
    floor: str
    floor_edge: str
    page: str
    text: str
    muted: str
    rule: str
    track: str
    frames: Mapping[str, str]
    frame_text: str
    frame_edge: str
    sides: tuple[str, str]


LIGHT = Palette(
    verdict={
        "green": "#007A5A",
        "red": "#C04A00",
        "violet": "#A8447C",
        "gray": "#5F6B7A",
        "orange": "#9A6700",
        "blue": "#0072B2",
    },
    region="rgba(86,180,233,0.30)",
    region_edge="rgba(0,114,178,0.75)",
    floor="rgba(95,107,122,0.32)",
    floor_edge="rgba(95,107,122,0.55)",
    page="#FFFFFF",
    text="#17212B",
    muted="#5F6B7A",
    rule="rgba(95,107,122,0.18)",
    track="rgba(95,107,122,0.07)",
    frames={"variant": "#A9D3EE", "torch": "#F3CF8E", "library": "#DDB5CC", "other": "#D5DAE0"},
    frame_text="#17212B",
    frame_edge="#FFFFFF",
    sides=("#7A8794", "#0072B2"),
)
DARK = Palette(
    verdict={
        "green": "#2FC49A",
        "red": "#F08A4B",
        "violet": "#DF9CC2",
        "gray": "#A3AEBB",
        "orange": "#E6B450",
        "blue": "#6BB8EC",
    },
    region="rgba(86,180,233,0.26)",
    region_edge="rgba(107,184,236,0.80)",
    floor="rgba(163,174,187,0.30)",
    floor_edge="rgba(163,174,187,0.55)",
    page="#12171D",
    text="#E6EBF0",
    muted="#A3AEBB",
    rule="rgba(163,174,187,0.18)",
    track="rgba(163,174,187,0.09)",
    frames={"variant": "#2B6A92", "torch": "#7F6119", "library": "#7B4767", "other": "#4A545F"},
    frame_text="#F2F5F8",
    frame_edge="#12171D",
    sides=("#8B97A3", "#6BB8EC"),
)

KINDS = {"variant": "the variant's own code", "torch": "torch", "library": "other libraries", "other": "the rest"}
TORCH_FOLDERS = {"torch", "nn", "modules", "autograd", "utils", "attention", "_ops", "_refs", "_prims", "_inductor"}


def palette(appearance: str | None) -> Palette:
    """`st.context.theme.type` → colours; anything but "dark" is light."""
    return DARK if appearance == "dark" else LIGHT


# -- the forest plot ---------------------------------------------------------------------------------------------


def forest(claim: Claim, floors: Mapping[str, Floor], colours: Palette = LIGHT) -> go.Figure:
    """One row per effect: its value with its interval, the claimed region, the line at 1 and the A/A floor.

    The x axis is logarithmic, so that twice as fast and half as fast are equally far from 1; of readings, which have a
    unit, it is linear and has neither the line nor a floor. A row is a line of text
    and a track under it, which needs no room at the side and so fits a phone. Rows stand in the order of the file,
    under a heading per baseline where there are several. An open end of an interval runs to the edge.
    """
    rows, headings, height = _rows(claim.effects)
    if claim.unit:
        floors = {}
    left, right = _linear_span(claim) if claim.unit else _span(claim, floors)
    region = claim.low is not None or claim.high is not None
    shapes: list[Layout] = []
    for y, effect in rows:
        shapes.append(_box(y, left, right, TRACK_PX / 2, colours.track))
        if region:
            low = left if claim.low is None else max(claim.low, left)
            high = right if claim.high is None else min(claim.high, right)
            shapes.append(_box(y, low, high, TRACK_PX / 2, colours.region, name=_region_name(claim)))
            shapes += [
                _rule(y, edge, colours.region_edge, "dot") for edge in (claim.low, claim.high) if edge is not None
            ]
        if floor := floors.get(effect.workload):
            box = _box(y, floor.low, floor.high, TRACK_PX / 2 - 3, colours.floor, colours.floor_edge, FLOOR)
            shapes.append(box)
        if not claim.unit:
            shapes.append(_rule(y, 1, colours.muted, "solid"))
    for name in (_region_name(claim), FLOOR):  # each once in the legend
        if first := next((shape for shape in shapes if shape["name"] == words.label(name, 40)), None):
            first["showlegend"] = True
    ink, quiet = (colours.text, colours.page), (colours.muted, colours.page)
    notes = [_note(0, y, f"against <b>{words.label(name, 40)}</b>", "left", ink) for y, name in headings]
    for y, effect in rows:
        above = y + TRACK_PX / 2 + 10
        notes.append(_note(0, above, words.label(effect.where, 30), "left", ink))
        notes.append(_note(1, above, f"{words.label(effect.text)} · {effect.rounds}", "right", ink))
    column = (
        "value [interval] · count" if claim.unit else f"speed-up [{words.percent(1 - claim.alpha)} interval] · rounds"
    )
    notes.append(_note(1, height - 8, column, "right", quiet))
    if not claim.unit:
        notes.append(_note(0, 14 - FOOT_PX, "◂ variant slower", "left", quiet, under=True))
        notes.append(_note(1, 14 - FOOT_PX, "variant faster ▸", "right", quiet, under=True))
    traces = []
    for verdict in dict.fromkeys(effect.verdict for _, effect in rows):
        chosen = [(y, effect) for y, effect in rows if effect.verdict == verdict and effect.value is not None]
        if chosen:
            traces.append(_intervals(verdict, chosen, claim, floors, (left, right), colours))
    if claim.unit:
        title = words.label(f"{claim.effects[0].metric} [{claim.unit}]", 80)
        axis: Layout = {"type": "linear", "range": [left, right], "nticks": 6}
    else:
        ticks = _ticks(left, right)
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


def _box(
    y: float, x0: float, x1: float, half_px: float, fill: str, edge: str = "rgba(0,0,0,0)", name: str = ""
) -> Layout:
    """A rectangle around a row's track; a `name` is for the legend."""
    return {
        "type": "rect",
        "x0": x0,
        "x1": x1,
        "y0": y - half_px,
        "y1": y + half_px,
        "fillcolor": fill,
        "line": {"width": 1 if name == FLOOR else 0, "color": edge},
        "layer": "below",
        "name": words.label(name, 40),
        "showlegend": False,
    }


def _rule(y: float, x: float, colour: str, dash: str) -> Layout:
    """An upright line over a row's track."""
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "y0": y - TRACK_PX / 2,
        "y1": y + TRACK_PX / 2,
        "line": {"color": colour, "width": 1, "dash": dash},
        "layer": "below",
        "name": "",
    }


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


def forest_text(claim: Claim, floors: Mapping[str, Floor]) -> str:
    """The forest plot in a sentence a row, for those who do not see it."""
    rows = []
    for effect in claim.effects:
        floor = floors.get(effect.workload)
        known = f", A/A floor {floor.low:.3f} to {floor.high:.3f}" if floor else ""
        against = f" against {effect.baseline}" if effect.baseline else ""
        rows.append(f"{effect.where}{against}: {effect.text}, {effect.verdict}{known}")
    return (
        f"{'Value' if claim.unit else 'Speed-up'} per workload, {_region_name(claim)}. "
        + ". ".join(rows or ["No rows"])
        + "."
    )


def _region_name(claim: Claim) -> str:
    return f"{'margin' if claim.is_comparison else 'claimed'}: {claim.claimed or 'not recorded'}"


def _rows(effects: Sequence[Effect]) -> tuple[list[tuple[float, Effect]], list[tuple[float, str]], float]:
    """Tracks and headings with the height of their middle above the axis in pixels, and the height of all of them."""
    baselines = list(dict.fromkeys(effect.baseline for effect in effects))
    several = len(baselines) > 1
    top = ROW_PX * len(effects) + (GROUP_PX * len(baselines) if several else 0) + HEAD_PX
    y, rows, headings = float(top - HEAD_PX), [], []
    for baseline in baselines:
        if several:
            y -= GROUP_PX
            headings.append((y + 10, baseline))
        for effect in effects:
            if effect.baseline == baseline:
                y -= ROW_PX
                rows.append((y + TRACK_PX / 2 + 3, effect))
    return rows, headings, top


def _span(claim: Claim, floors: Mapping[str, Floor]) -> tuple[float, float]:
    """Ends of the axis: everything that is finite, and some air."""
    known = [1.0, claim.low, claim.high]
    for effect in claim.effects:
        known += [effect.value, effect.low, effect.high]
        if floor := floors.get(effect.workload):
            known += [floor.low, floor.high]
    logs = [math.log(value) for value in known if value is not None and value > 0]
    low, high = min(logs), max(logs)
    air = max(0.08 * (high - low), 0.003)
    return math.exp(low - air), math.exp(high + air)


def _linear_span(claim: Claim) -> tuple[float, float]:
    """The same for values with a unit; from 0 where nothing is below."""
    known = [claim.low, claim.high]
    for effect in claim.effects:
        known += [effect.value, effect.low, effect.high]
    values = [value for value in known if value is not None] or [0.0, 1.0]
    low, high = min(0.0, *values), max(0.0, *values)
    air = 0.05 * (high - low) or 1.0
    return low - (air if low < 0 else 0.0), high + air


def _ticks(left: float, right: float) -> dict[float, str]:
    """Up to eight round ratios between the ends with their labels: evenly stepped on a short axis, else 1-2-5."""
    air = 0.02 * math.log(right / left)  # plotly hides a label that does not fit in at the edge, but not its tick
    low, high = left * math.exp(air), right * math.exp(-air)
    if right / left > 4:
        digits = (1,) if right / left > 1000 else (1, 2, 5) if right / left > 12 else (1, 1.5, 2, 3, 4, 5, 7)
        values = [digit * 10.0**power for power in range(-9, 10) for digit in digits]
        return {value: f"{value:.10g}×" for value in values if low <= value <= high}
    for step in (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < 6:
            places = max(0, -math.floor(math.log10(step) + 1e-9))
            return {round(step * k, 6): f"{step * k:.{places}f}×" for k in range(first, last + 1)}
    return {1.0: "1×"}


def _effect_text(effect: Effect, claim: Claim, floor: Floor | None) -> str:
    lines = [
        f"<b>{words.label(effect.where, 60)}</b>",
        words.label(effect.sides, 90),
        f"{words.label(effect.text)} · {words.label(words.look(effect.verdict).word.lower())}",
        f"{effect.rounds} rounds, {duration_text(effect.seconds or 0)}",
    ]
    if claim.claimed:
        lines.append(words.label(_region_name(claim), 60))
    if floor:
        lines.append(f"A/A floor: {floor.low:.4f} to {floor.high:.4f}, {floor.rounds} rounds")
    lines += [words.label(note, 70) for note in effect.warnings]
    return "<br>".join(lines)


def _note(x: float, y: float, text: str, align: str, ink: tuple[str, str], *, under: bool = False) -> Layout:
    """Text in `ink` (its colour and the fill behind it) at the left or right edge of the plot.

    `y` is a height on the y axis, or for text `under` the x axis a distance from it in pixels.
    """
    return {
        "x": x,
        "xref": "paper",
        "y": 0 if under else y,
        "yref": "paper" if under else "y",
        "yshift": y if under else 0,
        "text": text,
        "showarrow": False,
        "xanchor": align,
        "yanchor": "middle",
        "borderpad": 0,
        "bgcolor": ink[1],
        "font": {"size": SMALL, "color": ink[0]},
    }


# -- the flamegraph ----------------------------------------------------------------------------------------------


def flamegraph(profile: Profile, widest_ns: float | None = None, colours: Palette = LIGHT) -> go.Figure:
    """Icicle of one profile, outermost frame on top, box width in time: share of samples × median time of a call.

    `widest_ns` is the time that the full width stands for; give both sides of a comparison the same, and a
    millisecond is as wide on the left as on the right. Without a median time, widths are shares.
    """
    root = profile.shown
    if root is None or not root.samples:
        raise ValueError("no profile to draw")
    total_ns = profile.median_ns
    # Whole samples, never milliseconds: plotly draws nothing if rounding makes children exceed their parent.
    width = root.samples
    if total_ns and widest_ns and widest_ns > total_ns:
        width = math.ceil(root.samples * widest_ns / total_ns)
    # The root is no frame: its box, as wide as the picture, carries the scale.
    scale = f"full width = {words.milliseconds(max(total_ns, widest_ns or 0))} a call" if total_ns else ""
    ids, parents, values, texts, hovers, fills = ["0"], [""], [width], [scale], [scale], ["rgba(0,0,0,0)"]
    inks = [EITHER]
    numbers: dict[int, str] = {}
    for _, frame in root.walk():
        if frame is root:
            numbers[id(frame)] = "0"
        for child in frame.children:
            name = numbers[id(child)] = str(len(ids))
            ids.append(name)
            parents.append(numbers[id(frame)])
            values.append(child.samples)
            title = words.label(f"line {child.line}" if child.line else child.name, 60)
            texts.append(f"{title}  {_amount(child.samples, root.samples, total_ns)}")
            inks.append(colours.frame_text)
            hovers.append(_frame_text(child, root.samples, total_ns))
            fills.append(colours.frames[kind(child)])
    figure = go.Figure(
        go.Icicle(
            ids=ids,
            parents=parents,
            labels=texts,  # plotly draws nothing without labels
            values=values,
            hovertext=hovers,
            hoverinfo="text",
            branchvalues="total",
            sort=False,
            textinfo="label",
            textposition="middle left",
            textfont={"color": inks, "size": SMALL},
            leaf={"opacity": 1},
            marker={"colors": fills, "line": {"color": colours.frame_edge, "width": 1}},
            root={"color": "rgba(0,0,0,0)"},
            tiling={"orientation": "v", "pad": 0},
            pathbar={"visible": False},
        )
    )
    figure.update_layout(
        height=LEVEL_PX * (root.depth + 1) + 4,
        margin={"l": 0, "r": 0, "t": 0, "b": 4},
        uniformtext={"minsize": 10, "mode": "hide"},
    )
    return figure


def flamegraph_text(profile: Profile, most: int = 3) -> str:
    """The flamegraph in a sentence: the time of a call and the functions with the most time of their own."""
    if profile.root is None:
        return f"No profile of {profile.variant}: {profile.reason}."
    total = profile.root.samples
    largest = [
        f"{name} {_amount(samples, total, profile.median_ns)}" for name, _, samples in by_own_time(profile.root)[:most]
    ]
    return (
        f"Flamegraph of {profile.variant} on {profile.workload}, {words.milliseconds(profile.median_ns)} a call, "
        f"{total} samples. Most time of their own: {', '.join(largest)}."
    )


def kind(frame: Frame) -> str:
    """Whose code a frame is, by its file: a key of KINDS.

    A run keeps two parts of each path (`modular/attention.py`, `nn/functional.py`), so this goes by the folder's name,
    and what it does not know is "the rest".
    """
    parts = frame.file.replace("\\", "/").split("/")
    folders = set(parts[:-1])
    if folders & {"variants", "modular"}:
        return "variant"
    if folders & TORCH_FOLDERS or parts[-1].startswith(("libtorch", "libc10", "libmkl", "libgomp")):
        return "torch"
    return "library" if folders & {"transformers", "models", "llama", "integrations", "site-packages"} else "other"


def kinds(profiles: Iterable[Profile]) -> list[str]:
    """The kinds that the pictures of these profiles show, in the order of KINDS."""
    shown = {kind(frame) for profile in profiles if profile.shown for level, frame in profile.shown.walk() if level}
    return [name for name in KINDS if name in shown]


def _amount(samples: int, total: int, total_ns: float | None) -> str:
    if total_ns is None:
        return f"{100 * samples / total:.3g} %"
    return words.milliseconds(total_ns * samples / total)


def _frame_text(frame: Frame, total: int, total_ns: float | None) -> str:
    share = frame.samples / total
    error = math.sqrt(share * (1 - share) / total)
    place = f"{frame.file}:{frame.line}" if frame.line else frame.file
    lines = [f"<b>{words.label(frame.name, 90)}</b>"]
    if place:
        lines.append(words.label("/".join(place.split("/")[-4:]), 90))
    if total_ns is not None:
        lines.append(f"{words.milliseconds(total_ns * share)} a call ± {words.milliseconds(total_ns * error)}")
    lines.append(f"{100 * share:.1f} % ± {100 * error:.1f} % of {total} samples, {frame.own} its own")
    return "<br>".join(lines)


# -- memory ------------------------------------------------------------------------------------------------------

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
    divisor, unit = _unit(largest)
    step = _step(largest / divisor)
    ticks = [step * k for k in range(6) if step * k * divisor <= largest]
    height = BAR_PX * len(rows)
    middles = [height - BAR_PX * (place + 1) + 8 for place in range(len(rows))]
    ink = (colours.text, colours.page)
    notes: list[Layout] = []
    hovers = []
    for y, row, amount in zip(middles, rows, amounts, strict=True):
        notes.append(_note(0, y + 17, words.label(row.variant, 30), "left", ink))
        notes.append(_note(1, y + 17, words.size(amount), "right", ink))
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


def _unit(largest: float) -> tuple[float, str]:
    """Divisor and name of the binary unit in which `largest` is below a thousand."""
    divisor = 1.0
    for unit in ("B", "KiB", "MiB", "GiB"):
        if largest / divisor < 1000:
            return divisor, unit
        divisor *= 1024
    return divisor, "TiB"


def _step(largest: float) -> float:
    """A round tick step with two to four ticks up to `largest`."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (0.25, 0.5, 1, 2.5, 5) if largest / (step * power) < 4.5)
