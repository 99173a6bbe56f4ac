"""What the gates of a run found for two sides: the logits, and where their operations differ."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llama_workbench.harness.store import schema

from . import data

_FIRST = re.compile(r"op (\d+) of \d+ / \d+: (.*) against (.*)", re.DOTALL)  # as the worker's gate writes it


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
    ours, theirs = entry.traces.get(baseline), entry.traces.get(variant)
    record, turned = None, False
    for row in entry.trace_differences:
        if (row.baseline, row.variant) in ((baseline, variant), (variant, baseline)):
            record, turned = row, row.baseline == variant
    if record is None and (ours is None or theirs is None):
        return Traces("not compared")
    same = record.same if record else bool(ours and theirs and ours.digest == theirs.digest)
    rows = [
        (what, (ours and show(ours)) or "", (theirs and show(theirs)) or "")
        for what, show in (
            ("operations in a call", lambda trace: str(trace.ops)),
            ("fused attention kernels", _kernels),
            ("digest of the sequence", lambda trace: trace.digest),
        )
    ]
    detail = (record and record.detail) or ""
    if not same and (first := _FIRST.fullmatch(detail)):
        sides = (first[3], first[2]) if turned else (first[2], first[3])
        rows.append((f"first that differs: number {first[1]}", *sides))
    elif not same and detail:
        rows.append(("what differs", detail, ""))
    counts = [(name, *((b, a) if turned else (a, b))) for name, a, b in (record and record.counts) or ()]
    return Traces("the same" if same else "differ", detail, tuple(rows), tuple(counts))


def _kernels(trace: schema.Trace) -> str:
    return "not recorded" if trace.attention_kernels is None else ", ".join(trace.attention_kernels) or "none"


def row(run: data.Run, effect: data.Effect) -> dict[str, str]:
    """What the gates found for the two sides of an effect, or for its one side: a row of a table."""
    gates = data.experiment(run, effect.workload).gates
    variant = {"variant": effect.variant, "logits": logits(gates.get(effect.variant))}
    if not effect.baseline:
        return {"workload": effect.workload, **variant}
    compared = traces(run, effect.workload, effect.baseline, effect.variant)
    return {
        "workload": effect.workload,
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


@dataclass(frozen=True)
class Worst:
    """The gates of one variant over all workloads; `error` and `tolerance` are those of the largest part used."""

    variant: str
    passed: int
    of: int
    cases: int
    error: float | None = None
    tolerance: float | None = None
    workload: str = ""

    @property
    def used_percent(self) -> float | None:
        """How much of its tolerance the largest error used."""
        return 100 * self.error / self.tolerance if self.error is not None and self.tolerance else None


def worst(run: data.Run) -> list[Worst]:
    """The gates of a run by variant, the largest error first."""
    by_variant: dict[str, list[tuple[str, schema.Gate]]] = {}
    for entry in run.manifest.experiments:
        for variant, gate in entry.gates.items():
            by_variant.setdefault(variant, []).append((entry.workload.name, gate))
    found = []
    for variant, gates in by_variant.items():
        counts = sum(gate.passed for _, gate in gates), len(gates), sum(gate.cases or 0 for _, gate in gates)
        known = [
            Worst(variant, *counts, gate.max_error, gate.tolerance, workload)
            for workload, gate in gates
            if gate.max_error is not None and gate.tolerance
        ]
        found.append(max(known[::-1], key=lambda one: one.used_percent or 0, default=Worst(variant, *counts)))
    return sorted(found, key=lambda one: one.used_percent or 0, reverse=True)
