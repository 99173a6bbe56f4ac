"""Explore: where time and memory go in one run: phases, flamegraphs, memory, and what a speed-up is due to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from llama_workbench.dashboard import state
from llama_workbench.dashboard.sections import blocks, flames, head, memory
from llama_workbench.dashboard.views import data, outcomes
from llama_workbench.harness.report.ladder import ladder_of, ladder_rows
from llama_workbench.harness.slices import faces
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import CAUSES, MEMORY_SWEEP


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
    folder, record = RunFolder(run.path), outcomes.with_profile(run, "")
    seen = Section("flamegraphs", "Flamegraphs", flames.explore, bool(run.profiles) or folder.has(CAUSES), record)
    held = Section("memory", "Memory", memory.show, bool(run.memory) or folder.has(MEMORY_SWEEP), record)
    by_place = {1: [seen], 2: [held]}
    for face in faces("section"):
        if face.PAGE == "explore":
            there, measured_by = face.is_there(run), getattr(face, "MEASURED_BY", face.KEY)
            if there or (measured_by in run.dispute.measured_by and not run.is_of_functions):
                part = Section(face.KEY, face.TITLE, face.show, there, run.dispute.command(measured_by))
                by_place.setdefault(face.PLACE, []).append(part)
    listed = [section for place in sorted(by_place) for section in by_place[place]]
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
