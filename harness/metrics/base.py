"""What a metric is to the rest of the harness: a hypothesis model, a pass, and a verdict.

A metric lives in one module of this folder or of a slice, whose METRIC is found by `registry`. Claims are written
with its hypothesis model, a plan takes from the hypotheses what they need, a run makes the pass, and `judge` gives the
verdict from what the pass left in the run folder. Nothing else in the harness knows it by name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from ..evidence.effect import TOO_FEW, combine, reasons
from ..evidence.evidence import Evidence
from ..measure.measurement import Measurement
from ..measure.participants import ExperimentState, Progress
from ..spec.comparison import Comparison
from ..spec.hypotheses import Hypothesis, Name, Names, RangeHypothesis, ValueHypothesis
from ..spec.words import Cause, Word
from ..store.folder import RunFolder
from ..store.forms import DataFile, ExactResult, JsonFile, Subject, once
from ..store.verdict_schema import Effect

H = TypeVar("H", bound=Hypothesis)

FINDINGS = JsonFile(
    "findings.json", Annotated[list[ExactResult], once("metric", "quantity", "workload", "variant", "baseline")]
)


@dataclass(frozen=True)
class PassContext:
    """What a pass works with. `cache` keeps checkpoints; logs lie below `folder`. everything: whether the pass is asked
    for on all that is measured (see `Metric.option`)."""

    measurement: Measurement
    folder: RunFolder
    progress: Progress
    cache: Path
    seed: int  # the same in every run: what is counted must not depend on it
    everything: bool = False

    def log(self, name: str) -> Path:
        """Where the pass's processes write what they print."""
        return self.folder.path / "log" / f"{name}.log"


@dataclass(frozen=True)
class Judged:
    """The verdict on one hypothesis with its reason, and the effects behind it.

    answers: how many statements a "depends" is made of; 0 where each effect is one.
    """

    verdict: Word
    reason: str
    effects: tuple[Effect, ...] = ()
    answers: int = 0
    cause: Cause = Cause.NONE

    @classmethod
    def of_all(cls, effects: Sequence[Effect], counted: Sequence[Effect] | None = None, more: str = "") -> Judged:
        """What the counted effects (or all) come to; `more` is said after the reason."""
        verdict, reason = combine(effects if counted is None else counted)
        cause = Cause.NOT_SETTLED if verdict == Word.INCONCLUSIVE else Cause.NONE
        return cls(verdict, reason + more, tuple(effects), cause=cause)


class Metric(ABC, Generic[H]):
    """One metric.

    `names`: the words for `metric = ...` in a claim. `files`: what its pass writes and verdicts are computed from.
    `files_beside`: what it writes besides, for pages. `title`, `does`: its pass in a word, and what that does; empty
    where rounds of timing are all it needs. `needs_cache`: whether its pass writes into the cache. `about`: what a
    claim of this metric is about, in a sentence. `page`: the part of Explore with it. `inside`: what of it was
    timed and can be looked into. `is_exact`: its values are counted or tried. `looks_once`: the number of rounds was
    fixed beforehand. `intervals_at_once`: how many intervals one answer needs; they share alpha. `has_confidence`:
    whether its intervals hold with a known probability; else they are bounds from experience. `option`: of a run, which
    asks for the pass on everything that is measured; empty where none does. `seconds_each`: what that then takes for
    each variant on each workload, about.
    """

    names: ClassVar[tuple[str, ...]]
    hypothesis: ClassVar[type[Hypothesis]]
    files: ClassVar[tuple[DataFile, ...]] = ()
    files_beside: ClassVar[tuple[DataFile, ...]] = ()
    title: ClassVar[str] = ""
    does: ClassVar[str] = ""
    needs_cache: ClassVar[bool] = False
    about: ClassVar[str] = ""
    page: ClassVar[str] = ""
    inside: ClassVar[Literal["effects", "workloads", "nothing"]] = "effects"
    is_exact: ClassVar[bool] = False
    looks_once: ClassVar[bool] = False
    intervals_at_once: ClassVar[int] = 1
    has_confidence: ClassVar[bool] = True
    option: ClassVar[str] = ""
    seconds_each: ClassVar[float] = 0.0

    @abstractmethod
    def judge(self, hypothesis: H, evidence: Evidence, *, alpha: float) -> Judged:
        """The verdict, each interval at `alpha`; what `read` gave is under the first name in `evidence.passes`."""

    def run(self, hypotheses: Sequence[H], context: PassContext) -> None:
        """Make the pass for all hypotheses at once, and write what it gives into the run folder.

        Raises WorkerFailed or MeasureError where it cannot go on; the hypotheses stay open then.
        """

    def read(self, folder: RunFolder) -> Any:
        """What the pass left in a run folder, for `judge`; None where there is nothing. Raises RunError."""
        return None


def subjects(hypotheses: Sequence[Hypothesis]) -> list[tuple[str, str]]:
    """Every (workload, variant) that these look at, each once."""
    return list(dict.fromkeys(pair for hypothesis in hypotheses for pair in hypothesis.subjects()))


def not_measured(measurement: Measurement, state: ExperimentState | None, variant: str) -> str | None:
    """Why a variant has no times on a workload, whose state is `state`; None where it has."""
    if state is None:
        return "the workload is not in this run"
    if reason := measurement.participants.excluded.get(variant) or state.excluded.get(variant):
        return reason
    return None if variant in state.remaining().entered() else "it is not measured on this workload"


V = TypeVar("V", bound=ValueHypothesis)


class VariantHypothesis(RangeHypothesis):
    """A value of `variant` on each of `workloads`."""

    variant: Name
    workloads: Names

    def subjects(self) -> tuple[tuple[str, str], ...]:
        return tuple((workload, self.variant) for workload in self.workloads)


class ValueMetric(Metric[V], Generic[V]):
    """A metric that gives one value on each workload, or one in all where the hypothesis names no workload."""

    @abstractmethod
    def effect(self, hypothesis: V, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value with its verdict; "not measurable here", with the reason, where there is none."""

    def asked(self, hypothesis: V) -> tuple[str, ...]:
        """The workloads that have a value each."""
        return hypothesis.workload_names() or ("",)

    def judge(self, hypothesis: V, evidence: Evidence, *, alpha: float) -> Judged:
        """The verdict on all workloads together; those without a value are left out and named."""
        effects = [self.effect(hypothesis, workload, evidence, alpha) for workload in self.asked(hypothesis)]
        counted = [effect for effect in effects if effect.verdict != Word.NOT_MEASURABLE]
        if not counted:
            return Judged(Word.NOT_MEASURABLE, reasons(effects), tuple(effects))
        missing = [effect for effect in effects if effect not in counted]
        return Judged.of_all(effects, counted, f"; not measured: {reasons(missing)}" if missing else "")


class IntervalMetric(ValueMetric[V], Generic[V]):
    """A metric whose values come with an interval over rounds."""

    looks_once = True

    @abstractmethod
    def words(self, hypothesis: V) -> str:
        """What the value is, for the `metric` of an effect."""

    @abstractmethod
    def measured(self, effect: Effect, hypothesis: V, evidence: Evidence, alpha: float) -> Effect:
        """The effect with its value, interval, rounds and seconds. Raises ValueError with the reason for no value."""

    def effect(self, hypothesis: V, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value with its verdict; not evidence where the variant's numbers do not count on the workload."""
        effect = no_value(hypothesis, workload, self.words(hypothesis))
        if reason := evidence.unusable.get((workload, effect.variant)):
            return replace(
                effect, verdict=Word.NOT_EVIDENCE, cause=Cause.EXCLUDED, reason=f"{effect.variant}: {reason}"
            )
        try:
            effect = self.measured(effect, hypothesis, evidence, alpha)
        except ValueError as error:
            return replace(effect, cause=Cause.NOT_MEASURED, reason=str(error))
        return effect if effect.cause.is_doubtful else in_range(effect, hypothesis)


def no_value(hypothesis: ValueHypothesis, workload: str, metric: str) -> Effect:
    """The effect of a hypothesis without its value yet; `metric` says of what the value will be."""
    return Effect(
        workload=workload,
        variant=getattr(hypothesis, "variant", ""),
        baseline=getattr(hypothesis, "baseline", None) or "",
        metric=metric,
        unit=hypothesis.unit,
        rounds=0,
        seconds=0.0,
        verdict=Word.NOT_MEASURABLE,
    )


def in_range(effect: Effect, hypothesis: ValueHypothesis, *notes: str) -> Effect:
    """The effect with the verdict that its interval gives, and these notes besides its own."""
    region, effect = hypothesis.region, replace(effect, notes=effect.notes + notes)
    if math.isinf(effect.low) and math.isinf(effect.high):
        reason = effect.reason or TOO_FEW
        return replace(effect, verdict=Word.INCONCLUSIVE, cause=Cause.TOO_FEW_ROUNDS, reason=reason)
    if region.contains(effect.low, effect.high):
        return replace(effect, verdict=Word.SUPPORTED)
    if region.excludes(effect.low, effect.high):
        return replace(effect, verdict=Word.REFUTED)
    crossed = ", ".join(f"{end:.4g}" for end in region.boundaries if effect.low < end < effect.high)
    reason = f"the interval lies on both sides of {crossed} {region.unit}".rstrip()
    return replace(effect, verdict=Word.INCONCLUSIVE, cause=Cause.ACROSS_LIMIT, reason=reason, notes=effect.said)


class ExactMetric(ValueMetric[V], Generic[V]):
    """A metric whose values are exact. Its pass stores them with `store`."""

    is_exact = True
    files = (FINDINGS,)

    def store(self, results: Sequence[ExactResult], context: PassContext) -> None:
        """Add results to findings.json, which all exact metrics share."""
        context.folder.write_json(FINDINGS, [*context.folder.records(FINDINGS), *results])

    def read(self, folder: RunFolder) -> dict[Subject, ExactResult]:
        """The stored results of this metric, by subject."""
        results = folder.read(FINDINGS)
        return {result.subject: result for result in results if result.metric == self.names[0]}

    def effect(self, hypothesis: V, workload: str, evidence: Evidence, alpha: float) -> Effect:
        """The value; its interval is a point."""
        metric, quantity = self.names[0], getattr(hypothesis, "quantity", "")
        effect = no_value(hypothesis, workload, quantity or metric)
        subject = (metric, quantity, workload, effect.variant, effect.baseline)
        result: ExactResult | None = evidence.passes.get(metric, {}).get(subject)
        if result is None:
            return replace(effect, cause=Cause.NOT_MEASURED, reason="this run has not looked")
        if math.isnan(result.value):
            return replace(effect, cause=Cause.NOT_MEASURED, reason=result.reason or "no value")
        value = result.value
        effect = replace(effect, ratio=value, low=value, high=value, rounds=result.count, seconds=result.seconds)
        return in_range(effect, hypothesis, *([result.detail] if result.detail else []))


class GainHypothesis(RangeHypothesis):
    """A value computed from the gains of `variant` over `baseline`."""

    variant: Name
    baseline: Name
    workloads: Names

    def comparisons(self) -> Iterator[Comparison]:
        return (Comparison(workload, self.variant, self.baseline) for workload in self.workloads)
