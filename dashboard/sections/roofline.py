"""How much of what the machine can do each variant reaches: roofline.json."""

from __future__ import annotations

import math

import streamlit as st

from llama_workbench.harness.metrics.roofline.roofline import Estimate, Reached, all_reached
from llama_workbench.harness.store.errors import RunError
from llama_workbench.harness.store.files import ROOFLINE
from llama_workbench.harness.store.folder import RunFolder

from .. import state, words
from ..views import data
from . import blocks

COMMAND = "pytest --benchmark --claims fast-is-level"


def read(run: data.Run, alpha: float) -> tuple[list[Reached], list[str]]:
    """The roofline fraction of every variant, and a line with the reason for each that has none. Raises RunError."""
    return all_reached(RunFolder(run.path).records(ROOFLINE), alpha=alpha)


def show(opened: state.Opened) -> None:
    """A table, a row for each workload and variant, and what it means."""
    run = opened.run
    alpha = min((claim.alpha for claim in run.claims), default=run.alpha or 0.01)
    try:
        rows, missing = state.computed(opened, read, alpha)
    except RunError as error:
        blocks.unreadable("The roofline cannot be read.", error)
        return
    if not rows and not missing:
        blocks.missing("roofline fractions", COMMAND)
        return
    if rows:
        blocks.table(
            [
                {
                    "workload": row.workload,
                    "variant": row.variant,
                    "roofline fraction": _text(row.share, " %"),
                    "rounds": row.rounds,
                    "what binds": row.binds,
                    "a call": _text(row.call_ms, " ms"),
                    "matrix product": _text(row.gflops, " GFLOP/s"),
                    "memory": _text(row.gbytes, " GB/s"),
                    "FLOP a byte": f"{row.intensity:.3g}",
                    "weights in the cache": _fits(row.in_cache),
                }
                for row in rows
            ],
            "Roofline fraction of each variant: how much of this machine's peak it reaches on each workload",
            row_px=blocks.LOW_ROW_PX,
        )
        st.caption(
            "The roofline is the least time that a call's operations and bytes can take at the rates of two peak "
            "kernels, a matrix product and a read of memory, timed in the same rounds as the variants. At 100 % "
            f"nothing is left to gain. Each interval holds with {words.percent(1 - alpha)} confidence. Times are this "
            "machine's alone."
        )
    blocks.notes("Not measured", missing)


def _text(estimate: Estimate, unit: str) -> str:
    ends = [f"{end:.3g}" if 0 < end < math.inf else "open" for end in (estimate.low, estimate.high)]
    return f"{estimate.value:.3g}{unit} [{', '.join(ends)}]"


def _fits(in_cache: bool | None) -> str:
    return "not known" if in_cache is None else "yes" if in_cache else "no"
