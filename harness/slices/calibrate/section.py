"""Where the trust in a run is shown: how often verdicts are wrong, by comparisons whose outcome was known."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks

from . import rates
from .rates import FILE, CalibrationError, read_trials

PAGE = "trust"


def show() -> None:
    """Rates from the trials beside the runs that are shown, or the command that makes some."""
    blocks.header("How often verdicts are wrong", anchor="calibration")
    st.caption("By measurement. docs/concepts/statistics.md has simulated error rates of the statistics alone.")
    try:
        where = state.results()
        trials = read_trials(where / FILE) if isinstance(where, Path) and (where / FILE).is_file() else None
    except CalibrationError as error:
        blocks.warn(str(error))
        return
    if trials is None:
        st.text("There are no comparisons of known outcome yet. This command makes some, in five minutes:")
        blocks.command("workbench calibrate")
        return
    blocks.say(rates.in_a_paragraph(trials))
    titles = ("Rates of comparisons whose outcome was known", "How often two runs of one comparison disagree")
    for (headings, rows_of), title in zip(rates.TABLES, titles, strict=True):
        if rows := rows_of(trials):
            blocks.table([dict(zip(headings, row.cells, strict=True)) for row in rows], title)
    machines = words.one_line("; ".join(dict.fromkeys(trial.machine for trial in trials)))
    st.caption(
        "Made by workbench calibrate, not by this run: two files that do the same work, or one of them a known share "
        f"more, each measured by a command of its own. {rates.EXPLAINED} Made on {machines}."
    )
