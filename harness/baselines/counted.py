"""Two runs by what was counted in both: instructions and memory. See `compare` for their times.

What is counted does not vary as times do, so there are no rounds behind it. Instructions have an interval, for what a
process's memory may do to them; bytes have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llama_workbench.variants import YARDSTICKS

from ..machine.environment import device_kind
from ..metrics.instructions.across import change
from ..metrics.instructions.metric import INSTRUCTIONS, Instructions
from ..profilers.peak_memory import MEMORY, Memory
from ..report.text import one_text_line
from ..spec.entered import EnteredName
from ..store.errors import RunError
from ..store.folder import RunFolder
from ..store.schema import Key, Standings, Workload, WorkloadResult
from .rows import Answer, Counted, Row
from .thresholds import Thresholds, What

LEAST_BYTES = 16_384
"""Peaks of the same code differ by Python's own objects; less than this is no change."""


@dataclass(frozen=True)
class CountedRun:
    """One of the two runs, and what its passes counted."""

    folder: RunFolder
    standings: Standings

    @cached_property
    def instructions(self) -> list[Instructions]:
        """Its counts of instructions. Raises RunError."""
        return INSTRUCTIONS.form.validate_python(self.folder.records(INSTRUCTIONS))

    @cached_property
    def memory(self) -> dict[Key, Memory]:
        """Its memory, where it was measured. Raises RunError."""
        records: list[Memory] = MEMORY.form.validate_python(self.folder.records(MEMORY))
        return {(each.workload, each.variant): each for each in records}

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Workload → SHA-256 of the code that makes what functions are called with."""
        sources = self.folder.manifest().sources
        return {} if sources is None else {name: each.payload.digest for name, each in sources.calls.items()}

    def has(self, key: Key) -> bool:
        """Whether the run took the variant on, with or without a number in the end. What others are compared with was
        counted, too."""
        course = self.standings.workloads.get(key[0])
        is_reference = course is not None and course.reference == key[1]
        return is_reference or key in self.standings.subjects or key in self.standings.reasons


def counted_rows(old: CountedRun, now: CountedRun, thresholds: Thresholds, *, same_machine: bool) -> list[Row]:
    """The rows of everything that is no time. Raises RunError where something cannot be read that decides; what is
    only shown is left out then."""
    rows: list[Row] = []
    every: Mapping[What, Callable[[], Iterator[Row]]] = {
        "instructions": lambda: _instruction_rows(old, now, thresholds),
        "memory": lambda: _memory_rows(old, now, thresholds, same_machine=same_machine),
    }
    for what, rows_of in every.items():
        try:
            rows += rows_of()
        except RunError:
            if what in thresholds.gate:
                raise
    return rows


def _instruction_rows(old: CountedRun, now: CountedRun, thresholds: Thresholds) -> Iterator[Row]:
    """Of each variant that was counted in the base run, where the new run counted anything at all."""
    if not now.instructions:
        return
    for record in old.instructions:
        key = record.workload, record.variant
        if record.instructions is None or not _is_subject(key) or not now.has(key):
            continue
        reason = unlike(key, old.standings, now.standings)
        if not reason and old.inputs.get(key[0]) != now.inputs.get(key[0]):
            reason = "the input generator changed"
        try:
            changed = None if reason else change(old.instructions, now.instructions, *key)
        except ValueError as error:
            reason = str(error)
        if reason or changed is None:
            yield _cannot_tell(key, "instructions", thresholds, reason)
            continue
        limit, width = thresholds.of("instructions", *key), changed.half_width
        low, high = changed.percent - width, changed.percent + width
        verdict: Answer = "inconclusive"
        reason = f"up to {high:.2f} % more are not excluded: counts of such short calls are known to ±{width:.2f} %"
        if low > limit:
            verdict, reason = "regression", changed.detail
        elif high < -limit:
            verdict, reason = "improvement", changed.detail
        elif high < limit:
            verdict, reason = "no regression", changed.detail
        base, new = (Counted(value, "instructions") for value in (changed.base, changed.new))
        yield Row(*key, "", base, new, changed.percent, low, high, verdict, reason, "instructions", limit)


def _memory_rows(old: CountedRun, now: CountedRun, thresholds: Thresholds, *, same_machine: bool) -> Iterator[Row]:
    """Of each variant whose memory both runs measured: weights, caches and the most that a call adds to them."""
    for key, before in old.memory.items():
        if not now.memory or not _is_subject(key) or not now.has(key):
            continue
        after = now.memory.get(key)
        if (base := _peak(before, after)) is None:
            continue
        new = None if after is None else _peak(after, before)
        reason = unlike(key, old.standings, now.standings)
        if reason or after is None or new is None:
            missing = (after and after.reason) or "not measured"
            reason = reason or f"{now.standings.name} has no memory of it: {one_text_line(missing, 160)}"
            yield _cannot_tell(key, "memory", thresholds, reason)
            continue
        limit = thresholds.of("memory", *key)
        least = max(base * limit / 100, LEAST_BYTES)
        percent, detail = 100 * (new / base - 1) if base else None, _grown(before, after)
        verdict: Answer = "no regression"
        if new - base > least:
            verdict = "regression" if same_machine else "inconclusive"
            detail = detail if same_machine else f"more memory, but on a different machine: {detail}"
        elif base - new > least:
            verdict = "improvement"
        base_bytes, new_bytes = Counted(base, "bytes"), Counted(new, "bytes")
        yield Row(*key, "", base_bytes, new_bytes, percent, percent, percent, verdict, detail, "memory", limit)


def unlike(key: Key, old: Standings, now: Standings) -> str:
    """Why nothing of a variant in two runs can be compared, whatever the machine; empty where it can be."""
    ours, theirs = device_kind(now.environment), device_kind(old.environment)
    if ours != theirs:
        return f"{old.name} measured on {theirs}, {now.name} on {ours}"
    if key in now.reasons:
        return f"{now.name} has no number for it: {one_text_line(now.reasons[key], 160)}"
    if key[0] not in old.workloads or key[0] not in now.workloads:
        return "one of the runs lacks the workload"
    before, today = old.workloads[key[0]], now.workloads[key[0]]
    # Descriptions are for people, and do not change what is measured.
    changed = sorted(
        name
        for name in before.workload.keys() | today.workload.keys()
        if name != "description" and _of_workload(before, name) != _of_workload(today, name)
    )
    if changed:
        return f"the workload changed ({', '.join(changed)})"
    return "the checkpoints differ" if before.checkpoint != today.checkpoint else ""


def _of_workload(result: WorkloadResult, name: str) -> Any:
    """What a workload says there; an older run does not say what it could not have been otherwise."""
    known = Workload.model_fields.get(name)
    return result.workload.get(name, None if known is None or known.is_required() else known.default)


def _is_subject(key: Key) -> bool:
    """Neither a control nor what others are compared with."""
    return not EnteredName(key[1]).is_control and key[1] not in YARDSTICKS


def _cannot_tell(key: Key, what: What, thresholds: Thresholds, reason: str) -> Row:
    reason = one_text_line(reason, 300)
    limit = thresholds.of(what, *key)
    return Row(*key, "", None, None, None, None, None, "inconclusive", reason, what, limit)


_PARTS = {
    "parameter_bytes": "weights",
    "cache_bytes": "caches",
    "peak_transient_bytes": "temporary tensors",
    "kept_bytes": "what is kept",
}


def _peak(memory: Memory, other: Memory | None) -> float | None:
    """All parts together. What is kept counts where the other run knows it too: older ones do not."""
    sizes = [getattr(memory, name) for name in _parts(memory, other)]
    return None if None in sizes else float(sum(sizes))


def _parts(*both: Memory | None) -> dict[str, str]:
    has_kept = all(memory is not None and memory.kept_bytes is not None for memory in both)
    return {name: part for name, part in _PARTS.items() if name != "kept_bytes" or has_kept}


def _grown(before: Memory, after: Memory) -> str:
    """The parts that changed by more than what Python's own objects do, in words."""
    moved = {part: getattr(after, name) - getattr(before, name) for name, part in _parts(before, after).items()}
    return ", ".join(f"{part} {change:+,.0f} bytes" for part, change in moved.items() if abs(change) > LEAST_BYTES)
