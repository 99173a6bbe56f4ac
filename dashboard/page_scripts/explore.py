"""Explore: where time and memory go in one run: phases, flamegraphs, memory, and what a speed-up is due to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from llama_workbench.dashboard import state
from llama_workbench.dashboard.sections import blocks, head
from llama_workbench.dashboard.views import data, outcomes
from llama_workbench.harness.report.ladder import ladder_of, ladder_rows
from llama_workbench.harness.slices import page_parts


@dataclass(frozen=True)
class Section:
    """A part of the page. key: what `?show=` says of it. is_there: whether the run has something for it. command: what
    records that."""

    key: str
    title: str
    show: Callable[[state.Opened], None]
    is_there: bool
    command: str


def sections(run: data.Run) -> dict[str, Section]:
    """Those that a run may have, by their keys."""
    listed = []
    for face in page_parts("is_there"):
        there, measured_by = face.is_there(run), getattr(face, "MEASURED_BY", face.KEY)
        if measured_by == "--profile":
            command = outcomes.with_profile(run, "")
        else:
            is_measurable = measured_by in run.dispute.measured_by and not run.is_of_functions
            command = run.dispute.command(measured_by) if is_measurable else ""
        if there or command:
            listed.append(Section(face.KEY, face.TITLE, face.show, there, command))
    if ladder_of(run.claims, run.dispute, run.manifest):
        listed.append(Section("steps", "Steps", show_steps, True, ""))
    return {section.key: section for section in listed}


def show_steps(opened: state.Opened) -> None:
    """Each step against the one before it, and what it costs in memory."""
    run = opened.run
    ladder = ladder_of(run.claims, run.dispute, run.manifest)
    assert ladder is not None
    blocks.header("What is left to gain, step by step", anchor="ladder")
    with st.container(horizontal=True):
        blocks.show_codes([*ladder.steps, *ladder.beyond])
        blocks.show_cards(run, ladder.names, [])
    blocks.table(ladder_rows(ladder), "Gain and memory of each step")
    st.caption(
        "Each step is measured against the one before it. Multiplied, the steps give their joint gain, which is also "
        "measured as one. Memory: what a model holds more (or less) after a prompt, in percent of its weights."
    )


def main() -> None:
    opened = head.open_run("Explore")
    if opened is None:
        return
    known = sections(opened.run)
    wanted = st.query_params.get("show")  # a link leads there even where there is nothing, and the section says why
    there = {key: section.title for key, section in known.items() if section.is_there or key == wanted}
    if there:
        chosen = state.choose("Explore", there, "show", widget=blocks.segments)
        known[chosen].show(opened)
    missing = {section.title.lower(): section.command for key, section in known.items() if key not in there}
    if missing:
        st.caption("Not recorded in this run. These commands record it:")
        blocks.command("\n".join(f"{command}  # {title}" for title, command in missing.items()))


main()
