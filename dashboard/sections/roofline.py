"""The part of a page that shows what share of what the machine can do each variant reaches: roofline.json."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.views import data
from llama_workbench.harness.metrics.roofline.roofline import Estimate, Reached, all_reached
from llama_workbench.harness.store.folder import RunError, RunFolder

COMMAND = "pytest --benchmark --claims fast-is-level"


@st.cache_data(max_entries=16, show_spinner=False)
def read_roofline(path: Path, stamp: data.Stamp, alpha: float) -> tuple[list[Reached], list[str]]:
    """Every variant's share, and a line with the reason for each that has none. Raises RunError."""
    return all_reached(RunFolder(path).read_roofline(), alpha=alpha)


def show(opened: parts.Opened) -> None:
    """A table, a row for each workload and variant, and what it means."""
    run = opened.run
    alpha = min((claim.alpha for claim in run.claims), default=run.alpha or 0.01)
    try:
        rows, missing = read_roofline(run.path, opened.stamp, alpha)
    except RunError as error:
        st.warning("The roofline cannot be read.", icon=":material/warning:")
        st.text(f"{error.path.name}: {error.problem}. {error.fix}")
        return
    if not rows and not missing:
        parts.show_missing("shares of the roof", COMMAND)
        return
    if rows:
        st.dataframe(
            pd.DataFrame(
                {
                    "workload": [row.workload for row in rows],
                    "variant": [row.variant for row in rows],
                    "share of the roof": [_text(row.share, " %") for row in rows],
                    "rounds": [row.rounds for row in rows],
                    "what binds": [row.binds for row in rows],
                    "a call": [_text(row.call_ms, " ms") for row in rows],
                    "matrix product": [_text(row.gflops, " GFLOP/s") for row in rows],
                    "memory": [_text(row.gbytes, " GB/s") for row in rows],
                    "FLOP a byte": [f"{row.intensity:.3g}" for row in rows],
                    "weights in the cache": [_fits(row.in_cache) for row in rows],
                }
            ),
            hide_index=True,
            row_height=28,
            alt="Share of the machine's roof that each variant reaches, one row for each workload and variant",
        )
        st.caption(
            "The roof is the least time that a call's operations and bytes can take at the rates of a matrix product "
            "and of a memory kernel, both timed in the same rounds as the variants. At 100 % nothing is left to gain. "
            f"Each interval holds with {words.percent(1 - alpha)} confidence. Times are this machine's alone."
        )
    parts.show_list("Not measured", missing)


def _text(estimate: Estimate, unit: str) -> str:
    ends = [f"{end:.3g}" if 0 < end < math.inf else "open" for end in (estimate.low, estimate.high)]
    return f"{estimate.value:.3g}{unit} [{', '.join(ends)}]"


def _fits(in_cache: bool | None) -> str:
    return "not known" if in_cache is None else "yes" if in_cache else "no"
