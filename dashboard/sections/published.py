"""What the dispute published, beside the same work here: its shares, its rules for a decision, and its times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from llama_workbench.datasets.geometries import DataError
from llama_workbench.datasets.workloads import workloads
from llama_workbench.harness.claims.reading import Figure, Portion, published, published_shares
from llama_workbench.harness.report.answer import Decision, decisions_of, picked
from llama_workbench.harness.stats.confidence import Interval

from .. import state, words
from ..views import breakdown, data, noise
from ..views.workloads import shipped_named
from . import blocks

TIMES_COMMAND = "pytest --benchmark --workloads rope-t128,qkv-t128,scores-t128,mask-create-apply-t128"


def shares_beside(
    run: data.Run, phases: breakdown.Phases, portions: Sequence[Portion], workload: str, variant: str
) -> tuple[str, list[dict[str, object]], list[str]]:
    """Why their table says what it says, its lines beside ours, and what cannot be told apart here."""
    why = breakdown.why_their_share(phases, workload, variant, portions, run.alpha)
    table: list[dict[str, object]] = []
    problems: list[str] = []
    for line in portions:
        row: dict[str, object] = {"their line": line.line, "theirs": line.percent, "their time": line.milliseconds}
        for whole in ("attention-subset", "layer", "forward"):
            try:
                share = breakdown.part(phases, workload, variant, line.phases, whole, run.alpha)
                row[f"ours, of {breakdown.WHOLES[whole]}"] = share
            except ValueError as error:
                problems.append(f"{line.line}: {error}")
        table.append(row)
    return why, table, problems


def show_shares(opened: state.Opened, phases: breakdown.Phases, chosen: breakdown.Breakdown) -> None:
    """Their table of shares beside ours, in three denominators."""
    blocks.header("The dispute's time shares beside ours", anchor="published")
    try:
        portions = published_shares()
    except DataError as error:
        blocks.warn(str(error))
        return
    asked = chosen.workload, chosen.variant
    why, table, problems = state.computed(opened, shares_beside, *asked, _given=(phases, portions))
    if why:
        blocks.say(why)
    if table:
        blocks.table(
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


def read_decisions(run: data.Run, phases: breakdown.Phases) -> dict[str, tuple[Decision, ...]]:
    """What the rules pick on each workload. Raises ValueError where they do not apply."""
    return decisions_of(run.dispute, phases.table, run.claims, run.alpha)


def show_decisions(opened: state.Opened, phases: breakdown.Phases, workload: str) -> None:
    """What the teams' own rules pick, from this run's numbers."""
    if not opened.run.dispute.rule:
        return
    blocks.header("What the teams' own rules pick", anchor="decision")
    asked = opened.run.dispute.numbers.shares_of
    shares = f"the time shares of {asked} and " if asked else ""
    try:
        by_workload = state.computed(opened, read_decisions, _given=(phases,))
    except ValueError as error:
        st.text(f"The rules do not apply: {error}.")
        return
    if workload not in by_workload:
        there = [opened.run.named(name) for name in by_workload]
        others = f" It was on {words.listing(there)}." if there else ""
        here = opened.run.named(workload)
        st.text(f"They ask about the time of {asked}, which was not measured by phase on {here}.{others}")
        return
    for decision in by_workload[workload]:
        _show_decision(decision)
    blocks.caption(
        f"On {opened.run.named(workload)}, from {shares}the effects in this run's "
        "verdicts. workbench report with --decision prints the same. Where an interval lies on both sides of a limit, "
        "the answer is “undecided”, with what remains possible."
    )


def _show_decision(decision: Decision) -> None:
    rule = decision.rule
    what = words.capital(f"{rule.name}: {picked(decision)}")
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{words.markdown(what)}**")
        blocks.say(f"{rule.team} said: {rule.says}.")
        blocks.caption(f"{rule.document}, {rule.section}")
        for line in dict.fromkeys(used.describe() for used in decision.used):
            st.text(line)
        if rule.remark:
            blocks.caption(f"How we read it: {rule.remark}")


# -- times -----------------------------------------------------------------------------------------------------------


def show_times(opened: state.Opened) -> None:
    """The dispute's micro-benchmarks beside the same work here."""
    blocks.header("The dispute's micro-benchmarks beside ours", anchor="times")
    try:
        figures = published()
    except DataError as error:
        blocks.warn(str(error))
        return
    measured = state.computed(opened, noise.read)
    if measured.problem:
        blocks.warn(f"Left out: {measured.problem}")
    rows = state.computed(opened, compared, _given=(measured, figures))
    if (rows[["our interval", "its interval"]] == "").all(axis=None):
        blocks.missing("times of the parts that they timed", TIMES_COMMAND)
    wide = st.column_config.TextColumn(width="medium")
    blocks.table(
        rows.assign(workload=rows["workload"].map(shipped_named(figures))),
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


def _ends(ends_ns: Sequence[float]) -> str:
    return " – ".join(map(words.milliseconds, ends_ns))


def _span(measured: Interval | None) -> str:
    if measured is None:
        return ""
    return _ends([measured.low, measured.high]) if math.isfinite(measured.high) else "too few rounds"


# -- the same work here ------------------------------------------------------------------------------------------------


def compared(run: data.Run, measured: noise.Noise, published: Mapping[str, Figure]) -> pd.DataFrame:
    """All published times in the order of their file, beside those of the workload's baseline and of Candle here.

    The growths are the time over that of the next shorter length of the same part.
    """
    rows, times_ns = [], []
    for workload, theirs in published.items():
        variant = data.experiment(run, workload).baseline or ""
        ours = noise.median_ns(measured, workload, variant)
        candle = next(
            filter(None, (noise.median_ns(measured, workload, name) for name in run.dispute.engine_variants)), None
        )
        times_ns.append((1e3 * theirs.microseconds, *(one.centre if one else math.nan for one in (ours, candle))))
        rows.append(
            {
                "workload": workload,
                "theirs": words.milliseconds(times_ns[-1][0]),
                "their interval": _ends([1e3 * end for end in theirs.interval]) if theirs.interval else "not given",
                "ours": words.milliseconds(ours.centre if ours else None),
                "our interval": _span(ours),
                "rounds": str(ours.n) if ours else "",
                "on Candle here": words.milliseconds(candle.centre) if candle else "",
                "its interval": _span(candle),
                "variant here": variant if ours else "",
                "their benchmark": theirs.bench,
            }
        )
    times = pd.DataFrame(times_ns, columns=["their growth", "our growth", "growth on Candle"])
    known = workloads()
    parts = pd.Series([known[name].component if name in known else name for name in published])
    growths = times / times.groupby(parts).shift()
    return pd.DataFrame(rows).join(growths.map(lambda growth: f"{growth:.2f}×" if growth > 0 else ""))
