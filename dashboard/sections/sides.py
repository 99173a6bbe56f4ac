"""Two variants on one workload: process by process, their operations, their time by phase, their memory."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from llama_workbench.harness.store.verdict_schema import Effect

from .. import state, words
from ..figures import breakdown as phase_figures
from ..figures import memory as memory_figures
from ..figures import rounds as round_figures
from ..views import breakdown, data, gates, memory, outcomes, samples
from . import blocks

# -- process by process ------------------------------------------------------------------------------------------------


def show_times(opened: state.Opened, effect: Effect) -> None:
    """Both distributions: the time of a call in each process."""
    asked = effect.workload, (effect.baseline, effect.variant)
    if (times := blocks.computed(UNREADABLE, opened, samples.process_times_ns, *asked)) and all(
        map(len, times.values())
    ):
        drawn = round_figures.distributions(times, state.colours())
        blocks.plot(drawn, round_figures.distributions_text(times), "times")
        st.caption("A dot is the median time of a call in one process, on this machine. The line is their median.")


UNREADABLE = "The processes cannot be shown: the samples of this run cannot be read."


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
    drawn = round_figures.paired_rounds(
        paired,
        look=outcomes.look_of_row(claim, effect.verdict),
        claimed=f"{claim.range_word}: {claim.claimed}",
        low=claim.low if ratio else None,
        high=claim.high if ratio else None,
        colours=state.colours(),
    )
    blocks.plot(drawn, round_figures.in_words(paired), "rounds")
    share = words.percent(paired.invalid_share)
    invalid = f" {share} of the processes had no valid time." if paired.invalid_share else ""
    st.caption(
        f"A dot is one fresh process, which times both sides in turn ({paired.clock} clock). Grey: the interval so "
        f"far, with {words.percent(1 - paired.alpha)} confidence however often one looks. Dots that wander or jump: "
        f"the machine changed during the run.{invalid}"
    )


# -- operations --------------------------------------------------------------------------------------------------------


MEANING = {
    "the same": "Both sides ran the same operations on the same shapes in the same order: what differs is how they "
    "were called, which is what architecture can change.",
    "differ": "The two sides ran different operations. A difference in time between them is no evidence on "
    "architecture: it may come from the operations.",
    "not compared": "This run did not record the operations of both sides, so it cannot say whether they are the same.",
}


def show_same(run: data.Run, workload: str, baseline: str, variant: str) -> None:
    """Whether both sides do the same: of models their operations, of functions their answers."""
    if not run.is_of_functions:
        _show_operations(run, workload, baseline, variant)
        return
    blocks.header("Answers of both sides", anchor="answers", within=True)
    checked = data.experiment(run, workload).gates
    states = [gates.logits(checked.get(side)) for side in (baseline, variant)]
    how = data.experiment(run, workload).workload.check
    by = f"by {how}" if how else "by ==, tensors and arrays within rounding"
    agreed = "gave the same answers" if states == ["pass", "pass"] else f"were compared: {', '.join(states)}"
    blocks.say(f"Before and while they were timed, both functions {agreed}. Answers were compared {by}.")


def _show_operations(run: data.Run, workload: str, baseline: str, variant: str) -> None:
    """Both op traces side by side on one workload: how many, where they differ, and what one side ran more often."""
    blocks.header("Operations of both sides", anchor="operations", within=True)
    traces = gates.traces(run, workload, baseline, variant)
    st.markdown(f"**{words.markdown(traces.state.capitalize())}.** {words.markdown(MEANING[traces.state])}")
    ours, theirs = f"{baseline} (baseline)", f"{variant} (variant)"
    if traces.rows:
        rows = pd.DataFrame(traces.rows, columns=["what", ours, theirs])
        blocks.table(rows, f"Operations of one call of {baseline} and of {variant}")
    if traces.counts:
        st.caption("Operations that one side ran more often than the other, in one call")
        counts = [
            {"operation": name, ours: first, theirs: second, "more in the variant": second - first}
            for name, first, second in traces.counts
        ]
        blocks.table(counts, "Operations by how often each side ran them")
    elif traces.state == "differ":
        st.caption("This run kept only the first difference; a new run keeps how often each side ran each operation.")


# -- time by phase -----------------------------------------------------------------------------------------------------


WHOLE = "forward"


def show_phases(opened: state.Opened, workload: str, sides: Sequence[str], of: str = WHOLE) -> None:
    """One bar for each of `sides` whose phases were timed; `of` is the denominator, a key of DENOMINATORS."""
    whole = of if of in breakdown.WHOLES else WHOLE
    phases = state.computed(opened, breakdown.read)
    rows, missing = [], []
    for side in sides:
        try:
            measured = state.computed(opened, breakdown.breakdown_of, workload, side, whole, _given=(phases,))
            rows.append((f"{side} · {measured.ms:.3g} ms · {measured.rounds} rounds", measured.shares))
        except ValueError:
            missing.append(side)
    if not rows:
        blocks.missing("shares of the time by phase here", opened.run.dispute.command("phases"))
        return
    show_phase_bars(rows)
    untimed = f" Not timed by phase: {words.listing(missing)}." if missing else ""
    blocks.caption(
        f"Shares of the {breakdown.WHOLES[whole]} by phase; each bar sums to 100 %. Milliseconds hold for "
        f"this machine only.{untimed}"
    )


def show_phase_bars(rows: phase_figures.Rows) -> None:
    """The bars and what their colours are."""
    colours = state.colours()
    blocks.plot(phase_figures.phase_bars(rows, colours), phase_figures.phase_bars_text(rows), "phases")
    st.html(phase_figures.phase_legend(rows, colours))


# -- memory ------------------------------------------------------------------------------------------------------------


def show_memory(run: data.Run, workload: str, sides: Sequence[str], baseline: str) -> None:
    """What `sides` (variants) need on one workload: transient peak, parameters, caches, and how they differ."""
    rows = [run.memory[workload, name] for name in sides if (workload, name) in run.memory]
    if not rows:
        blocks.missing("memory measurements here", outcomes.with_profile(run, workload))
        return
    amounts = memory.AMOUNTS
    if run.is_of_functions:
        has_kept = any(row.kept_bytes is not None for row in rows)
        amounts = {field: title for field, title in memory.OF_FUNCTIONS.items() if has_kept or field != "kept_bytes"}
    amounts = {field: title for field, title in amounts.items() if any(getattr(row, field) for row in rows)} or amounts
    for column, (field, title) in zip(st.columns(len(memory.AMOUNTS)), amounts.items(), strict=False):
        with column:
            st.markdown(f"**{title}**")
            drawn = memory_figures.memory(rows, field, title, baseline, state.colours())
            blocks.plot(drawn, f"{title}. {memory_figures.memory_text(rows, field)}", field)
    for name in sides:
        row = run.memory.get((workload, name))
        if reason := row.reason if row else "not measured on this workload":
            st.text(f"{name}: {reason}")
    if run.is_of_functions:
        kept = "Kept is what importing the function and a first call left: its answer, caches, globals. "
        st.caption(
            "The most that one call had allocated at a time, after warming up. "
            f"{kept if 'kept_bytes' in amounts else ''}Counted once, without an interval."
        )
        return
    st.caption("After warming up; parameters and caches are counted from their shapes. Counted once, exactly.")
