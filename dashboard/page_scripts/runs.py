"""Runs: all of them, what changed between two, their course over time, and how far one can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks, course, head, measuring, trust
from llama_workbench.dashboard.views import entries
from llama_workbench.harness.baselines.regressions import Row, RunComparison
from llama_workbench.harness.baselines.text import change_text, notes_on, side_text
from llama_workbench.harness.baselines.thresholds import ConfigError
from llama_workbench.harness.evidence.evidence import SUBJECT
from llama_workbench.harness.store.files import RunError

VIEWS = {"list": "All runs", "two": "Two runs", "history": "Over time", "trust": "Trust"}


def main() -> None:
    top = st.container()
    view = state.choose("Show", VIEWS, "show", widget=blocks.segments, label_visibility="collapsed")
    if view in ("list", "history"):
        with top:
            head.show_going_on()
            st.title("Runs", anchor=False)
            blocks.name_tab(f"Runs: {VIEWS[view].lower()}")
        listed = [entry for entry in state.all_entries() if entry.summary.problem is None]
        if not listed:
            head.show_first_run(state.results())
            return
        (show_list if view == "list" else course.show)(listed)
        return
    with top:
        opened = head.open_run("Runs")
    if opened is not None:
        (show_two if view == "two" else trust.show)(opened)


# -- all runs ----------------------------------------------------------------------------------------------------------


def show_list(listed: Sequence[entries.Entry]) -> None:
    """A row a run: what it compared, what came out, and how far it is."""
    rows = [
        {
            "run": f"./?run={quote(entry.name)}",
            "compared, and what came out": entries.compared(entry.summary),
            "started (UTC)": entries.when(entry.summary.started),
            "status": entry.summary.status,
            "identical code": entry.summary.noise.removeprefix(f"{SUBJECT}: ") or "not checked",
            "machine": entry.summary.machine or "not recorded",
            "commit": entry.summary.commit or "not recorded",
        }
        for entry in listed
    ]
    columns = {
        "run": st.column_config.LinkColumn("run", display_text=r"run=(.*)", width="medium"),
        "compared, and what came out": st.column_config.TextColumn(width="large"),
        "machine": st.column_config.TextColumn(width="medium"),
    }
    blocks.table(rows, "All runs, newest first, with what they compared and what came out", columns=columns)
    blocks.caption("Keep a run to compare with: workbench baseline save RUN NAME.")
    if measuring.is_allowed():
        blocks.caption("Measure the claims that ship with the workbench:")
        measuring.command("pytest --benchmark")


# -- two runs ----------------------------------------------------------------------------------------------------------


def show_two(opened: state.Opened) -> None:
    """What changed from another run to this one."""
    listed = state.all_entries()
    others = entries.to_compare_with(opened.name, listed)
    if not others:
        blocks.info("There is no other run that timed the same. After a change, measure the same again.")
        return
    left, right = st.columns(2, gap="large")
    with left:
        base = state.choose("Compared with", {name: entries.label(entry) for name, entry in others.items()}, "base")
    comparison = compared(opened, others[base])
    if comparison is None:
        return
    kinds = entries.kinds_of_change(comparison)
    if not kinds:
        st.text("The two runs have no variant and workload in common. Choose another run, or measure the same again.")
        return
    with right:
        kind = state.choose("What", kinds, "what", widget=blocks.segments)
    show_rows(opened, base, comparison, kind)
    with st.expander("How to read this"):
        for note in notes_on(comparison):
            st.text(note)


def compared(opened: state.Opened, base: entries.Entry) -> RunComparison | None:
    """None where the two cannot be compared; the page then says why."""
    try:
        folder = state.folder_of(base)
        return state.computed(opened, entries.changes_between, folder, entries.stamp_of_run(folder))
    except (RunError, ConfigError) as error:
        st.warning("The two runs cannot be compared.", icon=":material/warning:")
        st.text(words.problem(error) if isinstance(error, RunError) else str(error))
        return None


def show_rows(opened: state.Opened, base: str, comparison: RunComparison, kind: str) -> None:
    """A picture of what is decided, the largest change first; what is inconclusive is folded."""
    decided, undecided = entries.changes_by_impact(comparison, kind)
    st.header(words.markdown(entries.changes_sentence(comparison, kind)), anchor="changes")
    if kind == "time" and decided:
        drawn = entries.changes_as_claim(opened.run, decided[: entries.MOST_DRAWN])
        blocks.caption(f"Right of 1×: faster in {opened.name} than in {base}.")
        blocks.forest_plot(drawn, "changes", heading="")
        if len(decided) > entries.MOST_DRAWN:
            blocks.caption(f"Drawn: the first {entries.MOST_DRAWN} of {len(decided)}.")
    if decided:
        show_table(opened, decided)
    if undecided:
        with st.expander(f"{len(undecided)} inconclusive"):
            show_table(opened, undecided)


def show_table(opened: state.Opened, rows: Sequence[Row]) -> None:
    """Each row with both runs' numbers."""
    table = [
        {
            "variant": row.variant,
            "workload": opened.run.named(row.workload),
            "change": change_text(row),
            "answer": row.verdict,
            "before": side_text(row.base),
            "now": side_text(row.new),
            "why": row.reason,
        }
        for row in rows
    ]
    blocks.table(table, "What changed between the two runs, the largest proven change first")


main()
