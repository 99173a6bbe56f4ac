"""A part of the page Explore: what the machine could do."""

from __future__ import annotations

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks
from llama_workbench.dashboard.views import data

from ...store.folder import RunFolder
from .metric import ROOFLINE, Reached, all_reached
from .report import COLUMNS, roofline_rows

PAGE, KEY, TITLE, PLACE = "explore", "roofline", "Roofline", 3


def is_there(run: data.Run) -> bool:
    """Whether the run has timed peak kernels."""
    return RunFolder(run.path).has(ROOFLINE)


def _read(run: data.Run, alpha: float) -> tuple[list[Reached], list[str]]:
    return all_reached(RunFolder(run.path).read(ROOFLINE), alpha=alpha)


def show(opened: state.Opened) -> None:
    """A table, a row for each workload and variant, and what it means."""
    run = opened.run
    reached = blocks.computed("The roofline cannot be read.", opened, _read, run.alpha)
    if reached is None:
        return
    rows, missing = reached
    if not rows and not missing:
        blocks.missing("roofline fractions", run.dispute.command(KEY))
        return
    if rows:
        in_words = [
            dict(zip(COLUMNS, (run.named(place), *cells), strict=True)) for place, *cells in roofline_rows(rows)
        ]
        weights = ({None: "not known", True: "yes", False: "no"}[row.in_cache] for row in rows)
        blocks.table(
            [row | {"weights in the cache": fits} for row, fits in zip(in_words, weights, strict=True)],
            "Roofline fraction of each variant: how much of this machine's peak it reaches on each workload",
        )
        st.caption(
            "The roofline is the least time that a call's operations and bytes can take at the rates of two peak "
            "kernels, a matrix product and a read of memory, timed in the same rounds as the variants. At 100 % "
            "nothing is left to gain; above, a call is faster than the kernel that stands for the peak. Each interval "
            f"holds with {words.percent(1 - run.alpha)} confidence. Times are this machine's alone."
        )
    blocks.notes(
        "More than the roofline",
        [f"{one.variant} on {run.named(one.workload)}: {one.above}" for one in rows if one.above],
    )
    blocks.notes("Not measured", missing)
