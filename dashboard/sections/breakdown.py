"""The time by phase, of a few variants on one workload."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from .. import state, words
from ..figures import breakdown as figures
from ..views import breakdown
from . import blocks

WHOLE = "forward"
COMMAND = "pytest --benchmark --claims qkv-61,mask-is-the-bottleneck"  # phases are timed for claims about shares


def show(opened: state.Opened, workload: str, sides: Sequence[str], of: str = WHOLE) -> None:
    """One bar for each of `sides` whose phases were timed; `of` is the denominator, a key of DENOMINATORS."""
    whole = of if of in breakdown.WHOLES else WHOLE
    phases = state.computed(opened, breakdown.read)
    rows, missing = [], []
    for side in sides:
        try:
            one = breakdown.breakdown(phases, workload, side, whole, opened.run.alpha)
        except ValueError:
            missing.append(side)
            continue
        rows.append((f"{side} · {one.ms:.3g} ms · {one.rounds} rounds", one.shares))
    if not rows:
        blocks.missing("shares of the time by phase here", COMMAND)
        return
    blocks.plot(figures.phase_bars(rows, state.colours()), figures.phase_bars_text(rows), "phases")
    untimed = f" Not timed by phase: {words.listing(missing)}." if missing else ""
    st.caption(
        words.markdown(
            f"Shares of the {breakdown.WHOLES[whole]} by phase; each bar sums to 100 %. Milliseconds hold for "
            f"this machine only.{untimed}"
        )
    )
