"""The part of a page that shows whether two variants ran the same operations."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import words
from llama_workbench.dashboard.views import data
from llama_workbench.dashboard.views import gates as checks

MEANING = {
    "the same": "Both sides ran the same operations on the same shapes in the same order: what differs is how they "
    "were called, which is what architecture can change.",
    "differ": "The two sides ran different operations. A difference in time between them is no evidence on "
    "architecture: it may come from the operations.",
    "not compared": "This run did not record the operations of both sides, so it cannot be said whether they are the "
    "same.",
}


def show(run: data.Run, workload: str, baseline: str, variant: str) -> None:
    """Both op traces side by side on one workload: how many, where they part, and what one side ran more often."""
    found = checks.traces(run, workload, baseline, variant)
    st.markdown(f"**{words.markdown(found.state.capitalize())}.** {words.markdown(MEANING[found.state])}")
    ours, theirs = f"{baseline} (baseline)", f"{variant} (variant)"
    if found.rows:
        st.dataframe(
            pd.DataFrame(found.rows, columns=["what", ours, theirs]),
            hide_index=True,
            row_height=30,
            alt=f"Operations of one call of {baseline} and of {variant}",
        )
    if found.counts:
        st.caption("Operations that one side ran more often than the other, in one call")
        st.dataframe(
            pd.DataFrame(
                [(name, first, second, second - first) for name, first, second in found.counts],
                columns=["operation", ours, theirs, "more in the variant"],
            ),
            hide_index=True,
            row_height=28,
            alt="Operations by how often each side ran them",
        )
    elif found.state == "differ":
        st.caption("This run kept only the first difference; a new run keeps how often each side ran each operation.")
