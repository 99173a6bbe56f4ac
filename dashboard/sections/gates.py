"""Whether two variants ran the same operations."""

from __future__ import annotations

import streamlit as st

from .. import words
from ..views import data, gates
from . import blocks

MEANING = {
    "the same": "Both sides ran the same operations on the same shapes in the same order: what differs is how they "
    "were called, which is what architecture can change.",
    "differ": "The two sides ran different operations. A difference in time between them is no evidence on "
    "architecture: it may come from the operations.",
    "not compared": "This run did not record the operations of both sides, so it cannot say whether they are the same.",
}


def show(run: data.Run, workload: str, baseline: str, variant: str) -> None:
    """Both op traces side by side on one workload: how many, where they part, and what one side ran more often."""
    traces = gates.traces(run, workload, baseline, variant)
    st.markdown(f"**{words.markdown(traces.state.capitalize())}.** {words.markdown(MEANING[traces.state])}")
    ours, theirs = f"{baseline} (baseline)", f"{variant} (variant)"
    if traces.rows:
        rows = [dict(zip(("what", ours, theirs), row, strict=True)) for row in traces.rows]
        blocks.table(rows, f"Operations of one call of {baseline} and of {variant}")
    if traces.counts:
        st.caption("Operations that one side ran more often than the other, in one call")
        counts = [
            {"operation": name, ours: first, theirs: second, "more in the variant": second - first}
            for name, first, second in traces.counts
        ]
        blocks.table(counts, "Operations by how often each side ran them", row_px=blocks.LOW_ROW_PX)
    elif traces.state == "differ":
        st.caption("This run kept only the first difference; a new run keeps how often each side ran each operation.")
