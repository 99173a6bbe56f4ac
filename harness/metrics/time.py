"""Times of two variants, compared in the same rounds: of a whole call, or of one part of a generation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from llama_workbench.datasets import workloads as workload_data
from llama_workbench.datasets.geometries import DataError

from ..evidence.evidence import Evidence, compare_sides
from ..spec.comparison import TIMES, Comparison
from ..spec.comparison import Metric as Time
from ..spec.experiments import Target
from ..spec.hypotheses import NAME, Hypothesis, Margin, Name, Names, exactly_one, rising
from ..spec.regions import Region
from ..spec.words import SETTLED, Word
from ..store.verdict_schema import Effect
from .base import Judged, Metric

EXPECTATIONS = (
    "faster_than_percent",
    "slower_than_percent",
    "not_faster_than_percent",
    "ratio",
    "gain_percent",
    "same_within_percent",
)
"""The keys that say what is claimed of t_baseline / t_variant. A hypothesis has exactly one of them."""

WITHOUT_MARGIN = ("ratio", "gain_percent")
"""Those that name both limits themselves."""

_Percent = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, description="a number of percent, 0 or more")]
_AboveZero = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]
_Gain = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=-100)]


class TimeHypothesis(Hypothesis):
    """Which variant is compared with which baselines, on which workloads, and by how much they must differ.

    `evidence`: with "architecture" the op traces must be identical; with "operations" they may differ, that is the
    subject; "context" compares across engines or libraries. `margin`: the difference that matters, where somebody says
    so. Then that is the limit, so that an interval inside the margin is an answer; what the claim's own percent gives
    is a note of each effect.
    """

    evidence: Annotated[
        Literal["architecture", "operations", "context"], Field(description='"architecture", "operations" or "context"')
    ]
    variant: Name
    baseline: Annotated[
        Names,
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        Field(description=f"{NAME}, or a list of such names without repeats"),
    ]
    workloads: Names
    metric: Time
    faster_than_percent: _Percent | None = None
    slower_than_percent: _Percent | None = None
    not_faster_than_percent: _Percent | None = None
    ratio: Annotated[
        tuple[_AboveZero, _AboveZero] | None,
        Field(description="[low, high] with 0 < low < high, of t_baseline / t_variant"),
        AfterValidator(lambda ends: ends and rising(ends)),
    ] = None
    gain_percent: Annotated[
        tuple[_Gain, _Gain] | None,
        Field(description="[low, high] percent with -100 < low < high"),
        AfterValidator(lambda ends: ends and rising(ends)),
    ] = None
    same_within_percent: Annotated[_AboveZero | None, Field(description="a number of percent above 0")] = None

    margin: Annotated[
        Margin | None,
        Field(description='the difference that matters, { percent = 5, document = "...", section = "..." }'),
    ] = None

    @model_validator(mode="after")
    def _can_be_decided(self) -> Self:
        key = exactly_one(self, *EXPECTATIONS)
        if self.margin is not None and key in WITHOUT_MARGIN:
            raise ValueError(f"margin: {key} has its limits already")
        if self.margin is not None and self.margin.percent < getattr(self, key):
            raise ValueError(f"margin.percent = {self.margin.percent:g}, expected at least {key}")
        if self.variant in self.baseline:
            raise ValueError(f'variant and baseline are both "{self.variant}": there is nothing to compare')
        try:
            _ = self.region
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{key} is too narrow or too large to compute with") from error
        return self

    @property
    def region(self) -> Region:
        return self.own_region if self.margin is None else self._region(self.margin.percent)

    @property
    def own_region(self) -> Region:
        """What it allows by its own limit, whatever margin matters."""
        return self._region(getattr(self, exactly_one(self, *EXPECTATIONS)))

    def _region(self, limit: float | tuple[float, float]) -> Region:
        region: Region = getattr(Region, exactly_one(self, *EXPECTATIONS))(
            *(limit if isinstance(limit, tuple) else (limit,))
        )
        return region

    def title(self) -> str:
        return f"{self.variant} against {', '.join(self.baseline)}"

    def comparisons(self) -> Iterator[Comparison]:
        """Every effect that it takes, baseline by baseline, workload by workload."""
        pairs = itertools.product(self.baseline, self.workloads)
        return (Comparison(workload, self.variant, baseline, self.metric) for baseline, workload in pairs)

    def targets(self) -> Iterator[Target]:
        return (Target(comparison, (self.region,), self.evidence) for comparison in self.comparisons())

    def selected(self, variants: Sequence[str], workloads: Sequence[str], *, anywhere: bool) -> Self | None:
        """Cut down to these variants and workloads (none given: all); None where nothing is left.

        anywhere: where it lists none of these workloads, it is tried on those of the same component.
        """
        names = self.workloads
        if workloads:
            names = tuple(name for name in workloads if name in self.workloads)
            if not names and anywhere and self.metric == "time":
                component = _component(self.workloads[0])
                names = tuple(name for name in workloads if _component(name) == component)
        baselines = tuple(name for name in self.baseline if not variants or name in variants)
        if not names or not baselines or (variants and self.variant not in variants):
            return None
        return self.model_copy(update={"workloads": names, "baseline": baselines})


def _component(workload: str) -> str | None:
    """The part of a layer that a workload is; None for a whole model, and for a workload of the user's own."""
    try:
        return workload_data.get(workload).component
    except DataError:
        return None


class TimeMetric(Metric[TimeHypothesis]):
    """Ratios of times. The rounds measure them; there is no pass."""

    names = TIMES
    hypothesis = TimeHypothesis

    def judge(self, hypothesis: TimeHypothesis, evidence: Evidence, *, alpha: float) -> Judged:
        """One verdict from all comparisons that the run took on; the others are named."""
        wanted = list(hypothesis.comparisons())
        effects = tuple(_effect(hypothesis, evidence, each, alpha) for each in wanted if evidence.has(each))
        if not effects:
            return Judged(Word.NOT_MEASURABLE, "this run has none of its comparisons")
        left_out = [f"{c.variant} against {c.baseline} on {c.workload}" for c in wanted if not evidence.has(c)]
        return Judged.of_all(effects, more=f"; not in this run: {', '.join(left_out)}" if left_out else "")


def _effect(hypothesis: TimeHypothesis, evidence: Evidence, pair: Comparison, alpha: float) -> Effect:
    """One comparison; where a margin matters and the claim's own limit gives another word, that is a note."""
    effect = compare_sides(evidence, pair, hypothesis.region, hypothesis.evidence, alpha)
    if hypothesis.margin is None or effect.verdict not in SETTLED:
        return effect
    own = hypothesis.own_region
    word = compare_sides(evidence, pair, own, hypothesis.evidence, alpha).verdict
    note = f"{own.describe()}: {word.look.answer.lower()}"
    return effect if word is effect.verdict else replace(effect, notes=(*effect.notes, note))


METRIC = TimeMetric()
