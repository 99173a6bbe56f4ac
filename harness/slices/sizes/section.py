"""A part of the page Explore: time against size, and the table of a run of several sides or sizes."""

from __future__ import annotations

import streamlit as st

from llama_workbench.dashboard import state
from llama_workbench.dashboard.sections import blocks
from llama_workbench.dashboard.views import data

from ...store.folder import RunFolder
from .screen import drawn, headings, rows, sentences
from .table import is_tabled, table_of

PAGE, KEY, TITLE, PLACE = "explore", "sides", "Sides and sizes", 3


def is_there(run: data.Run) -> bool:
    """Whether the run compares several sides or sizes."""
    return is_tabled(run.manifest)


def show(opened: state.Opened) -> None:
    """The picture, what follows from it, and its numbers."""
    table = state.computed(opened, lambda run: table_of(RunFolder(run.path)))
    assert table is not None
    if any(table.sizes.values()):
        st.image(drawn(table, state.colours()), width="stretch")
    for line in sentences(table):
        blocks.say(line)
    blocks.table([dict(zip(headings(table), row, strict=True)) for row in rows(table)], "Times by size and side")
