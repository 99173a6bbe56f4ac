"""The part of a page that shows what was found out without a stop-watch: findings.json behind one claim."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.views import data, values
from llama_workbench.harness.store.folder import RunError, RunFolder


@st.cache_data(max_entries=16, show_spinner=False)
def read_findings(path: Path, stamp: data.Stamp) -> list[dict[str, Any]]:
    """The records of findings.json. Raises RunError."""
    return RunFolder(path).read_findings()


def show(opened: parts.Opened, claim: data.Claim) -> None:
    """What was read, from the claim's own definition, and each finding with its detail."""
    asked = {
        "read": values.text(claim.hypothesis.get("quantity")) or claim.kind,
        "of": values.text(claim.hypothesis.get("of")),
        "phases": _names(claim.hypothesis.get("phases")),
        "variant": values.text(claim.hypothesis.get("variant")),
        "against": values.text(claim.hypothesis.get("baseline")),
        "workloads": _names(claim.hypothesis.get("workloads")),
        "claimed": claim.claimed,
    }
    st.table({name: words.markdown(value) for name, value in asked.items() if value}, border="horizontal")
    if claim.kind not in {"memory", "count", "check"}:
        return
    try:
        records = read_findings(opened.run.path, opened.stamp)
    except RunError as error:
        st.warning("What was found out cannot be read.", icon=":material/warning:")
        st.text(f"{error.path.name}: {error.problem}. {error.fix}")
        return
    found = [record for record in records if _is_of(record, claim)]
    if not found:
        st.text("This run has not looked. This command does:")
        st.code(data.reproduce(opened.run, claim), language="bash", wrap_lines=True)
        return
    for record in found:
        where = values.text(record.get("workload")) or values.text(record.get("quantity"))
        value, count = values.number(record.get("value")), values.number(record.get("count"))
        known = "no value" if value is None else f"{value:.4g} {claim.unit}".rstrip()
        st.markdown(f"**{words.markdown(where)}** {words.markdown(known)} :gray[from {count or 0:.0f} looked at]")
        st.text(values.text(record.get("detail")) or values.text(record.get("reason")) or "no detail was kept")
    table = pd.DataFrame(
        [{name: record.get(name) for name in ("workload", "variant", "value", "count", "seconds")} for record in found]
    )
    if len(found) > 1:
        with st.expander("The same as a table"):
            st.dataframe(table, hide_index=True, row_height=28, alt="Findings behind this claim")


def _is_of(record: Mapping[str, Any], claim: data.Claim) -> bool:
    """Whether a finding has the subject of one of the claim's rows."""
    subject = tuple(values.text(record.get(name)) for name in ("metric", "quantity", "workload", "variant", "baseline"))
    quantity = values.text(claim.hypothesis.get("quantity"))
    return subject in {
        (claim.kind, quantity, effect.workload, effect.variant, effect.baseline) for effect in claim.effects
    }


def _names(value: Any) -> str:
    return ", ".join(map(values.text, value)) if isinstance(value, list) else ""
