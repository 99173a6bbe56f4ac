"""What is left to gain, step by step."""

from __future__ import annotations

import streamlit as st

from llama_workbench.harness.report.ladder import ladder_headings, ladder_of, ladder_rows

from .. import state
from . import blocks, named


def show(opened: state.Opened) -> None:
    """Each step against the one before it, and what it costs in memory."""
    run = opened.run
    ladder = ladder_of(run.claims, run.dispute, run.manifest)
    assert ladder is not None
    blocks.header("What is left to gain, step by step", anchor="ladder")
    with st.container(horizontal=True):
        named.show_codes([*ladder.steps, *ladder.beyond])
        named.show_cards(run, ladder.names, [])
    headings = ladder_headings(ladder)
    blocks.table([dict(zip(headings, row, strict=True)) for row in ladder_rows(ladder)], "Gain and memory of each step")
    st.caption(
        "Each step is measured against the one before it. Multiplied, the steps give their joint gain, which is also "
        "measured as one. Memory: what a model holds more (or less) after a prompt, in percent of its weights."
    )
