"""What was found out without a stop-watch: the exact results of findings.json behind one claim."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from llama_workbench.harness.store import files, pass_schema
from llama_workbench.harness.store.errors import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.pass_schema import ExactResult

from .. import state, words
from ..views import data
from . import blocks


def read(run: data.Run) -> list[ExactResult]:
    """The records of findings.json. Raises RunError."""
    results: list[ExactResult] = pass_schema.FINDINGS.validate_python(RunFolder(run.path).records(files.FINDINGS))
    return results


def show(opened: state.Opened, claim: data.Claim) -> None:
    """What was asked, from the claim's own definition, and each result with its detail."""
    asked = claim.hypothesis
    blocks.facts(
        {
            "measured": asked.quantity or claim.kind,
            "of": asked.of or "",
            "phases": ", ".join(asked.phases or ()),
            "variant": asked.variant or "",
            "against": ", ".join(asked.baseline or ()),
            "workloads": ", ".join(asked.workloads or ()),
            "claimed": claim.claimed,
        }
    )
    if claim.kind not in {"memory", "count", "check"}:
        return
    try:
        rows = [row for row in state.computed(opened, read) if _is_of(row, claim)]
    except RunError as error:
        blocks.unreadable("The exact results cannot be read.", error)
        return
    if not rows:
        st.text("This run has not looked. This command does:")
        blocks.command(data.reproduce(opened.run, claim))
        return
    _show_rows(rows, claim)


def _show_rows(rows: Sequence[ExactResult], claim: data.Claim) -> None:
    for row in rows:
        value = "no value" if math.isnan(row.value) else f"{row.value:.4g} {claim.unit}".rstrip()
        where = words.markdown(row.workload or row.quantity)
        st.markdown(f"**{where}** {words.markdown(value)} :gray[from {row.count} looked at]")
        st.text(row.detail or row.reason or "no detail was kept")
    if len(rows) > 1:
        with st.expander("The same as a table"):
            names = ("workload", "variant", "value", "count", "seconds")
            table = [{name: getattr(row, name) for name in names} for row in rows]
            blocks.table(table, "Exact results behind this claim", row_px=blocks.LOW_ROW_PX)


def _is_of(row: ExactResult, claim: data.Claim) -> bool:
    """Whether a result has the subject of one of the claim's rows."""
    subject = (row.metric, row.quantity, row.workload, row.variant, row.baseline)
    quantity = claim.hypothesis.quantity or ""
    return subject in {
        (claim.kind, quantity, effect.workload, effect.variant, effect.baseline) for effect in claim.effects
    }
