"""Where time goes: shares of a forward by phase and length, beside the dispute's own, and the flamegraph.

The URL holds every choice: `?run=…&variant=…&geometry=…&of=…&workload=…`.
"""

from __future__ import annotations

import math

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import breakdown as phase_bars
from llama_workbench.dashboard.flames import section as flame_parts
from llama_workbench.dashboard.sections import roofline as roof_parts
from llama_workbench.dashboard.views import breakdown as phase_shares
from llama_workbench.dashboard.views import data, noise
from llama_workbench.dashboard.views import published as published_times
from llama_workbench.datasets.geometries import DataError
from llama_workbench.harness.claims.published import Portion, published, published_shares
from llama_workbench.harness.metrics.share.shares import ALPHA
from llama_workbench.harness.report.decision import CANNOT_TELL, OPTIONS, SHARES_OF, Decision
from llama_workbench.variants.phase_map import DENOMINATORS, MEANING

PHASES_COMMAND = "pytest --benchmark --claims qkv-61,mask-is-the-bottleneck"
PROFILED_COMMAND = f"{PHASES_COMMAND} --profile"
TIMES_COMMAND = "pytest --benchmark --workloads rope-t128,qkv-t128,scores-t128,mask-create-apply-t128"

THEIR_LENGTH = "T = 128"  # of the dispute's table; what the page opens with

PERCENT = st.column_config.NumberColumn(format="%.2f %%")


def main() -> None:
    opened = parts.open_run("Where time goes")
    if opened is None:
        return
    run = opened.run
    phases = parts.read_phases(run.path, opened.stamp)
    for problem in phases.problems:
        st.warning(f"Left out: {words.markdown(problem)}", icon=":material/warning:")
    alpha = run.alpha or ALPHA
    lines = published_lines()
    if phases.measured:
        show_phases(opened, phases, lines, alpha)
    else:
        parts.show_missing("shares of the time by phase", PHASES_COMMAND)
    st.header("What the machine could do", anchor="roof")
    roof_parts.show(opened)
    show_times(opened)


def published_lines() -> tuple[Portion, ...]:
    """The dispute's table of shares; what is wrong with its file is said."""
    try:
        return published_shares()
    except DataError as error:
        st.warning(words.markdown(error), icon=":material/warning:")
        return ()


# -- shares ----------------------------------------------------------------------------------------------------------


def show_phases(opened: parts.Opened, phases: phase_shares.Phases, lines: tuple[Portion, ...], alpha: float) -> None:
    run = opened.run
    variants = list(dict.fromkeys(variant for _, variant in phases.measured))
    geometries = list(dict.fromkeys(phase_shares.geometry(run, workload) for workload, _ in phases.measured))
    left, middle, right = st.columns(3)
    with left:
        variant = parts.choose("Variant", variants, "variant", default=SHARES_OF)
    with middle:
        of_it = [phase_shares.geometry(run, workload) for workload, name in phases.measured if name == variant]
        geometry = parts.choose("Geometry", geometries, "geometry", default=of_it[0] if of_it else None)
    with right:
        of = parts.choose("Share of", {name: phase_shares.WHOLES[name] for name in DENOMINATORS}, "of")
    workloads = [
        workload
        for workload, name in phases.measured
        if name == variant and phase_shares.geometry(run, workload) == geometry
    ]
    workloads.sort(key=lambda name: phase_shares.order(run, name))
    rows: list[tuple[str, phase_shares.Breakdown]] = []
    for workload in workloads:
        try:
            found = phase_shares.breakdown(phases, workload, variant, of, alpha)
        except ValueError as error:
            st.text(str(error))
            continue
        rows.append((phase_shares.length(run, workload), found))
    if not rows:
        st.info(
            f"{words.markdown(variant)} has no phases of geometry {words.markdown(geometry)} in this run; others have: "
            + words.markdown(words.listing(list(dict.fromkeys(f"{name} on {work}" for work, name in phases.measured)))),
            icon=":material/info:",
        )
        return
    labelled = [(label, found.shares) for label, found in rows]
    st.plotly_chart(
        phase_bars.phase_bars(labelled, parts.colours()),
        config=parts.PLOT,
        alt=phase_bars.phase_bars_text(labelled),
        key="phases",
    )
    st.caption(
        words.markdown(
            f"{variant}, {geometry}: {describe_whole(of)}. Each bar is one call and sums to 100 %; above it is the "
            f"length and the time of a call. {sentence(rows)}"
        )
    )
    show_workload(opened, phases, rows, lines, alpha)


def describe_whole(of: str) -> str:
    """What the bars are shares of."""
    return {
        "forward": "shares of the whole forward",
        "layer": "shares of the decoder layers, without embedding, final norm and LM head",
        "attention": "shares of the attention block, with its output projection and cache",
        "attention-subset": "shares of the five lines of the dispute's table, without output projection, cache, MLP, "
        "norms and LM head",
    }[of]


def sentence(rows: list[tuple[str, phase_shares.Breakdown]]) -> str:
    """What the bars say: the largest phases, first and last row."""
    said = [
        f"{label}: {phase_shares.largest(found)}"
        for label, found in (rows if len(rows) < 3 else rows[:: len(rows) - 1])
    ]
    return f"Most goes to: {'; '.join(said)}."


def show_workload(
    opened: parts.Opened,
    phases: phase_shares.Phases,
    rows: list[tuple[str, phase_shares.Breakdown]],
    lines: tuple[Portion, ...],
    alpha: float,
) -> None:
    """One length in numbers, checked by sampling, beside the dispute's table and rules, and its flamegraph."""
    run = opened.run
    names = {found.workload: f"{label} ({found.workload})" for label, found in rows}
    if st.query_params.get("workload") in {workload for workload, _ in phases.measured} - names.keys():
        st.query_params.pop("workload")  # of another variant or geometry, chosen before
    profiled = next((name for name in names if (name, rows[0][1].variant) in run.profiles), None)
    theirs = next((found.workload for label, found in rows if label == THEIR_LENGTH), None)
    workload = parts.choose("Look inside", names, "workload", default=profiled or theirs)
    chosen = next(found for _, found in rows if found.workload == workload)
    show_table(chosen, alpha)
    show_published(phases, chosen, lines, alpha)
    show_agreement(run, phases, chosen, alpha)
    show_decisions(run, phases, workload, alpha)
    st.header("Flamegraph", anchor="flamegraph")
    flame_parts.show(run, opened.stamp, workload, [chosen.variant], chosen.variant)


def show_table(chosen: phase_shares.Breakdown, alpha: float) -> None:
    st.dataframe(
        pd.DataFrame(
            {
                "phase": [share.name for share in chosen.shares],
                "share": [share.percent for share in chosen.shares],
                "low": [share.low for share in chosen.shares],
                "high": [share.high for share in chosen.shares],
                "a call": [share.ms for share in chosen.shares],
                "level": [share.grade for share in chosen.shares],
                "what it holds": [MEANING[share.phase] for share in chosen.shares],
            }
        ),
        hide_index=True,
        row_height=28,
        column_config={
            "share": PERCENT,
            "low": PERCENT,
            "high": PERCENT,
            "a call": st.column_config.NumberColumn(format="%.4g ms"),
        },
        alt=f"Shares of {phase_shares.WHOLES[chosen.of]} by phase for {chosen.variant} on {chosen.workload}",
    )
    overhead = chosen.overhead
    cost = f"{overhead.value:.3f}× [{overhead.low:.3f}, {overhead.high:.3f}]"
    st.caption(
        words.markdown(
            f"{chosen.rounds} rounds; each interval is a t interval over them, {words.percent(1 - alpha)} for itself. "
            "Levels are the execution plan's: critical above 10 %, moderate from 5 to 10 %, minor below 5 %; both "
            f"where the interval lies on both sides. Clock: {chosen.clock or 'not recorded'}. A call with readings "
            f"between its phases took {cost} of the time of one without; milliseconds are those of calls with readings."
        )
    )


def show_published(
    phases: phase_shares.Phases, chosen: phase_shares.Breakdown, lines: tuple[Portion, ...], alpha: float
) -> None:
    st.header("Their table of shares beside ours", anchor="published")
    why = phase_shares.why_their_share(phases, chosen.workload, chosen.variant, lines, alpha)
    if why:
        st.markdown(words.markdown(why))
    table: list[dict[str, object]] = []
    problems: list[str] = []
    for line in lines:
        row: dict[str, object] = {"their line": line.line, "theirs": line.percent, "their time": line.milliseconds}
        for whole in ("attention-subset", "layer", "forward"):
            try:
                ours = phase_shares.part(phases, chosen.workload, chosen.variant, line.phases, whole, alpha)
            except ValueError as error:
                problems.append(f"{line.line}: {error}")
                continue
            row[f"ours, of {phase_shares.WHOLES[whole]}"] = phase_shares.interval(ours)
        table.append(row)
    if table:
        st.dataframe(
            pd.DataFrame(table),
            hide_index=True,
            row_height=28,
            column_config={
                "theirs": st.column_config.NumberColumn(format="%.1f %%"),
                "their time": st.column_config.NumberColumn(format="%.1f ms"),
            },
            alt=f"The dispute's shares beside ours on {chosen.workload}, in three denominators",
        )
    parts.show_list("Not told apart here", problems)
    if lines:
        source = lines[0].source
        st.caption(
            words.markdown(
                f"Theirs: {source.document}, {source.section}; at T = 128, one table for all lengths, no intervals. "
                "Their sum of separate benchmarks is no part of any forward: softmax and output had no benchmark of "
                "their own."
            )
        )


def show_agreement(run: data.Run, phases: phase_shares.Phases, chosen: phase_shares.Breakdown, alpha: float) -> None:
    st.header("Checked by sampling", anchor="sampling")
    found = phase_shares.agreements(run, phases, chosen.workload, chosen.variant, alpha)
    if isinstance(found, str):
        st.text(f"No check by py-spy's samples: {found}.")
        st.code(PROFILED_COMMAND, language="bash", wrap_lines=True)
        return
    apart = [one for one in found if not one.agrees]
    widest = max(found, key=lambda one: one.apart)
    said = (
        f"{len(found) - len(apart)} of {len(found)} shares agree within the errors of both methods; the furthest apart "
        f"is {phase_names(widest.phases)} by {100 * widest.apart:.1f} points."
    )
    st.markdown(words.markdown(said))
    st.dataframe(
        pd.DataFrame(
            {
                "phase": [phase_names(one.phases) for one in found],
                "by readings": [100 * one.timed.value for one in found],
                "low": [100 * one.timed.low for one in found],
                "high": [100 * one.timed.high for one in found],
                "by samples": [100 * one.sampled for one in found],
                "± (SE)": [100 * one.sampled_error for one in found],
                "": ["agree" if one.agrees else f"{100 * one.apart:.1f} points apart" for one in found],
            }
        ),
        hide_index=True,
        row_height=28,
        column_config=dict.fromkeys(("by readings", "low", "high", "by samples", "± (SE)"), PERCENT),
        alt=f"Shares of the forward by readings and by py-spy's samples. {said}",
    )
    st.caption(
        "Shares of the whole forward. Readings of a clock between the phases, and samples that py-spy took from the "
        "untouched variant, sorted by the same map of lines. The sampling error is √(p(1-p)/n); apart are shares that "
        "2.6 of it and the timed interval do not explain. Both were taken at different times of the run, so a noisy "
        "neighbour can part them."
    )


def phase_names(phases: tuple[str, ...]) -> str:
    """Phases in words, with a plus between."""
    return " + ".join(phase_shares.NAMES.get(phase, phase) for phase in phases)


# -- rules -----------------------------------------------------------------------------------------------------------


def show_decisions(run: data.Run, phases: phase_shares.Phases, workload: str, alpha: float) -> None:
    st.header("What the dispute's own rules pick", anchor="decision")
    try:
        found = phase_shares.decisions(run, phases, alpha)
    except ValueError as error:
        st.text(f"The rules cannot be applied: {error}.")
        return
    if workload not in found:
        others = f" It was on {words.listing(list(found))}." if found else ""
        st.text(f"They ask about the time of {SHARES_OF}, which was not measured by phase on {workload}.{others}")
        return
    for decision in found[workload]:
        show_decision(decision)
    st.caption(
        words.markdown(
            f"On {workload}, from shares of {SHARES_OF} and the effects in this run's verdicts, as "
            "workbench report with --decision computes it. Where an interval lies on both sides of a threshold, the "
            "answer is “cannot tell”, with what remains possible."
        )
    )


def show_decision(decision: Decision) -> None:
    rule = decision.rule
    word = OPTIONS.get(decision.option, "")
    left = words.listing(sorted({choice.option for choice in decision.choices}))
    picked = f"{decision.option}: {word}" if word else f"{CANNOT_TELL} ({left} remain possible)"
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{words.markdown(picked)}** {words.markdown(f'by {rule.team}’s rule: {rule.says}')}")
        st.caption(words.markdown(f"{rule.document}, {rule.section}"))
        for said in dict.fromkeys(used.describe() for used in decision.used):
            st.text(said)
        if rule.remark:
            st.caption(words.markdown(f"Our reading: {rule.remark}"))


# -- published times -------------------------------------------------------------------------------------------------


def show_times(opened: parts.Opened) -> None:
    """The dispute's micro-benchmarks beside the same work here."""
    st.header("Their micro-benchmarks beside ours", anchor="times")
    try:
        figures = published()
    except DataError as error:
        st.warning(words.markdown(error), icon=":material/warning:")
        return
    measured = parts.read_noise(opened.run.path, opened.stamp)
    if measured.problem:
        st.warning(f"Left out: {words.markdown(measured.problem)}", icon=":material/warning:")
    rows = published_times.rows(opened.run, measured, figures)
    if not any(row.ours or row.candle for row in rows):
        parts.show_missing("times of the parts that they timed", TIMES_COMMAND)
    st.dataframe(
        pd.DataFrame(
            {
                "workload": [row.figure.workload for row in rows],
                "theirs": [micro(row.figure.microseconds) for row in rows],
                "their interval": [
                    f"{micro(row.figure.interval[0])} – {micro(row.figure.interval[1])}"
                    if row.figure.interval
                    else "not given"
                    for row in rows
                ],
                "ours": [micro(row.ours.value / 1e3) if row.ours else "not measured" for row in rows],
                "our interval": [span(row.ours) if row.ours else "" for row in rows],
                "rounds": [str(row.ours.rounds) if row.ours else "" for row in rows],
                "on Candle here": [micro(row.candle.value / 1e3) if row.candle else "" for row in rows],
                "its interval": [span(row.candle) if row.candle else "" for row in rows],
                "their growth": [growth(row.their_growth) for row in rows],
                "our growth": [growth(row.our_growth) for row in rows],
                "growth on Candle": [growth(row.candle_growth) for row in rows],
                "variant here": [row.variant if row.ours else "" for row in rows],
                "their benchmark": [row.figure.bench for row in rows],
            }
        ),
        hide_index=True,
        row_height=28,
        column_config={
            name: st.column_config.TextColumn(width="medium")
            for name in ("their interval", "our interval", "its interval")
        },
        alt="Times a call that the dispute published, beside the medians of this run",
    )
    source = next(iter(figures.values())).source if figures else None
    origin = f"Theirs: {source.document}, {source.section}, and later documents. " if source else ""
    st.caption(
        words.markdown(
            f"{origin}They ran Candle on a machine that they do not name, with all its cores: absolute times of two "
            "machines cannot be compared. Growth is the time over that of the next shorter length in this table, and "
            "that can be. Ours is on PyTorch; on Candle are that engine's own kernels, called from Python. Both are "
            "medians over rounds, each with its exact 99 % interval by order statistics."
        )
    )


def micro(value: float) -> str:
    return words.milliseconds(1e3 * value)


def growth(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×"


def span(found: noise.Span) -> str:
    if not math.isfinite(found.high):
        return "too few rounds"
    return f"{micro(found.low / 1e3)} – {micro(found.high / 1e3)}"


main()
