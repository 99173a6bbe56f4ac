"""Explore: where time and memory go in one run: phases, flamegraphs, memory, and what a speed-up is due to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from llama_workbench.dashboard import state
from llama_workbench.dashboard.sections import blocks, breakdown, flames, head, memory
from llama_workbench.dashboard.views import data, outcomes
from llama_workbench.harness.metrics.share.metric import PHASES
from llama_workbench.harness.profilers.causes import CAUSES
from llama_workbench.harness.report.ladder import ladder_of
from llama_workbench.harness.slices import faces
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import MEMORY_SWEEP


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
    listed = [seen, held]
    if not run.is_of_functions:
        command = run.dispute.command("phases")
        listed = [Section("time", "Time by phase", breakdown.show, folder.has(PHASES), command), *listed]
    for face in faces("section"):
        if face.PAGE == "explore" and ((there := face.is_there(run)) or face.KEY in run.dispute.measured_by):
            listed.append(Section(face.KEY, face.TITLE, face.show, there, run.dispute.command(face.KEY)))
    if ladder_of(run.claims, run.dispute, run.manifest):
        listed.append(Section("steps", "Steps", breakdown.show_steps, True, ""))
    return {section.key: section for section in listed}


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
