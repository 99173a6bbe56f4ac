"""What caching costs in memory: what a variant holds after 1, 2, 4, ... different lengths.

    (workload, variant) --run--> memory_sweep.json --memory_results--> exact results, in percent

A fresh process for each builds the variant, serves the lengths and counts tensors, as they are and after a `reset`,
beside what the policies say there must be.

The lengths are spread evenly up to the workload's longest. Masks grow with their squares: N lengths up to T hold about
N/3 times the largest mask, so each doubling of N doubles them in the end.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal

from llama_workbench.variants.memory_policy import KINDS, MOST_LENGTHS

from ...measure.groups import Group
from ...measure.measurement import Measurement
from ...measure.participants import ExperimentState
from ...measure.passes import measured_by
from ...measure.processes import WorkerFailed
from ...metrics.base import ExactMetric, PassContext, VariantHypothesis, not_measured, subjects
from ...spec.hypotheses import Quantity
from ...store.forms import ExactResult
from ...store.passes import MEMORY_SWEEP

STEP_SECONDS = 120.0
CALLS = 6 * MOST_LENGTHS
"""A step takes at most this long, and as long as so many of the workload's calls: three times what it should need."""

START_SECONDS_EACH = 5.0
"""About what a fresh process takes until it can measure; for the progress bar only."""


def _unfit(measurement: Measurement, state: ExperimentState | None, variant: str) -> str | None:
    """Why there is nothing to sweep."""
    if state is not None and state.experiment.workload.kind != "prefill":
        return f"memory is swept over the lengths of prefill workloads; this one is {state.experiment.workload.kind}"
    return not_measured(measurement, state, variant)


def _sweep(
    measurement: Measurement, group: Group, state: ExperimentState, variant: str, record: dict[str, Any]
) -> None:
    """Fill in the record."""
    limit = STEP_SECONDS + CALLS * state.call_ns.get(variant, 0.0) / 1e9
    try:
        with closing(measurement.processes.another(group, state, "memory.log")) as process:
            record |= process.ask("memory_held", limit, workload=state.experiment.workload.name, variant=variant)
    except WorkerFailed as failure:
        record["reason"] = failure.reason
        return
    if (served := len(record["served"])) < record["planned_lengths"]:
        record["reason"] = f"memory gets short: {served} of {record['planned_lengths']} different lengths served"


def memory_results(rows: Sequence[Mapping[str, Any]]) -> list[ExactResult]:
    """Every one of QUANTITIES, in percent, from the records of memory_sweep.json; `count` is the number of lengths.

    What a record does not hold, or holds for fewer lengths than planned, is a result with the record's reason.
    """
    return [_result(row, quantity) for row in rows for quantity in QUANTITIES]


def _result(row: Mapping[str, Any], quantity: str) -> ExactResult:
    series, whole, what = QUANTITIES[quantity]
    subject = ("memory", quantity, str(row["workload"]), str(row["variant"]), "")
    seconds = float(row["seconds"])
    sizes = series(row)
    if not sizes:
        return ExactResult(*subject, math.nan, 0, reason=str(row["reason"]), seconds=seconds)
    served = f"{len(row['served'])} lengths of up to {row['served'][-1]:,} tokens"
    detail = f"{sizes[-1]:,} bytes {what.format(served)}, {_WHOLE[whole]} {row[whole]:,}{_growth(sizes)}"
    if difference := disagreement(row["steps"][-1]):
        detail += f"; {difference}"
    return ExactResult(*subject, 100 * sizes[-1] / row[whole], row["planned_lengths"], detail=detail, seconds=seconds)


def _masks(row: Mapping[str, Any]) -> list[int]:
    """Bytes of masks after each number of lengths; nothing where not all of them were served."""
    steps = row.get("steps", ())[1:]
    is_whole = steps and len(steps[-1]["lengths"]) >= row["planned_lengths"]
    return [step["held"]["mask"] for step in steps] if is_whole else []


def _filled(part: int) -> Callable[[Mapping[str, Any]], list[int]]:
    """Bytes of keys and values after one sequence of this part of the longest."""
    return lambda row: [fill["kv"] for fill in row.get("fills", ()) if fill["part"] == part]


QUANTITIES: Mapping[str, tuple[Callable[[Mapping[str, Any]], list[int]], str, str]] = {
    "masks_of_weights": (_masks, "weights_bytes", "of masks after {}"),
    "kv_at_eighth": (_filled(8), "kv_bytes", "of keys and values after one sequence of an eighth of that"),
    "kv_at_full": (_filled(1), "kv_bytes", "of keys and values after one sequence"),
}
"""Quantity → bytes after each number of lengths (the last counts), what they are given in percent of, and in words.

`_of_weights`: of the checkpoint's bytes. `kv_at_`: of the keys and values of one sequence of the longest length, with
as many bytes a value as the weights have.
"""

_WHOLE = {"weights_bytes": "weights", "kv_bytes": "keys and values of the longest"}


def _growth(sizes: Sequence[int]) -> str:
    """By how much each doubling of the number of lengths multiplied them; empty where they are 0."""
    if len(sizes) < 2 or min(sizes) <= 0:
        return ""
    if len(set(sizes)) == 1:
        return "; the same from one length on"
    factors = ", ".join(f"{after / before:.2f}" for before, after in itertools.pairwise(sizes))
    return f"; each doubling of the lengths, from 1 on: times {factors}"


def disagreement(step: Mapping[str, Any]) -> str:
    """Where a step's measured bytes are not the computed ones, in words; "" where they agree."""
    if step["computed"] is None:
        return "nothing to compare with: the policies of this variant are not known"
    return "; ".join(
        f"{state}: {step[state][kind]:,} bytes of {kind}, computed {step['computed'][state][kind]:,}"
        for state in ("held", "kept")
        for kind in KINDS
        if step[state][kind] != step["computed"][state][kind]
    )


class MemoryHypothesis(VariantHypothesis):
    """`quantity` (one of QUANTITIES) of `variant` on each of `workloads`, in percent."""

    quantities = QUANTITIES

    metric: Literal["memory"]
    quantity: Quantity


class MemoryMetric(ExactMetric[MemoryHypothesis]):
    """Bytes of live tensors, counted in a fresh process."""

    names = ("memory",)
    about = "The bytes that a variant holds, counted tensor by tensor."
    page = "memory"
    hypothesis = MemoryHypothesis
    files_beside = (MEMORY_SWEEP,)
    title = "memory"
    does = "how many bytes each variant holds"

    def run(self, hypotheses: Sequence[MemoryHypothesis], context: PassContext) -> None:
        """Sweep each (workload, variant); write memory_sweep.json anew after each, and in the end the results.

        A record without `reason` has `served` (the lengths of the last step), `steps` (`lengths`, `held`, `kept` by
        kind, and the same `computed` where the policies are known), `fills`, `weights_bytes` and `kv_bytes`.
        """
        measurement, progress = context.measurement, context.progress
        places = measured_by(measurement)
        records: list[dict[str, Any]] = []
        pairs = subjects(hypotheses)
        for index, (workload, variant) in enumerate(pairs):
            group, state = places.get(workload, (None, None))
            call_seconds = 0.0 if state is None else state.call_ns.get(variant, 0.0) / 1e9
            left = (len(pairs) - index) * (START_SECONDS_EACH + 1.5 * MOST_LENGTHS * call_seconds)
            progress.step(f"memory {workload}: {variant}", index / len(pairs), left)
            reason = _unfit(measurement, state, variant)
            record: dict[str, Any] = {"workload": workload, "variant": variant, "reason": reason}
            begun = time.monotonic()
            if group is not None and state is not None and reason is None:
                _sweep(measurement, group, state, variant, record)
            record["seconds"] = round(time.monotonic() - begun, 3)
            if record["reason"]:
                progress.note(f"memory of {variant} on {workload}: {record['reason']}")
            records.append(record)
            context.folder.write_json(MEMORY_SWEEP, records)
        self.store(memory_results(records), context)


METRIC = MemoryMetric()
