"""Loading the weights: shares of the time to the first token, and times of each loader."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from llama_workbench.harness.metrics.loading.metric import LEAST_ROUNDS
from llama_workbench.harness.store.errors import RunError

from .. import state, words
from ..figures import forest as figures
from ..views import forest, loading
from . import blocks

COMMAND = "pytest --benchmark --claims weight-loading-bottleneck"


def show(opened: state.Opened) -> None:
    """The loads of one checkpoint."""
    try:
        loads = state.computed(opened, loading.read_loads)
    except RunError as error:
        blocks.warn(f"Left out: {error.brief}")
        loads = []
    if not loads:
        blocks.missing("measured loads", COMMAND)
        return
    geometry = state.choose("Checkpoint", list(dict.fromkeys(load.row.checkpoint for load in loads)), "geometry")
    here = [load for load in loads if load.row.checkpoint == geometry]
    shares = loading.shares(opened.run, geometry, here)
    if shares.effects:
        blocks.plot(figures.forest(shares, {}, state.colours()), forest.in_words(shares, {}), "loading")
    tokens = max(load.row.prompt_tokens for load in here)
    blue = f" Blue: what is claimed ({shares.claimed})." if shares.claimed else ""
    st.caption(
        words.markdown(
            "Share of the time to the first token that goes if the weights are in memory already, after a prompt of "
            f"{tokens} tokens. Cold: the file was dropped from the page cache before each load.{blue} "
            f"{_rounds_note(here)}"
        )
    )
    blocks.table([_row(load) for load in here], "Time and peak memory of each loader with cold and warm page cache")
    st.caption(
        "Times are wall time, the geometric mean of the loads with its interval. A mapped file opens at once and is "
        "read later, which is why reading every byte stands beside opening. The last column is the time of mapped "
        "safetensors over the loader's, until every byte was read: above 1 the loader is faster. '@aa' is that one "
        "once more: its ratio is the pass's own noise. Peak memory is resident memory above what there was before, "
        "pages of the file included."
    )
    blocks.notes(
        "Not measured",
        [f"{load.row.loader}, {load.row.cache} page cache: {load.row.reason}" for load in here if load.row.reason],
    )


def _rounds_note(here: Sequence[loading.Load]) -> str:
    """Says plainly where there are too few rounds."""
    fewest = min(load.share.n for load in here)
    if fewest < 2:
        return f"Too few rounds for an interval ({fewest} of about {LEAST_ROUNDS}) where the ends are open."
    return f"At least {fewest} rounds each."


def _row(load: loading.Load) -> dict[str, object]:
    touched = load.against.get("touched")
    if touched is None:
        ratio = "–"
    elif not touched.rounds:
        ratio = "not measured"
    elif math.isinf(touched.high):
        ratio = f"{touched.ratio:.3g}× (too few rounds: {touched.rounds})"
    else:
        ratio = words.effect(touched.ratio, touched.low, touched.high)
    return {
        "loader": load.row.loader,
        "page cache": load.row.cache,
        "open": _time_text(load.times.get("open")),
        "read every byte": _time_text(load.times.get("touched")),
        "first token": _time_text(load.times.get("first_token")),
        "peak memory": words.size(load.peak_bytes),
        "file": words.size(load.row.file_bytes),
        "loads": len(load.row.loads),
        "first tokens": load.share.n,
        "against mapped safetensors": ratio,
    }


def _time_text(time: loading.Time | None) -> str:
    if time is None:
        return "not measured"
    if time.low is None or time.high is None:
        return f"{time.value:,.3g} ms (too few rounds for an interval: {time.count} of about {LEAST_ROUNDS})"
    return words.plain_interval(time.value, time.low, time.high, "ms")
