"""Memory of a few variants on one workload."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import streamlit as st

from .. import state, words
from ..figures import memory as figures
from ..views import data, memory
from . import blocks


def show(run: data.Run, workload: str, sides: Sequence[str], baseline: str) -> None:
    """What `sides` (variants) need on one workload: transient peak, parameters, caches, and how they differ."""
    rows = [run.memory[workload, name] for name in sides if (workload, name) in run.memory]
    if not rows:
        blocks.missing("memory measurements", f"{state.PROFILE_COMMAND} --workloads {shlex.quote(workload)}")
        return
    for column, (field, title) in zip(st.columns(len(memory.AMOUNTS)), memory.AMOUNTS.items(), strict=True):
        with column:
            st.markdown(f"**{title}**")
            drawn = figures.memory(rows, field, baseline, state.colours())
            blocks.plot(drawn, f"{title}. {figures.memory_text(rows, field)}", field)
            for line in memory.differences(rows, field, baseline):
                st.caption(words.markdown(line))
    for row in rows:
        if row.reason:
            st.text(f"{row.variant}: {row.reason}")
    for name in sides:
        if (workload, name) not in run.memory:
            st.text(f"{name}: not measured on this workload")
    st.caption(
        "Peak transient is the most that one call had allocated at a time, above the weights, after warming up. "
        "Parameters and caches are counted from their shapes. Each panel has a scale of its own. Counts are exact: "
        "taken once, without an interval."
    )
