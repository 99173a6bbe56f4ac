"""How much less work a variant does than another: the instructions that a call executes, counted by callgrind.

A count is work and no time: an instruction that waits for memory counts as much as one that does not. But no other
program changes it, so that differences show that times of a busy machine hide. No verdict about a time uses it.

    (workload, variant) --counting--> instructions.json --judge--> 100 * (baseline / variant - 1) percent
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from llama_workbench.variants import REFERENCE_BENCHMARKS

from ...calls.called import Call
from ...evidence.evidence import Evidence
from ...measure.measurement import Measurement
from ...measure.participants import ExperimentState
from ...measure.passes import measured_by
from ...metrics.base import PassContext, ValueMetric, in_range, no_value, not_measured, subjects
from ...spec.comparison import EnteredName
from ...spec.hypotheses import Name, Names, RangeHypothesis
from ...spec.words import Cause, Word
from ...store.folder import RunFolder
from ...store.forms import Amount, Count, JsonFile, OfVariant, Text, once, says
from ...store.verdict_schema import Effect
from .counting import (
    ABOUT_COUNT_SECONDS,
    COUNT_SECONDS,
    GROUPS,
    SLOWER,
    Pair,
    Wanted,
    calls_of_functions,
    cannot_count,
    count,
    lacks,
    no_count,
)


class Instructions(OfVariant):
    """How many instructions a call of a variant executes, counted by callgrind: work, and no time."""

    instructions: Annotated[Amount | None, says("instructions of a call; null: no count")] = None
    calls: Annotated[Count, says("number of calls that were counted")] = 0
    inputs: Annotated[Count, says("different inputs that a function was called with; 0 of a model")] = 0
    again: Annotated[Amount | None, says("the same, counted a second time; null: counted once")] = None
    by: Annotated[dict[str, Amount], says("whose code they lie in → instructions of a call")] = {}
    reason: Annotated[Text | None, says("why there is no count")] = None
    capability: Annotated[
        Text | None, says("instruction set that torch's kernels chose under valgrind; null: no torch")
    ] = None
    versions: Annotated[
        dict[str, Text], says("version of torch, Python, valgrind and (of functions) numpy by name")
    ] = {}


INSTRUCTIONS = JsonFile("instructions.json", Annotated[list[Instructions], once("workload", "variant")])


LEAST_PERCENT = 0.02
"""Half width of every interval, in percentage points, where all else is less."""

LAYOUT_INSTRUCTIONS = 100_000
"""By so many instructions a call the difference between two variants may be another in another process, where blocks of
memory lie otherwise and malloc takes other paths. Children of one process do not show it: they lie alike. Seen in eight
comparisons of the same two variants: -30,000 to 26,000, with a standard deviation of 20,000."""


MOST_CALL_SECONDS = 0.1
"""A call that takes longer, as the gate timed it, is not counted: a count would take many minutes."""


@dataclass(frozen=True)
class Difference:
    """How much more work `baseline` does than `variant`, on one workload."""

    percent: float  # of the variant's work, within `half_width`
    half_width: float
    variant: float
    baseline: float
    calls: int
    # of the difference, baseline minus variant, in instructions a call by whose code they lie in
    where: Mapping[str, float]

    @property
    def low(self) -> float:
        """Lower end of its interval."""
        return self.percent - self.half_width

    @property
    def high(self) -> float:
        """Upper end."""
        return self.percent + self.half_width

    def describe(self) -> str:
        """Both counts and where they differ most."""
        text = f"{self.variant:,.0f} instructions a call, {self.baseline:,.0f} of the baseline"
        most = max(self.where, key=lambda group: abs(self.where[group]), default=None)
        if most is None or not self.where[most]:
            return text
        return f"{text}; most of the difference lies in {most} ({self.where[most]:+,.0f} of the baseline)"


def difference(records: Iterable[Instructions], workload: str, variant: str, baseline: str) -> Difference:
    """What the counts of two variants say. Raises ValueError with the reason where they say nothing."""
    here = {record.variant: record for record in records if record.workload == workload}
    for name in (variant, baseline):
        if name not in here:
            raise ValueError(f"this run has not counted {name}")
        if here[name].instructions is None or not here[name].calls:
            raise ValueError(f"{name}: {here[name].reason or 'no count'}")
    own, other = here[variant], here[baseline]
    if apart := unlike(own, other):
        raise ValueError(f"counts that cannot be compared: {apart}")
    mine, theirs = float(own.instructions or 0), float(other.instructions or 0)
    if not mine or not theirs:
        raise ValueError("callgrind counted nothing")
    apart_percent = [
        100 * abs(record.again / record.instructions - 1)
        for record in here.values()
        if record.again and record.instructions and not unlike(record, own)
    ]
    if not apart_percent:
        raise ValueError("no variant was counted twice, so nobody knows how well counts repeat")
    where = {group: other.by.get(group, 0.0) - own.by.get(group, 0.0) for group in GROUPS}
    counted = mine * (min(own.calls, other.calls) if own.inputs else 1)
    half_width = max(LEAST_PERCENT, 100 * LAYOUT_INSTRUCTIONS / counted, *apart_percent)
    return Difference(100 * (theirs / mine - 1), half_width, mine, theirs, own.calls, where)


def unlike(first: Instructions, second: Instructions, *, sides: tuple[str, str] | None = None) -> str:
    """What two counts do not have in common, and which must be the same; empty where there is nothing.

    `sides`: what the two are called; by default by their variants.
    """
    here, there = sides or (first.variant, second.variant)
    parts = []
    if first.capability != second.capability:
        parts.append(f"torch computes with {first.capability} for {here}, {second.capability} for {there}")
    for name in sorted({*first.versions, *second.versions}):
        mine, theirs = first.versions.get(name), second.versions.get(name)
        if mine != theirs:
            parts.append(f"{name} {mine} for {here}, {theirs} for {there}")
    return "; ".join(parts)


class InstructionsHypothesis(RangeHypothesis):
    """How many percent more instructions a call of `baseline` executes than one of `variant`, on each workload."""

    cpu_only = "instructions are counted of the CPU, and what a CUDA device executes is not seen"

    metric: Literal["instructions"]
    variant: Name
    baseline: Name
    workloads: Names

    def describe(self) -> str:
        """As a range of work: "above 1 % more work in the baseline"."""
        low, high = self.region.low, self.region.high
        if low == -high and math.isfinite(high):
            return f"the same work within ±{high:.4g} %"
        return f"{super().describe()} more work in the baseline"

    def subjects(self) -> tuple[tuple[str, str], ...]:
        return tuple((workload, name) for workload in self.workloads for name in (self.variant, self.baseline))


class InstructionsMetric(ValueMetric[InstructionsHypothesis]):
    """Counted in forks of one process under callgrind; the same calls give the same count."""

    names = ("instructions",)
    about = "The instructions that a call executes, counted by callgrind. They are work and no time."
    inside = "nothing"
    looks_once = True
    has_confidence = False
    option = "count_instructions"
    seconds_each = ABOUT_COUNT_SECONDS
    hypothesis = InstructionsHypothesis
    files = (INSTRUCTIONS,)
    title = "instructions"
    does = "how much work a call is, counted and not timed"

    def run(self, hypotheses: Sequence[InstructionsHypothesis], context: PassContext) -> None:
        """Count every variant that the hypotheses ask about, or all. The file is written after each checkpoint."""
        run_instructions(context, [*subjects(hypotheses), *(everything(context) if context.everything else ())])

    def read(self, folder: RunFolder) -> list[Instructions] | None:
        return folder.read(INSTRUCTIONS) or None

    def effect(self, hypothesis: InstructionsHypothesis, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The difference with its verdict; not evidence where the numbers of a side do not count on the workload."""
        effect = no_value(hypothesis, workload, "instructions of a call")
        for name in (hypothesis.variant, hypothesis.baseline):
            if reason := evidence.unusable.get((workload, name)):
                return replace(effect, verdict=Word.NOT_EVIDENCE, cause=Cause.EXCLUDED, reason=f"{name}: {reason}")
        try:
            records = evidence.passes.get("instructions")
            if not records:
                raise ValueError("this run has not counted instructions")
            apart = difference(records, workload, hypothesis.variant, hypothesis.baseline)
        except ValueError as error:
            return replace(effect, cause=Cause.NOT_MEASURED, reason=str(error))
        effect = replace(effect, ratio=apart.percent, low=apart.low, high=apart.high, rounds=apart.calls)
        return in_range(effect, hypothesis, apart.describe())


METRIC = InstructionsMetric()


def everything(context: PassContext) -> list[Pair]:
    """All that is measured and can be counted, without controls; the reference benchmark first, which is then
    counted twice."""
    added = context.measurement.setting.added
    return [
        (state.experiment.workload.name, name)
        for state in context.measurement.participants.states
        for name in sorted(state.experiment.entered(), key=lambda name: name not in REFERENCE_BENCHMARKS)
        if not EnteredName(name).is_control and not cannot_count(state.experiment.workload, name, added)
    ]


def run_instructions(context: PassContext, wanted: Sequence[Pair]) -> None:
    """Count each wanted (workload, variant); what has no count has its reason in instructions.json and on the screen.

    A checkpoint has a callgrind process of its own.
    """
    measurement, places = context.measurement, measured_by(context.measurement)
    records: list[dict[str, Any]] = []
    by_folder: dict[Path | None, list[Pair]] = {}
    for pair in dict.fromkeys(wanted):
        state = places[pair[0]][1] if pair[0] in places else None
        if reason := _unfit(measurement, state, pair[1]) or lacks():
            records.append(no_count(pair, reason))
        elif state is not None:
            by_folder.setdefault(state.folder, []).append(pair)
    for folder, pairs in by_folder.items():
        states = {name: places[name][1] for name, _ in pairs}
        called = {name: _called(measurement, state) for name, state in states.items() if state.folder is None}
        records += count(
            Wanted(
                folder,
                tuple(state.experiment.workload for state in states.values()),
                tuple(pairs),
                measurement.setting.added,
                context.seed,
                measurement.setting.functions,
                called,
                torch=folder is not None or any(places[name][0].torch for name, _ in pairs),
                limits={
                    (name, variant): COUNT_SECONDS + SLOWER * states[name].call_ns.get(variant, 0.0) / 1e9
                    for name, variant in pairs
                },
            ),
            cache=context.cache,
            log=context.log("instructions"),
            step=context.progress.step,
        )
        context.folder.write_json(INSTRUCTIONS, records)
    for reason in dict.fromkeys(record["reason"] for record in records if record["reason"]):
        names = [f"{record['variant']} on {record['workload']}" for record in records if record["reason"] == reason]
        context.progress.note(f"instructions of {', '.join(names)}: {reason}")
    context.folder.write_json(INSTRUCTIONS, records)


def _called(measurement: Measurement, state: ExperimentState) -> tuple[Call, int]:
    """What the functions of a workload are called with, and how often for a count."""
    name = state.experiment.workload.name
    return measurement.setting.calls[name], calls_of_functions(state.call_ns.values())


def _unfit(measurement: Measurement, state: ExperimentState | None, variant: str) -> str | None:
    """Why a variant is not counted on a workload; None where it can be tried."""
    if (reason := not_measured(measurement, state, variant)) or state is None:
        return reason
    if (seconds := state.call_ns.get(variant, 0.0) / 1e9) > MOST_CALL_SECONDS:
        most = f"calls of up to {MOST_CALL_SECONDS:g} s are counted"
        return f"a call takes {seconds:.2g} s, and callgrind makes it some 1,000 times slower: {most}"
    return cannot_count(state.experiment.workload, variant, measurement.setting.added)
