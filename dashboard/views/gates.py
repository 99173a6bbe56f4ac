"""What the gates of a run found for two sides: the logits, and where their operations differ."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llama_workbench.harness.store import schema
from llama_workbench.harness.store.verdict_schema import Effect

from . import data

_FIRST = re.compile(r"op (\d+) of \d+ / \d+: (.*) against (.*)", re.DOTALL)  # as the worker's gate writes it


@dataclass(frozen=True)
class Traces:
    """Whether two sides ran the same operations: "the same", "differ" or "not compared".

    rows: (what, baseline, variant). counts: (operation, calls of the baseline, of the variant), where they differ.
    """

    state: str
    detail: str = ""  # the first difference, as the run says it
    rows: tuple[tuple[str, str, str], ...] = ()
    counts: tuple[tuple[str, int, int], ...] = ()


def traces(run: data.Run, workload: str, baseline: str, variant: str) -> Traces:
    """Compare two sides by the digests of their op traces, and by what the run says of their first difference."""
    entry = data.experiment(run, workload)
    ours, theirs = entry.traces.get(baseline), entry.traces.get(variant)
    pair = {baseline, variant}
    record = next((row for row in entry.trace_differences[::-1] if {row.baseline, row.variant} == pair), None)
    if record is None and (ours is None or theirs is None):
        return Traces("not compared")
    same = record.same if record else bool(ours and theirs and ours.digest == theirs.digest)
    what = ("operations in a call", "fused attention kernels", "digest of the sequence")
    rows = list(zip(what, _facts(ours), _facts(theirs), strict=True))
    detail = (record and record.detail) or ""
    order = -1 if record and record.baseline == variant else 1  # the run may have compared them the other way round
    if not same and (first := _FIRST.fullmatch(detail)):
        first_side, other = first.groups()[1:][::order]
        rows.append((f"first that differs: number {first[1]}", first_side, other))
    elif not same and detail:
        rows.append(("what differs", detail, ""))
    counts = [(name, b, a) if order < 0 else (name, a, b) for name, a, b in (record and record.counts) or ()]
    return Traces("the same" if same else "differ", detail, tuple(rows), tuple(counts))


def _facts(trace: schema.Trace | None) -> tuple[str, str, str]:
    if trace is None:
        return "", "", ""
    kernels = "not recorded" if trace.attention_kernels is None else ", ".join(trace.attention_kernels) or "none"
    return str(trace.ops), kernels, trace.digest


def row(run: data.Run, effect: Effect) -> dict[str, str]:
    """What the gates found for the two sides of an effect, or for its one side: a row of a table."""
    gates = data.experiment(run, effect.workload).gates
    variant = {"variant": effect.variant, "logits": logits(gates.get(effect.variant))}
    if not effect.baseline:
        return {"workload": effect.where, **variant}
    compared = traces(run, effect.workload, effect.baseline, effect.variant)
    return {
        "workload": effect.where,
        "baseline": effect.baseline,
        "its logits": logits(gates.get(effect.baseline)),
        **variant,
        "operation traces": compared.state + (f": {compared.detail}" if compared.detail else ""),
    }


def logits(gate: schema.Gate | None) -> str:
    """The logits gate of one variant in a few words."""
    if gate is None:
        return "not compared"
    numbers = gate.max_error is not None and gate.tolerance is not None
    error = f" (error {gate.max_error:.1e} of {gate.tolerance:.1e})" if numbers else ""
    return f"{'pass' if gate.passed else 'fail'}{error}"
