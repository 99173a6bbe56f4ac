"""A part of the page Explore: bars of two sides, time against memory, and what caching policies hold on to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

import plotly.graph_objects as go
import streamlit as st

from llama_workbench import variants
from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.export.svg import LIGHT, Palette
from llama_workbench.dashboard.sections import blocks
from llama_workbench.dashboard.sections.blocks import (
    ABOVE,
    SMALL,
    Layout,
    Mark,
    axis,
    bar_rows,
    figure,
    line,
    log_span,
    mark,
    marks,
    ratio_axis,
)
from llama_workbench.dashboard.views import data, outcomes, samples
from llama_workbench.dashboard.views.forest import linear_ticks

from ...evidence.evidence import Evidence
from ...store.files import RunError
from ...store.folder import RunFolder
from ...store.passes import MEMORY_SWEEP, Memory, Sweep
from ...store.verdict_schema import Effect

PAGE, KEY, TITLE, PLACE = "explore", "memory", "Memory", 2
MEASURED_BY = "--profile"

AMOUNTS = {
    "peak_transient_bytes": "Peak transient, above the weights",
    "parameter_bytes": "Parameters",
    "cache_bytes": "Kept: caches, copies of weights",
}
"""What is shown of a row of memory.json, each on an axis of its own: they differ by orders of magnitude."""

OF_FUNCTIONS = {"peak_transient_bytes": "Peak of a call", "kept_bytes": "Kept after a call"}
TOGETHER = "Kept and peak transient, above the weights"


def is_there(run: data.Run) -> bool:
    """Whether the run has the memory of single calls, or over lengths."""
    return bool(run.memory) or RunFolder(run.path).has(MEMORY_SWEEP)


def show(opened: state.Opened) -> None:
    """Of functions the bars of both sides; of models time against memory, and what caching policies hold."""
    run = opened.run
    profiled = list(dict.fromkeys(workload for workload, _ in run.memory))
    if run.is_of_functions:
        workload = blocks.choose_workload(run, profiled) if profiled else ""
        sides = [name for where, name in run.memory if where == workload]
        _show_bars(run, workload, sides, data.experiment(run, workload).baseline or "")
        return
    policies = blocks.computed("The sweeps cannot be shown.", opened, read_policies) or []
    workloads = list(dict.fromkeys([*profiled, *(one.row.workload for one in policies)]))
    workloads.sort(key=lambda name: data.experiment(run, name).workload.kind == "component")  # whole models come first
    workload = blocks.choose_workload(run, workloads) if workloads else ""
    blocks.header("Time against memory", anchor="tradeoff")
    if workload in profiled:
        show_tradeoff(opened, workload)
    else:
        blocks.missing("memory of single calls here", outcomes.with_profile(run, workload))
    blocks.header("What caching policies hold", anchor="policies")
    if here := [one for one in policies if one.row.workload == workload]:
        show_policies(here)
    else:
        blocks.missing("sweep over the number of lengths here", run.dispute.command("memory_sweep"))


# -- the sides of a comparison -----------------------------------------------------------------------------------------


def heading(run: data.Run, *, is_seen: bool) -> tuple[str, str]:
    """Memory is shown of any two variants."""
    return "Memory", "memory"


def show_sides(opened: state.Opened, effect: Effect, sides: Sequence[str], of: str) -> None:
    """The memory of both sides of an effect, once the reader opens it."""
    show_bars = partial(_show_bars, opened.run, effect.workload, sides, effect.baseline)
    blocks.folded("Peak of a call, and what stays", "show_memory", show_bars)


def _show_bars(run: data.Run, workload: str, sides: Sequence[str], baseline: str) -> None:
    """What `sides` (variants) need on one workload: transient peak, parameters, caches."""
    rows = [run.memory[workload, name] for name in sides if (workload, name) in run.memory]
    if not rows:
        blocks.missing("memory measurements here", outcomes.with_profile(run, workload))
        return
    amounts = OF_FUNCTIONS if run.is_of_functions else AMOUNTS
    amounts = {field: title for field, title in amounts.items() if any(getattr(row, field) for row in rows)} or amounts
    for column, (field, title) in zip(st.columns(len(AMOUNTS)), amounts.items(), strict=False):
        with column:
            st.markdown(f"**{title}**")
            alt = ", ".join(f"{row.variant} {words.size(getattr(row, field))}" for row in rows)
            blocks.plot(bars(rows, field, title, baseline, state.colours()), f"{title}. {alt}.", field)
    for name in sides:
        row = run.memory.get((workload, name))
        if reason := row.reason if row else "not measured on this workload":
            st.text(f"{name}: {reason}")
    if run.is_of_functions:
        st.caption(
            "The most that one call had allocated at a time, after warming up. Kept is what importing the function "
            "and a first call left: its answer, caches, globals. Counted once, without an interval."
        )
        return
    st.caption("After warming up; parameters and caches are counted from their shapes. Counted once, exactly.")


def bars(rows: Sequence[Memory], field: str, title: str, baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """Bars of one amount (a field of the rows) from 0, one per variant with its name and amount above it. title: what
    the amount is called."""
    amounts: list[float | None] = [getattr(row, field) for row in rows]
    largest = max((amount or 0.0 for amount in amounts), default=0.0)
    divisor, unit = words.byte_unit(largest)
    hovers = []
    for row, amount in zip(rows, amounts, strict=True):
        exact = f" ({amount:,.0f} bytes)" if amount is not None else f"<br>{words.label(row.reason or '', 90)}"
        hovers.append(f"<b>{words.label(row.variant)}</b><br>{title}: {words.size(amount)}{exact}")
    ticks = {place: f"{text} {unit}" if place else "0" for place, text in _byte_ticks(0.0, largest, divisor).items()}
    bar = go.Bar(
        x=[amount or 0 for amount in amounts],
        marker={"color": [colours.sides[row.variant != baseline] for row in rows]},
        hovertext=hovers,
    )
    return bar_rows(
        [(words.label(row.variant, 30), words.size(amount)) for row, amount in zip(rows, amounts, strict=True)],
        [bar],
        colours,
        ends=(0, largest or 1),
        ticks_at=ticks,
        row_px=40,
        bar_px=12,
        foot_px=30,
        right_px=24,
        quiet=False,
    )


# -- time against memory -----------------------------------------------------------------------------------------------

FRONT, BEATEN, OPEN = "on the front", "beaten", "not settled"
STANDING = {FRONT: ("blue", "circle"), BEATEN: ("gray", "x-thin"), OPEN: ("gray", "circle-open")}
"""What a rank comes to: colour and marker."""

SAME_AMOUNT = 1.01
"""Of two amounts: within 1 % neither is said to need more memory."""


@dataclass(frozen=True)
class Spot:
    """A variant in time (at `alpha`) and memory. rival: the variant that beats it, or may."""

    variant: str
    amount: float
    timing: Effect
    alpha: float
    standing: str = FRONT
    rival: str = ""

    @property
    def rank(self) -> str:
        """Its standing in words: "beaten by X", "behind X, not settled"."""
        ranks = {BEATEN: f"{BEATEN} by {self.rival}", OPEN: f"behind {self.rival}, {OPEN}"}
        return ranks.get(self.standing, self.standing)


def show_tradeoff(opened: state.Opened, workload: str) -> None:
    spots, missing, problem = state.computed(opened, read_tradeoff, workload)
    if problem:
        blocks.warn(f"Only judged effects are shown: {problem}")
    if spots:
        baseline = data.experiment(opened.run, workload).baseline or ""
        blocks.show_cards(opened.run, [spot.variant for spot in spots], [workload])
        blocks.plot(tradeoff_figure(spots, baseline, state.colours()), tradeoff_text(spots, baseline), "tradeoff")
        st.caption(
            "Up and to the left is better. On the front: no other variant is faster without needing more memory. "
            "Beaten: another one is better, and their intervals do not touch. Not settled: the order may be the other "
            "way round. Each dot has its number in the table. Kept is what a variant holds after a call beside the "
            "weights that it was given: caches, and copies of weights that it made. A cache that the call itself makes "
            "is also in its peak. Amounts within 1 % of each other count as the same."
        )
        rows = [_spot_row(number, spot) for number, spot in enumerate(spots, 1)]
        blocks.table(rows, "Variants by speed-up, with memory and rank")
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    blocks.notes("Not placed", [f"{reason}: {', '.join(names)}" for reason, names in by_reason.items()])


def read_tradeoff(run: data.Run, workload: str) -> tuple[list[Spot], dict[str, str], str]:
    """Spots, who is missing, and the problem with the samples if there is one."""
    try:
        return *tradeoff(run, samples.read_evidence(run), workload), ""
    except RunError as error:
        return *tradeoff(run, None, workload), error.brief


def tradeoff(run: data.Run, evidence: Evidence | None, workload: str) -> tuple[list[Spot], dict[str, str]]:
    """Every variant with the bytes that it needs beside the weights, and its speed-up, fastest first; and why others
    have no place."""
    baseline = data.experiment(run, workload).baseline or ""
    spots, missing = list[Spot](), dict[str, str]()
    for (where, variant), row in run.memory.items():
        if where != workload:
            continue
        time, alpha = samples.timing(run, evidence, workload, variant, baseline)
        # Outside of torch only what it hands over is counted.
        if variant in variants.names() and variants.get(variant).engine is not None:
            missing[variant] = "an engine, whose own memory is not counted"
        elif row.cache_bytes is None or row.peak_transient_bytes is None:
            missing[variant] = row.reason or "its memory was not measured"
        elif time.value is None:
            missing[variant] = "; ".join(time.said) or words.told(time)
        else:
            spots.append(Spot(variant, row.cache_bytes + row.peak_transient_bytes, time, alpha))
    spots.sort(key=lambda spot: -(spot.timing.value or 0))
    return [_ranked(spot, spots) for spot in spots], missing


def _ranked(spot: Spot, spots: Sequence[Spot]) -> Spot:
    """On the front where no other variant is faster without needing more memory; else behind the one that is."""

    def gain(other: Spot) -> float:
        return other.timing.value or 0.0

    high = spot.timing.upper
    rivals = [
        other
        for other in spots
        if (gain(other) > gain(spot) and other.amount <= SAME_AMOUNT * spot.amount)
        or (gain(other) == gain(spot) and other.amount < spot.amount)
    ]
    if not rivals:
        return spot
    rivals.sort(key=gain, reverse=True)
    for rival in rivals:
        if rival.timing.lower is not None and high is not None and rival.timing.lower > high:
            return replace(spot, standing=BEATEN, rival=rival.variant)
    return replace(spot, standing=OPEN, rival=rivals[0].variant)


def _spot_row(number: int, spot: Spot) -> dict[str, object]:
    timing, is_baseline = spot.timing, spot.timing.variant == spot.timing.baseline
    return {
        "no.": number,
        "variant": spot.variant,
        "speed-up [interval]": "1× (baseline)" if is_baseline else words.effect(timing),
        "confidence": "–" if is_baseline else words.percent(1 - spot.alpha),
        "rounds": "–" if is_baseline else str(timing.rounds),
        "memory": words.size(spot.amount),
        "rank": spot.rank,
        "note": "; ".join(timing.said),
    }


def tradeoff_figure(spots: Sequence[Spot], baseline: str, colours: Palette = LIGHT) -> go.Figure:
    """One numbered dot a variant where it was measured: bytes to the right, speed-up upwards; steps join the front."""
    amounts = [spot.amount for spot in spots]
    divisor, unit = words.byte_unit(max(amounts))
    spread = max(amounts) - min(amounts)
    air = 0.12 * spread or 0.1 * max(amounts) or 1.0
    left, right = max(min(amounts) - air, -air), max(amounts) + air
    timings = [spot.timing for spot in spots]
    bottom, top = log_span([math.log(end) for t in timings for end in (t.lower, t.value, t.upper) if end], 0.08, 0.01)
    dots: dict[str, list[Mark]] = {standing: [] for standing in STANDING}
    numbers: dict[str, list[str]] = {standing: [] for standing in STANDING}
    for number, spot in enumerate(spots, 1):
        ends = spot.timing.lower or bottom, spot.timing.upper or top
        dots[spot.standing].append((spot.amount, spot.timing.value or 1.0, *ends, _spot_text(number, spot, baseline)))
        numbers[spot.standing].append(str(number))
    traces = []
    if len(dots[FRONT]) > 1:
        x, y = zip(*sorted(dot[:2] for dot in dots[FRONT]), strict=True)
        traces.append(line(x, y, colours.muted, style={"dash": "dot", "shape": "hv"}, name="front"))
    numbered: Layout = {"mode": "markers+text", "textposition": "middle right"}
    numbered["textfont"] = {"size": SMALL, "color": colours.text}
    for standing, (ink, symbol) in STANDING.items():
        if dots[standing]:
            dot = mark(symbol, colours.verdict[ink], 9)
            look: Layout = {"name": standing, "marker": dot, "text": numbers[standing], **numbered}
            traces.append(marks(dots[standing], colour=dot["color"], thickness=1.5, cap=5, **look))
    name = f"speed-up over {words.label(baseline, 24)} (log)"
    ticks = _byte_ticks(max(left, 0.0), right, divisor)
    return figure(
        traces,
        colours,
        height=440,
        margin=(8, 8, 34, 8),
        xaxis=axis(f"{TOGETHER} ({unit})", range=[left, right], ticks_at=ticks, gridcolor=colours.rule),
        yaxis=ratio_axis(bottom, top, name, gridcolor=colours.rule),
        legend=ABOVE,
    )


def tradeoff_text(spots: Sequence[Spot], baseline: str) -> str:
    """The dots in words."""
    parts = [
        f"{number} {spot.variant}: {words.effect(spot.timing)}, {words.size(spot.amount)}, {spot.rank}"
        for number, spot in enumerate(spots, 1)
    ]
    return f"Speed-up over {baseline} against {TOGETHER.lower()}. {'; '.join(parts)}."


def _spot_text(number: int, spot: Spot, baseline: str) -> str:
    speed = "the baseline" if spot.variant == baseline else words.effect(spot.timing)
    return (
        f"<b>{number} {words.label(spot.variant, 50)}</b><br>{words.label(speed)}<br>{words.size(spot.amount)}<br>"
        f"{words.label(spot.rank, 70)}"
    )


# -- what policies hold ------------------------------------------------------------------------------------------------

HELD = {
    "mask": "Masks",
    "kv": "Keys and values",
    "rope": "RoPE tables",
    "caches": "Masks, keys and values, and RoPE tables",
}
"""What a sweep shows of each step."""

SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "pentagon", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


@dataclass(frozen=True)
class HeldStep:
    """What was held after `lengths` different lengths: bytes by a key of HELD, as measured and as computed."""

    lengths: int
    measured: Mapping[str, float]
    computed: Mapping[str, float]


@dataclass(frozen=True)
class Policy:
    """One variant's sweep."""

    row: Sweep
    steps: tuple[HeldStep, ...]


def read_policies(run: data.Run) -> list[Policy]:
    """The sweeps of memory_sweep.json. Raises RunError."""
    rows: list[Sweep] = RunFolder(run.path).read(MEMORY_SWEEP)
    return [
        Policy(
            row,
            tuple(
                HeldStep(len(step.lengths), _held(step.held), _held(step.computed.held if step.computed else {}))
                for step in row.steps
                if step.lengths
            ),
        )
        for row in rows
    ]


def _held(kinds: Mapping[str, int]) -> dict[str, float]:
    held: dict[str, float] = {kind: kinds[kind] for kind in ("mask", "kv", "rope") if kind in kinds}
    return held | ({"caches": sum(held.values())} if len(held) == 3 else {})


def percent_of(size: float | None, weights: float | None) -> str:
    """How much of the weights' bytes, in percent."""
    return "–" if size is None or not weights else f"{100 * size / weights:.3g} %"


def show_policies(here: Sequence[Policy]) -> None:
    kind = state.choose("Held", HELD, "held")
    shown = [one for one in here if any(kind in step.measured for step in one.steps)]
    if shown:
        blocks.plot(policies_figure(shown, kind, state.colours()), _policies_text(shown, kind), "policies")
        longest = max(max(one.row.served or [0]) for one in shown)
        st.caption(
            f"After serving 1, 2, 4, … prompts of different length, evenly spread up to {longest:,} tokens. "
            "Dots are the live tensors of the running model; lines are the memory to expect by the policy alone. Where "
            "dots lie on their line, the policy explains every byte. Counted once, exactly: no interval."
        )
    blocks.notes("Not swept to the end", [f"{one.row.variant}: {one.row.reason}" for one in here if one.row.reason])


def _policies_text(shown: Sequence[Policy], kind: str) -> str:
    parts = []
    for policy in shown:
        last = next(step for step in reversed(policy.steps) if kind in step.measured).measured[kind]
        share = percent_of(last, policy.row.weights_bytes)
        parts.append(f"{policy.row.variant} {words.size(last)} ({share} of the weights)")
    return f"{HELD[kind]} after {max(policy.steps[-1].lengths for policy in shown)} lengths: {'; '.join(parts)}."


def policies_figure(sweeps: Sequence[Policy], kind: str, colours: Palette = LIGHT) -> go.Figure:
    """Bytes of one kind (a key of HELD) over the number of lengths: dots measured, lines computed from the policy."""
    steps = [step for sweep in sweeps for step in sweep.steps]
    most = max(
        [size for step in steps for size in (step.measured.get(kind), step.computed.get(kind)) if size], default=1.0
    )
    divisor, unit = words.byte_unit(most)
    traces = []
    inks = cycle(reversed(list(colours.verdict.values())))
    for sweep, ink, symbol, dash in zip(sweeps, inks, cycle(SYMBOLS), cycle(DASHES), strict=False):
        name = words.label(sweep.row.variant, 40)
        computed = {step.lengths: step.computed[kind] for step in sweep.steps if kind in step.computed}
        measured = {step.lengths: step.measured[kind] for step in sweep.steps if kind in step.measured}
        if computed:
            x, y = list(computed), list(computed.values())
            traces.append(line(x, y, ink, 2, style={"dash": dash}, name=f"{name}, computed"))
        traces.append(
            go.Scatter(
                x=list(measured),
                y=list(measured.values()),
                mode="markers" if computed else "lines+markers",
                marker={"symbol": symbol, "size": 9, "color": ink},
                line={"color": ink, "width": 1, "dash": dash},
                name=f"{name}, measured",
                hovertext=[
                    f"<b>{name}</b><br>{lengths} lengths: {words.size(size)} ({size:,.0f} bytes)<br>"
                    f"{percent_of(size, sweep.row.weights_bytes)} of the weights"
                    for lengths, size in measured.items()
                ],
                hoverinfo="text",
            )
        )
    labels = {step.lengths: str(step.lengths) for step in steps}
    name = f"{HELD[kind]} ({unit})" if len(HELD[kind]) < 24 else unit
    grid: Layout = {"gridcolor": colours.rule}
    return figure(
        traces,
        colours,
        height=360 + 20 * len(sweeps),
        margin=(8, 8, 8, 8),
        xaxis=axis("different prompt lengths served (log)", type="log", ticks_at=labels, **grid),
        yaxis=axis(name, range=[0, 1.08 * most], ticks_at=_byte_ticks(0.0, most, divisor), **grid),
        legend={**ABOVE, "y": -0.2, "yanchor": "top"},
    )


def _byte_ticks(low: float, high: float, divisor: float) -> dict[float, str]:
    """Round ticks in the unit of `divisor`."""
    ticks = linear_ticks(low / divisor, high / divisor)
    return {min(max(divisor * tick, low), high): text for tick, text in ticks.items()}
