"""The part of a page that shows the memory of a few variants on one workload."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import streamlit as st

from . import data, parts
from .figures import memory_bars


def show(run: data.Run, workload: str, sides: Sequence[str], baseline: str) -> None:
    """What `sides` (variants) need on one workload: transient peak, parameters, caches."""
    rows = [run.memory[workload, name] for name in sides if (workload, name) in run.memory]
    if not rows:
        parts.show_missing("memory measurements", f"{parts.PROFILE_COMMAND} --workloads {shlex.quote(workload)}")
        return
    for column, (field, title) in zip(st.columns(len(memory_bars.AMOUNTS)), memory_bars.AMOUNTS.items(), strict=True):
        with column:
            st.markdown(f"**{title}**")
            st.plotly_chart(
                memory_bars.memory(rows, field, baseline, parts.colours()),
                config=parts.PLOT,
                alt=f"{title}. {memory_bars.memory_text(rows, field)}",
                key=field,
            )
    for row in rows:
        if row.reason:
            st.text(f"{row.variant}: {row.reason}")
    st.caption(
        "Peak transient is the most that one call had allocated at a time, above the weights, after warming up. "
        "Parameters and caches are counted from their shapes. Each panel has a scale of its own."
    )
