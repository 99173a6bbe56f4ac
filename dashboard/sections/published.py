"""What the dispute published, beside the same work here: its shares, its rules for a decision, and its times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from llama_workbench.datasets.geometries import DataError
from llama_workbench.harness.claims.published import Figure, published, published_shares
from llama_workbench.harness.report.decision import CANNOT_TELL, OPTIONS, SHARES_OF, Decision, decisions_of
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder

from .. import state, words
from ..views import breakdown, data, noise
from . import blocks

TIMES_COMMAND = "pytest --benchmark --workloads rope-t128,qkv-t128,scores-t128,mask-create-apply-t128"


def show_shares(phases: breakdown.Phases, chosen: breakdown.Breakdown, alpha: float) -> None:
    """Their table of shares beside ours, in three denominators."""
    st.header("Their table of shares beside ours", anchor="published")
    try:
        portions = published_shares()
    except DataError as error:
        blocks.warn(str(error))
        return
    if why := breakdown.why_their_share(phases, chosen.workload, chosen.variant, portions, alpha):
        blocks.say(why)
    table: list[dict[str, object]] = []
    problems: list[str] = []
    for line in portions:
        row: dict[str, object] = {"their line": line.line, "theirs": line.percent, "their time": line.milliseconds}
        for whole in ("attention-subset", "layer", "forward"):
            try:
                share = breakdown.part(phases, chosen.workload, chosen.variant, line.phases, whole, alpha)
                row[f"ours, of {breakdown.WHOLES[whole]}"] = share
            except ValueError as error:
                problems.append(f"{line.line}: {error}")
        table.append(row)
    if table:
        blocks.low_table(
            table,
            f"The dispute's shares beside ours on {chosen.workload}, in three denominators",
            {"theirs": "%.1f %%", "their time": "%.1f ms"},
        )
    blocks.notes("Cannot be told apart here", problems)
    if portions:
        source = portions[0].source
        blocks.caption(
            f"Theirs: {source.document}, {source.section}; at T = 128, one table for all lengths, no intervals. "
            "Their sum of separate benchmarks is no part of any forward: softmax and output had no benchmark of "
            "their own."
        )


# -- rules -----------------------------------------------------------------------------------------------------------


def show_decisions(run: data.Run, phases: breakdown.Phases, workload: str, alpha: float) -> None:
    """What the dispute's own rules pick, from this run's numbers."""
    st.header("What the dispute's own rules pick", anchor="decision")
    try:
        by_workload = decisions_of(phases.table, RunFolder(run.path).records(VERDICTS), alpha)
    except ValueError as error:
        st.text(f"The rules do not apply: {error}.")
        return
    if workload not in by_workload:
        others = f" It was on {words.listing(list(by_workload))}." if by_workload else ""
        st.text(f"They ask about the time of {SHARES_OF}, which was not measured by phase on {workload}.{others}")
        return
    for decision in by_workload[workload]:
        _show_decision(decision)
    blocks.caption(
        f"On {workload}, from shares of {SHARES_OF} and the effects in this run's verdicts, as "
        "workbench report with --decision computes it. Where an interval lies on both sides of a threshold, the "
        "answer is “cannot tell”, with what remains possible."
    )


def _show_decision(decision: Decision) -> None:
    rule = decision.rule
    word = OPTIONS.get(decision.option, "")
    left = words.listing(sorted({choice.option for choice in decision.choices}))
    picked = f"{decision.option}: {word}" if word else f"{CANNOT_TELL} ({left} remain possible)"
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{words.markdown(picked)}** {words.markdown(f'by {rule.team}’s rule: {rule.says}')}")
        blocks.caption(f"{rule.document}, {rule.section}")
        for line in dict.fromkeys(used.describe() for used in decision.used):
            st.text(line)
        if rule.remark:
            blocks.caption(f"How we read it: {rule.remark}")


# -- times -----------------------------------------------------------------------------------------------------------


def show_times(opened: state.Opened) -> None:
    """The dispute's micro-benchmarks beside the same work here."""
    st.header("Their micro-benchmarks beside ours", anchor="times")
    try:
        figures = published()
    except DataError as error:
        blocks.warn(str(error))
        return
    measured = state.computed(opened, noise.read)
    if measured.problem:
        blocks.warn(f"Left out: {measured.problem}")
    rows = compared(opened.run, measured, figures)
    if not any(row.ours or row.candle for row in rows):
        blocks.missing("times of the parts that they timed", TIMES_COMMAND)
    wide = st.column_config.TextColumn(width="medium")
    blocks.low_table(
        [_row(row) for row in rows],
        "Times a call that the dispute published, beside the medians of this run",
        columns=dict.fromkeys(("their interval", "our interval", "its interval"), wide),
    )
    source = next(iter(figures.values())).source if figures else None
    origin = f"Theirs: {source.document}, {source.section}, and later documents. " if source else ""
    blocks.caption(
        f"{origin}They ran Candle on a machine that they do not name, with all its cores: nobody can compare "
        "absolute times of two machines. Growth is the time over that of the next shorter length in this table, "
        "and that compares well. Ours is on PyTorch; on Candle are that engine's own kernels, called from Python. "
        "Both are medians over rounds, each with its exact 99 % interval by order statistics."
    )


def _row(row: Row) -> dict[str, str]:
    theirs, ours, candle = row.figure, row.ours, row.candle
    return {
        "workload": theirs.workload,
        "theirs": words.milliseconds(1e3 * theirs.microseconds),
        "their interval": _ends([1e3 * end for end in theirs.interval]) if theirs.interval else "not given",
        "ours": words.milliseconds(ours.value) if ours else "not measured",
        "our interval": _span(ours),
        "rounds": str(ours.rounds) if ours else "",
        "on Candle here": words.milliseconds(candle.value) if candle else "",
        "its interval": _span(candle),
        "their growth": _growth(row.their_growth),
        "our growth": _growth(row.our_growth),
        "growth on Candle": _growth(row.candle_growth),
        "variant here": row.variant if ours else "",
        "their benchmark": theirs.bench,
    }


def _ends(ends_ns: Sequence[float]) -> str:
    return " – ".join(map(words.milliseconds, ends_ns))


def _growth(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×"


def _span(measured: noise.Span | None) -> str:
    if measured is None:
        return ""
    return _ends([measured.low, measured.high]) if math.isfinite(measured.high) else "too few rounds"


# -- the same work here ------------------------------------------------------------------------------------------------


ON_CANDLE = ("candle_engine_fresh", "candle_engine")
"""Variants that do the same work on the dispute's own engine; the first makes its masks anew, as theirs did."""


@dataclass(frozen=True)
class Row:
    """One published time, and of the same work here: `ours` on PyTorch, `candle` on Candle, each the median of a call
    in nanoseconds.

    The growths are the time over that of the next shorter length of the same part, None where there is none.
    """

    figure: Figure
    variant: str
    ours: noise.Span | None
    candle: noise.Span | None
    their_growth: float | None = None
    our_growth: float | None = None
    candle_growth: float | None = None


def compared(run: data.Run, measured: noise.Noise, published: Mapping[str, Figure]) -> list[Row]:
    """All published times, in the order of their file; ours are those of the workload's baseline."""
    rows = []
    latest: dict[str, Row] = {}  # by part: the next shorter length
    for workload, figure in published.items():
        variant, part = data.experiment(run, workload).baseline or "", workload.rpartition("-t")[0]
        ours = noise.median_ns(measured, workload, variant)
        candle = next(filter(None, (noise.median_ns(measured, workload, name) for name in ON_CANDLE)), None)
        row = Row(figure, variant, ours, candle)
        if shorter := latest.get(part):
            theirs = figure.microseconds / shorter.figure.microseconds
            row = Row(figure, variant, ours, candle, theirs, growth(ours, shorter.ours), growth(candle, shorter.candle))
        latest[part] = row
        rows.append(row)
    return rows


def growth(longer: noise.Span | None, shorter: noise.Span | None) -> float | None:
    """The longer call's time over the shorter one's; None where one of them is not known."""
    return longer.value / shorter.value if longer and shorter else None
