"""The part of a page that shows the memory of a few variants on one workload."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import memory_bars
from llama_workbench.dashboard.views import data


def show(run: data.Run, workload: str, sides: Sequence[str], baseline: str) -> None:
    """What `sides` (variants) need on one workload: transient peak, parameters, caches, and how they differ."""
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
            for line in differences(rows, field, baseline):
                st.caption(words.markdown(line))
    for row in rows:
        if row.reason:
            st.text(f"{row.variant}: {row.reason}")
    for name in sides:
        if (workload, name) not in run.memory:
            st.text(f"{name}: not measured on this workload")
    st.caption(
        "Peak transient is the most that one call had allocated at a time, above the weights, after warming up. "
        "Parameters and caches are counted from their shapes. Each panel has a scale of its own. What is counted is "
        "exact: one reading, no interval."
    )


def differences(rows: Sequence[data.Memory], field: str, baseline: str) -> list[str]:
    """How far every other side lies from the baseline by one amount: "fast: 1.2 MiB less than before (-30 %)"."""
    amounts: dict[str, float | None] = {row.variant: getattr(row, field) for row in rows}
    base = amounts.get(baseline)
    if base is None:
        return []
    said = []
    for name, amount in amounts.items():
        if name == baseline or amount is None:
            continue
        if amount == base:
            said.append(f"{name}: the same as {baseline}")
            continue
        share = f" ({100 * (amount - base) / base:+.3g} %)" if base else ""
        word = "more" if amount > base else "less"
        said.append(f"{name}: {words.size(abs(amount - base))} {word} than {baseline}{share}")
    return said
