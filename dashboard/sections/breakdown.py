"""The part of a page that shows the shares of the time by phase, of a few variants on one workload."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import breakdown as phase_bars
from llama_workbench.dashboard.views import breakdown as phase_shares
from llama_workbench.harness.metrics.share.shares import ALPHA

WHOLE = "forward"
COMMAND = "pytest --benchmark --claims qkv-61,mask-is-the-bottleneck"  # phases are timed for claims about shares


def show(opened: parts.Opened, workload: str, sides: Sequence[str], of: str = WHOLE) -> None:
    """One bar for each of `sides` whose phases were timed; `of` is the denominator, a key of DENOMINATORS."""
    whole = of if of in phase_shares.WHOLES else WHOLE
    phases = parts.read_phases(opened.run.path, opened.stamp)
    rows, missing = [], []
    for side in sides:
        try:
            found = phase_shares.breakdown(phases, workload, side, whole, opened.run.alpha or ALPHA)
        except ValueError:
            missing.append(side)
            continue
        rows.append((f"{side} · {found.ms:.3g} ms · {found.rounds} rounds", found.shares))
    if not rows:
        parts.show_missing("shares of the time by phase here", COMMAND)
        return
    st.plotly_chart(
        phase_bars.phase_bars(rows, parts.colours()),
        config=parts.PLOT,
        alt=phase_bars.phase_bars_text(rows),
        key="phases",
    )
    left_out = f" Not timed by phase: {words.listing(missing)}." if missing else ""
    st.caption(
        words.markdown(
            f"Shares of the {phase_shares.WHOLES[whole]} by phase; each bar sums to 100 %. Milliseconds hold for "
            f"this machine only.{left_out}"
        )
    )
