"""Instructions beside times: of both sides of a comparison, and of a variant in two runs.

Does a call of a variant execute more instructions than in the other run?

Where blocks of memory lie is another thing in every process, and what allocators do depends on it. So what lies inside
them is left out (see `counting.ALLOCATORS`); who asks for memory more often still executes more around it. No other
program changes a count, and nor does the model of the processor, as long as torch chooses the same kernels. Whether
anything beside the variant did is seen by the reference benchmark, whose code never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_workbench.variants import FUNCTION_REFERENCE, REFERENCE_BENCHMARK

from ...baselines.regressions import Answer, Counted, CountedRun, Row, cannot_tell, is_subject, unlike_runs
from ...baselines.thresholds import Thresholds, What
from ...report.comparison import Measure
from ...store.folder import RunFolder
from ...store.verdict_schema import Effect
from .counting import ALLOCATORS, GROUPS
from .metric import INSTRUCTIONS, Instructions, difference, unlike

WHAT: What = "instructions"
FILE = INSTRUCTIONS

LEAST_PERCENT, LEAST_INSTRUCTIONS = 0.2, 10_000
"""Half width of every interval: so much of the call, or so many instructions where that is more. Counts of the same
code in three processes lay 0.0005 to 0.073 % apart. What is left depends on addresses, too: CPython keeps attributes
that it found in a table by the address of their names, and looks again where two fall on one place."""


@dataclass(frozen=True)
class Change:
    """By how many percent `new` is more than `base`, both in instructions a call."""

    base: float
    new: float
    percent: float
    half_width: float  # of the interval, in percent
    detail: str  # where they differ most, in words; empty where they do not


def change(base: Sequence[Instructions], new: Sequence[Instructions], workload: str, variant: str) -> Change:
    """What became of a variant's count. Raises ValueError with the reason where nothing can be said."""
    old, now = _record(base, workload, variant, "base"), _record(new, workload, variant, "new")
    changed = _change(old, now)
    reference_benchmark = FUNCTION_REFERENCE if now.inputs else REFERENCE_BENCHMARK
    try:
        beside = _change(
            _record(base, workload, reference_benchmark, "base"), _record(new, workload, reference_benchmark, "new")
        )
    except ValueError as error:
        if now.inputs:  # runs of functions may be older than their reference benchmark
            return changed
        raise ValueError(f"the reference benchmark: {error}; measure both runs with --count-instructions") from error
    if abs(beside.percent) > beside.half_width:
        what = f"the reference benchmark, whose code never changes, executes {beside.percent:+.2f} % instructions"
        raise ValueError(f"{what}: something other than the variant changed")
    return changed


def _record(records: Sequence[Instructions], workload: str, variant: str, which: str) -> Instructions:
    record = next((each for each in records if (each.workload, each.variant) == (workload, variant)), None)
    if record is None or record.instructions is None:
        reason = record.reason if record is not None else ""
        raise ValueError(f"no count in the {which} run{f' ({reason})' if reason else ''}")
    if ALLOCATORS not in record.by:
        raise ValueError(f"the {which} run did not count apart what allocators execute: measure it again")
    return record


def _change(base: Instructions, new: Instructions) -> Change:
    if apart := unlike(new, base, sides=("the new run", "the base run")):
        raise ValueError(f"counts that cannot be compared: {apart}")
    before, after = _work(base), _work(new)
    if base.inputs != new.inputs:
        raise ValueError(f"{base.inputs} inputs in the base run, {new.inputs} in the new one: measure it again")
    both = ((each.instructions, each.again) for each in (base, new))
    repeats = (100 * abs(again / once - 1) for once, again in both if once and again)
    counted = before * (min(base.calls, new.calls) if base.inputs else 1)
    half_width = max(LEAST_PERCENT, 100 * LEAST_INSTRUCTIONS / counted, *repeats)
    moved = {name: new.by.get(name, 0.0) - base.by.get(name, 0.0) for name in GROUPS if name != ALLOCATORS}
    most = max(moved, key=lambda name: abs(moved[name]))
    percent = 100 * (after / before - 1)
    detail = f"most of it in {most} ({moved[most]:+,.0f})" if abs(percent) > half_width else ""
    return Change(before, after, percent, half_width, detail)


def _work(record: Instructions) -> float:
    """Instructions outside of allocators."""
    work = (record.instructions or 0.0) - record.by[ALLOCATORS]
    if work <= 0:
        raise ValueError("callgrind counted nothing")
    return work


def measures(folder: RunFolder, effect: Effect) -> list[Measure]:
    """How many a call executes, where both sides were counted."""
    try:
        counted = difference(folder.read(INSTRUCTIONS), effect.workload, effect.variant, effect.baseline)
    except ValueError:  # not counted
        return []
    ratio = counted.variant / counted.baseline
    ends = sorted(100 / (100 + end) for end in (counted.low, counted.high))
    return [Measure(WHAT, f"{counted.baseline:,.0f}", f"{counted.variant:,.0f}", ratio, ends[0], ends[1])]


def rows(old: CountedRun, now: CountedRun, thresholds: Thresholds) -> Iterator[Row]:
    """Of each variant that was counted in the base run, where the new run counted anything at all. Raises RunError."""
    before, after = (INSTRUCTIONS.form.validate_python(run.folder.records(INSTRUCTIONS)) for run in (old, now))
    for record in before if after else ():
        key = record.workload, record.variant
        if record.instructions is None or not is_subject(key) or not now.has(key):
            continue
        reason = unlike_runs(key, old.standings, now.standings)
        if not reason and old.inputs.get(key[0]) != now.inputs.get(key[0]):
            reason = "the input generator changed"
        try:
            changed = None if reason else change(before, after, *key)
        except ValueError as error:
            reason = str(error)
        if reason or changed is None:
            yield cannot_tell(key, WHAT, thresholds, reason)
            continue
        limit, width = thresholds.instructions, changed.half_width
        low, high = changed.percent - width, changed.percent + width
        verdict: Answer = "inconclusive"
        reason = f"up to {high:.2f} % more are not excluded: counts of such short calls are known to ±{width:.2f} %"
        if low > limit:
            verdict, reason = "regression", changed.detail
        elif high < -limit:
            verdict, reason = "improvement", changed.detail
        elif high < limit:
            verdict, reason = "no regression", changed.detail
        base, new = (Counted(value, WHAT) for value in (changed.base, changed.new))
        yield Row(*key, "", base, new, changed.percent, low, high, verdict, reason, WHAT, limit)
