"""Two variants on one workload: their times, process by process, and whether both do the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from numpy.typing import NDArray

from llama_workbench.harness.report.text import call_time, unit_of
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.verdict_schema import Effect

from .. import state, words
from ..export.svg import LIGHT, Palette
from ..views import data, outcomes, samples
from . import blocks
from .blocks import ABOVE, SMALL, Layout, area, axis, figure, line, log_span, mark, marks, ratio_axis, rule

UNREADABLE = "The processes cannot be shown: the samples of this run cannot be read."

MEANING = {
    "the same": "Both sides ran the same operations on the same shapes in the same order: what differs is how they "
    "were called, which is what architecture can change.",
    "differ": "The two sides ran different operations. A difference in time between them is no evidence on "
    "architecture: it may come from the operations.",
    "not compared": "This run did not record the operations of both sides, so it cannot say whether they are the same.",
}


def show_times(opened: state.Opened, effect: Effect) -> None:
    """Both distributions: the time of a call in each process."""
    asked = effect.workload, (effect.baseline, effect.variant)
    times = blocks.computed(UNREADABLE, opened, samples.process_times_ns, *asked)
    if times and all(map(len, times.values())):
        blocks.plot(distributions(times, state.colours()), distributions_text(times), "times")
        st.caption("A dot is the median time of a call in one process, on this machine. The line is their median.")
        with st.popover("Save the samples", icon=":material/download:", type="tertiary"):
            for kind in ("CSV", "Parquet"):
                content = partial(samples.samples_file, opened.run, *asked, kind)
                st.download_button(kind, content, f"samples.{kind.lower()}", on_click="ignore")


def show_rounds_of_claim(opened: state.Opened, claim: data.Claim, effect: Effect) -> None:
    """The processes behind one effect of a claim, with what was claimed where that is a ratio of times."""
    asked = effect.workload, effect.variant, effect.baseline, claim.time, claim.alpha, effect.one_sided
    paired = blocks.computed(UNREADABLE, opened, samples.pair, *asked)
    if paired is None:
        return
    if not len(paired.ratios):
        st.text("No process has both sides.")
        return
    ratio = not claim.unit and claim.kind == "time"
    drawn = paired_rounds(
        paired,
        look=outcomes.look_of_row(claim, effect.verdict),
        claimed=f"{claim.range_word}: {claim.claimed}",
        low=claim.low if ratio else None,
        high=claim.high if ratio else None,
        colours=state.colours(),
    )
    blocks.plot(drawn, in_words(paired), "rounds")
    share = words.percent(paired.invalid_share)
    invalid = f" {share} of the processes had no valid time." if paired.invalid_share else ""
    st.caption(
        f"A dot is one fresh process, which times both sides in turn ({paired.clock} clock). Grey: the interval so "
        f"far, with {words.percent(1 - paired.alpha)} confidence however often one looks. Dots that wander or jump: "
        f"the machine changed during the run.{invalid}"
    )


def show_same(run: data.Run, workload: str, baseline: str, variant: str) -> None:
    """Whether both sides do the same: of models their operations, of functions their answers."""
    if not run.is_of_functions:
        _show_operations(run, workload, baseline, variant)
        return
    blocks.header("Answers of both sides", anchor="answers", within=True)
    checked = data.experiment(run, workload).gates
    states = [outcomes.logits(checked.get(side)) for side in (baseline, variant)]
    how = data.experiment(run, workload).workload.check
    by = f"by {how}" if how else "by ==, tensors and arrays within rounding"
    agreed = "gave the same answers" if states == ["pass", "pass"] else f"were compared: {', '.join(states)}"
    blocks.say(f"Before and while they were timed, both functions {agreed}. Answers were compared {by}.")


def _show_operations(run: data.Run, workload: str, baseline: str, variant: str) -> None:
    """Both op traces side by side on one workload: how many, where they differ, and what one side ran more often."""
    blocks.header("Operations of both sides", anchor="operations", within=True)
    traces = outcomes.traces(run, workload, baseline, variant)
    st.markdown(f"**{words.markdown(traces.state.capitalize())}.** {words.markdown(MEANING[traces.state])}")
    ours, theirs = f"{baseline} (baseline)", f"{variant} (variant)"
    if traces.rows:
        rows = pd.DataFrame(traces.rows, columns=["what", ours, theirs])
        blocks.table(rows, f"Operations of one call of {baseline} and of {variant}")
    if traces.counts:
        st.caption("Operations that one side ran more often than the other, in one call")
        counts = pd.DataFrame(traces.counts, columns=["operation", ours, theirs])
        blocks.table(counts, "Operations by how often each side ran them")


# -- the figures -------------------------------------------------------------------------------------------------------


def distributions(times_ns: Mapping[str, NDArray[np.float64]], colours: Palette) -> go.Figure:
    """Both sides below each other on one axis: a dot a process, their quartiles and their median."""
    unit_ns, unit = unit_of(max(float(np.median(times)) for times in times_ns.values()))
    boxes = [
        go.Box(
            x=times / unit_ns,
            name=words.label(side, 40),
            orientation="h",
            boxpoints="all",
            jitter=0.6,
            pointpos=0,
            marker={"size": 4, "color": ink, "opacity": 0.6},
            line={"width": 1.5, "color": ink},
            fillcolor="rgba(0,0,0,0)",
            hoverinfo="x",
        )
        for (side, times), ink in zip(times_ns.items(), colours.sides, strict=True)
    ]
    return figure(
        boxes,
        colours,
        height=190,
        margin=(8, 8, 4, 8),
        xaxis=axis(f"time of a call [{unit}]", rangemode="tozero", gridcolor=colours.rule),
        yaxis={"autorange": "reversed", "automargin": True, "fixedrange": True},
        showlegend=False,
    )


def distributions_text(times_ns: Mapping[str, NDArray[np.float64]]) -> str:
    """The same in words."""
    parts = [
        f"{side} {call_time(middle)} in the middle of {len(times)} processes, half of them from {call_time(low)} to "
        f"{call_time(high)}"
        for side, times in times_ns.items()
        for low, middle, high in [np.quantile(times, [0.25, 0.5, 0.75]).tolist()]
    ]
    return f"Times of a call by process: {'; '.join(parts)}."


def paired_rounds(
    paired: samples.Paired,
    *,
    look: words.Appearance = Word.NOT_ASKED.look,
    claimed: str = "",
    low: float | None = None,
    high: float | None = None,
    colours: Palette = LIGHT,
) -> go.Figure:
    """A dot a process, the interval as it closed in, and where it ended. Raises ValueError without processes.

    look: of the verdict. `low` to `high`: the claimed region of ratios, if any, drawn where it is near the processes.
    """
    if not len(paired.ratios):
        raise ValueError("no processes to draw")
    count = len(paired.ratios)
    bottom, top = _span(paired, low, high)
    end = count + max(1.0, 0.04 * count)
    traces = _closing(paired, colours)
    traces.append(
        go.Scatter(
            x=np.arange(1, count + 1),
            y=paired.ratios,
            mode="markers",
            marker={"size": 5, "color": colours.sides[1], "opacity": 0.6},
            name="one process",
            hovertext=[f"process {k}: {ratio:.4f}×" for k, ratio in enumerate(paired.ratios, 1)],
            hoverinfo="text",
        )
    )
    if (settled := paired.effect).value is not None:
        colour, ends = colours.verdict[look.colour], (settled.lower or bottom, settled.upper or top)
        traces.append(
            marks(
                [(end, settled.value, *ends, words.label(words.effect(settled)))],
                colour=colour,
                name=f"after {count} processes",
                thickness=2.5,
                marker=mark(look.symbol, colour, 10),
                showlegend=False,
            )
        )
    quiet: Layout = {"showgrid": False, "ticks": "outside", "nticks": 7}
    return figure(
        traces,
        colours,
        height=360,
        margin=(8, 8, 8, 8),
        shapes=_shapes(paired, claimed, (low, high), (bottom, top), colours),
        xaxis=axis("process, in the order of measuring", SMALL + 1, range=[0.5, end + max(0.7, 0.02 * count)], **quiet),
        yaxis=ratio_axis(bottom, top, "speed-up over the baseline (log scale)", SMALL + 1, gridcolor=colours.rule),
        legend={**ABOVE, "y": 1.02},
    )


def _shapes(
    paired: samples.Paired,
    claimed: str,
    region: tuple[float | None, float | None],
    ends: tuple[float, float],
    colours: Palette,
) -> list[Layout]:
    """The line at 1, the median of the processes, and the claimed region within the picture's ends."""
    (low, high), (bottom, top) = region, ends
    across: Layout = {"x0": 0, "x1": 1, "xref": "paper"}
    middle = float(np.median(paired.ratios))
    median = rule(y0=middle, y1=middle, colour=colours.sides[1], dash="dash", **across)
    median |= {"name": "median of the processes", "showlegend": True}
    median["line"]["width"] = 1.5
    shapes = [rule(y0=1, y1=1, colour=colours.muted, **across), median]
    inside = max(low or 0, bottom), min(high or math.inf, top)
    if (low is not None or high is not None) and inside[0] < inside[1]:
        named: Layout = {"xref": "paper", "name": words.label(claimed, 40), "showlegend": True}
        shapes.append(area(0, 1, *inside, colours.region, **named))
        edges = [edge for edge in (low, high) if edge and bottom < edge < top]
        shapes += [rule(y0=edge, y1=edge, colour=colours.region_edge, dash="dot", **across) for edge in edges]
    return shapes


def _closing(paired: samples.Paired, colours: Palette) -> list[go.Scatter]:
    """The interval so far as a band; nothing while there are too few processes."""
    known = np.isfinite(paired.highs) & (paired.lows > 0) & (paired.lows <= paired.highs)
    if not known.any():
        return []
    x = np.arange(1, len(paired.ratios) + 1)[known]
    edge: Layout = {"colour": colours.band, "width": 0, "style": {"shape": "hv"}}
    filled: Layout = {"fill": "tonexty", "fillcolor": colours.band, "name": "interval so far"}
    return [
        line(x, paired.highs[known], showlegend=False, **edge),
        line(x, paired.lows[known], **filled, **edge),
    ]


def in_words(paired: samples.Paired) -> str:
    """The picture in a sentence, for those who do not see it."""
    least, middle, most = np.quantile(paired.ratios, [0, 0.5, 1])
    return (
        f"Paired times of {paired.effect.sides} on {paired.effect.workload}: {len(paired.ratios)} processes from "
        f"{least:.3f}× to {most:.3f}×, median {middle:.3f}×, after all of them {words.effect(paired.effect)}."
    )


def _span(paired: samples.Paired, low: float | None, high: float | None) -> tuple[float, float]:
    """Ends of the axis: all processes, and of a claimed range the ends that are no farther away than they reach."""
    shown = [1.0, *paired.ratios.tolist(), paired.effect.lower, paired.effect.upper]
    logs = [math.log(ratio) for ratio in shown if ratio]
    reach = max(max(logs) - min(logs), 0.01)
    edges = [math.log(edge) for edge in (low, high) if edge is not None]
    logs += [edge for edge in edges if min(logs) - reach <= edge <= max(logs) + reach]
    return log_span(logs, 0.08, 0.0008)
