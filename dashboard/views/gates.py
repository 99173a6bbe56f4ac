"""What the gates of a run found for two sides: the logits, and where their operations differ. No Streamlit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_workbench.dashboard.views import data, values

_FIRST = re.compile(r"op (\d+) of \d+ / \d+: (.*) against (.*)", re.DOTALL)  # as `harness.gates.trace_difference` says


@dataclass(frozen=True)
class Traces:
    """Whether two sides ran the same operations: "the same", "differ" or "not compared".

    rows: what is known of each side (what, baseline, variant). counts: operations that one side ran more often than
    the other (name, calls of the baseline, calls of the variant); empty too where the run did not keep them.
    """

    state: str
    detail: str = ""  # the first difference, as the run says it
    rows: tuple[tuple[str, str, str], ...] = ()
    counts: tuple[tuple[str, int, int], ...] = ()


def traces(run: data.Run, workload: str, baseline: str, variant: str) -> Traces:
    """Compare two sides by the digests of their op traces, and by what the run says of their first difference."""
    entry = data.experiment(run, workload)
    recorded = values.mapping(entry.get("traces"))
    ours, theirs = (values.mapping(recorded.get(name)) for name in (baseline, variant))
    said: Mapping[str, Any] = {}
    turned = False
    for row in values.records(entry.get("trace_differences")):
        names = (row.get("baseline"), row.get("variant"))
        if names in ((baseline, variant), (variant, baseline)):
            said, turned = row, names == (variant, baseline)
    if said:
        same = said.get("same") is True
    elif ours.get("digest") and theirs.get("digest"):
        same = ours["digest"] == theirs["digest"]
    else:
        return Traces("not compared")
    rows = [
        ("operations in a call", values.text(ours.get("ops")), values.text(theirs.get("ops"))),
        ("fused attention kernels", _kernels(ours), _kernels(theirs)),
        ("digest of the sequence", values.text(ours.get("digest")), values.text(theirs.get("digest"))),
    ]
    detail = values.text(said.get("detail"))
    if not same and (found := _FIRST.fullmatch(detail)):
        sides = (found[3], found[2]) if turned else (found[2], found[3])
        rows.append((f"first that differs: number {found[1]}", *sides))
    elif not same and detail:
        rows.append(("what differs", detail, ""))
    return Traces("the same" if same else "differ", detail, tuple(rows), _counts(said, turned))


def _kernels(trace: Mapping[str, Any]) -> str:
    kernels = trace.get("attention_kernels")
    return ", ".join(map(values.text, kernels)) or "none" if isinstance(kernels, list) else "not recorded"


def _counts(said: Mapping[str, Any], turned: bool) -> tuple[tuple[str, int, int], ...]:
    found = []
    counts = said.get("counts")
    for row in counts if isinstance(counts, list) else []:
        if isinstance(row, list) and len(row) == 3 and all(values.number(count) is not None for count in row[1:]):
            first, second = (int(count) for count in row[1:])
            found.append((values.text(row[0]), *((second, first) if turned else (first, second))))
    return tuple(found)


def row(run: data.Run, effect: data.Effect) -> dict[str, str]:
    """What the gates found for the two sides of an effect, or for the one of a reading: a row of a table."""
    gates = values.mapping(data.experiment(run, effect.workload).get("gates"))
    if not effect.baseline:
        return {
            "workload": effect.workload,
            "variant": effect.variant,
            "logits": gate(values.mapping(gates.get(effect.variant))),
        }
    compared = traces(run, effect.workload, effect.baseline, effect.variant)
    return {
        "workload": effect.workload,
        "baseline": effect.baseline,
        "its logits": gate(values.mapping(gates.get(effect.baseline))),
        "variant": effect.variant,
        "logits": gate(values.mapping(gates.get(effect.variant))),
        "operation traces": compared.state + (f": {compared.detail}" if compared.detail else ""),
    }


def gate(found: Mapping[str, Any]) -> str:
    """The logits gate of one variant in a few words."""
    if not found:
        return "not compared"
    error, tolerance = values.number(found.get("max_error")), values.number(found.get("tolerance"))
    known = f" (error {error:.1e} of {tolerance:.1e})" if error is not None and tolerance is not None else ""
    return f"{'pass' if found.get('passed') is True else 'fail'}{known}"
