"""Two runs: what changed from one to the other, one row a comparison, as `workbench compare` has it."""

from __future__ import annotations

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks, head
from llama_workbench.dashboard.views import changes, entries
from llama_workbench.harness.baselines.rows import RunComparison
from llama_workbench.harness.baselines.text import change_text, notes_on, side_text
from llama_workbench.harness.baselines.thresholds import ConfigError
from llama_workbench.harness.store.errors import RunError

ROWS = {"all": "all", "proven": "only what is proven"}


def main() -> None:
    opened = head.open_run("Two runs")
    if opened is None:
        return
    others = changes.to_compare_with(opened.name, state.all_entries())
    if not others:
        blocks.info("There is no other run to compare this one with. After a change, measure the same again.")
        return
    left, middle, right = st.columns([6, 4, 3], gap="large")
    with left:
        base = state.choose("Compared with", {name: entries.label(entry) for name, entry in others.items()}, "base")
    comparison = compared(opened, others[base])
    if comparison is None:
        return
    kinds = changes.kinds(comparison)
    if not kinds:
        st.text("The two runs have no variant and workload in common.")
        return
    with middle:
        kind = state.choose("What", kinds, "what", widget=blocks.segments)
    with right:
        rows = state.choose("Rows", ROWS, "rows", widget=blocks.segments)
    show_rows(opened, comparison, kind, only_proven=rows == "proven")
    with st.expander("How to read this"):
        for note in notes_on(comparison):
            st.text(note)


def compared(opened: state.Opened, base: entries.Entry) -> RunComparison | None:
    """None where the two cannot be compared; the page then says why."""
    try:
        folder = state.folder_of(base)
        return state.computed(opened, changes.between, folder, entries.stamp_of_run(folder))
    except (RunError, ConfigError) as error:
        st.warning("The two runs cannot be compared.", icon=":material/warning:")
        st.text(words.problem(error) if isinstance(error, RunError) else str(error))
        return None


def show_rows(opened: state.Opened, comparison: RunComparison, kind: str, *, only_proven: bool) -> None:
    rows = changes.by_impact(comparison, kind, only_proven=only_proven)
    blocks.say(changes.sentence(comparison, kind))
    if not rows:
        return
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
    blocks.caption(
        "Change: how much more the variant needs now. Before and now: of times, how many times as fast as the "
        "yardstick, which is never edited and is timed in the same rounds; else what was counted."
    )


main()
