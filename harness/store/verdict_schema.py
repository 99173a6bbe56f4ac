"""The verdicts of a run, verdicts.json: what became of each part of a claim, and the effects behind it.

What is judged, printed, exported and drawn is these values. An open end is infinite in memory, null in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, PlainSerializer, StrictBool, TypeAdapter, WrapValidator, model_serializer
from pydantic.json_schema import SkipJsonSchema

from ..spec.regions import FAIL_IF
from ..spec.words import ARCHITECTURE, OPERATIONS, UNDERSTATED, Cause, Word, factor_of
from ..stats.confidence import LookPlan
from .forms import (
    ABSENT,
    Alpha,
    Amount,
    Count,
    HighEnd,
    LowEnd,
    Number,
    SecondsMore,
    Shape,
    Some,
    Text,
    Value,
    null_is,
    says,
)

AD_HOC = "ad-hoc"
"""The name under which a comparison without a claim is judged."""

PartName = Annotated[
    Text,
    WrapValidator(lambda raw, read: "" if raw is None else read(raw), json_schema_input_type=str | None),
    PlainSerializer(lambda part: part or None, return_type=str | None),
]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One comparison on one workload, or one value of a pass, with its interval.

    In memory `ratio` (for a value with a `unit`: the value itself) is NaN without rounds; while there are too few
    rounds for an interval, `low` is 0 (of a value minus infinity) and `high` infinite. For a comparison without a claim
    `verdict` is faster, slower, same, inconclusive or not evidence. `seconds_more` is NaN where nothing can be said.
    """

    workload: Annotated[Text, says("where it was measured")]
    variant: Annotated[Text, says("the side that is asked about")]
    baseline: Annotated[Text, says("the side that it is compared with; may be empty for a value")]
    metric: Annotated[Text, says('"cpu time", "wall time to first token", ...; for a value, what it is of')] = ""
    clock: Annotated[Text, ABSENT, says('what timed it: "cpu", "wall" or "device"; only there for a comparison')] = ""
    machine: Annotated[Text, ABSENT, says("on which machine; only there in a run of several machines")] = ""
    unit: Annotated[Text, ABSENT, says("unit of a value; only there for a value")] = ""
    ratio: Annotated[
        Value,
        Field(
            validation_alias=AliasChoices("ratio", "value"),
            description="t_baseline / t_variant: above 1 the variant is faster; for a value the key is `value`",
        ),
    ] = math.nan
    low: Annotated[LowEnd, says("lower end of its interval; null: open")] = -math.inf
    high: Annotated[HighEnd, says("upper end; null: open")] = math.inf
    rounds: Annotated[Count, says("number of rounds")]
    seconds: Annotated[Amount, says("wall time of the samples behind it, both sides, seconds")]
    verdict: Annotated[Word, says("what became of it")]
    cause: Annotated[Cause, says("what makes it so, in a word that code may ask for; else none")] = Cause.NONE
    reason: Annotated[Text, says("why the verdict is as it is, for people; may be empty")] = ""
    notes: Annotated[tuple[Text, ...], says("what a reader should know besides")] = ()
    seconds_more: Annotated[
        SecondsMore,
        Field(exclude_if=math.isnan),
        says(
            "seconds of the clock that settle it in 9 of 10 cases, or give a first interval; null: no time is sure to"
        ),
    ] = math.nan
    horizon: Annotated[Some | None, ABSENT, says("values along which alpha was spent; absent: it was not known")] = None
    one_sided: Annotated[StrictBool, ABSENT, says("whether each end holds at alpha, and not both together")] = False
    early: Annotated[StrictBool, ABSENT, says("whether it was looked at early, after four values")] = False
    named: Annotated[str, Field(exclude=True), SkipJsonSchema()] = ""  # the workload in words, where it is shown

    def plan(self, alpha: float) -> LookPlan:
        """How it was looked at."""
        return LookPlan(alpha, self.horizon, self.one_sided, self.early)

    @property
    def value(self) -> float | None:
        """The ratio, or the value in its unit; None where there is none."""
        return self._finite(self.ratio)

    @property
    def lower(self) -> float | None:
        """The lower end of its interval; None where that is open."""
        return self._finite(self.low)

    @property
    def upper(self) -> float | None:
        """The upper end; None where that is open."""
        return self._finite(self.high)

    def _finite(self, number: float) -> float | None:
        return number if math.isfinite(number) and (self.unit or number > 0) else None

    @property
    def place(self) -> str:
        """The workload; of a value without one, what was measured."""
        return self.workload or self.metric

    @property
    def where(self) -> str:
        """The same in words. Of several machines also the machine."""
        return " on ".join(filter(None, (self.named or self.place, self.machine)))

    @property
    def sides(self) -> str:
        """Who was measured: "NAME against BASELINE", or what was measured where no variant was."""
        return " against ".join(name for name in (self.variant, self.baseline) if name) or self.metric

    @property
    def factor(self) -> str:
        """The factor, interaction or side of a grid that it is the effect of; "" for any other effect."""
        return factor_of(self.variant, self.baseline)

    @property
    def said(self) -> tuple[str, ...]:
        """All that there is to say of it: the reason, then the notes."""
        return (self.reason, *self.notes) if self.reason else self.notes

    @model_serializer(mode="wrap")
    def _row(self, dump: Callable[[Effect], dict[str, Any]]) -> dict[str, Any]:
        row = dump(self)
        if self.unit:
            return {"value" if key == "ratio" else key: value for key, value in row.items()}
        return row | {"ratio": self.value, "low": self.lower, "high": self.upper}  # a ratio of 0 is none


@dataclass(frozen=True)
class Ends:
    """What is claimed: ratios, or values in the unit of the effects."""

    low: Annotated[Number | None, says("lower end; null: none")] = None
    high: Annotated[Number | None, says("upper end; null: none")] = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one part of a claim."""

    claim: Annotated[Text, says("name of the claim; ad-hoc for a comparison without one")]
    part: Annotated[PartName, says("name of the part, where a claim has several; else null")] = ""
    who: Annotated[tuple[Text, ...], says("who said it")]
    title: Annotated[Text, says("the claim in a few words")] = ""
    statement: Annotated[Text, says("the claim in a sentence")] = ""
    verdict: Annotated[Word, says("what became of it")]
    reason: Annotated[Text, says("why")]
    cause: Annotated[Cause, says("what makes it so, in a word that code may ask for; else none")] = Cause.NONE
    alpha: Annotated[Alpha, null_is(math.nan), says("of each effect; null: bounds from experience")] = math.nan
    claimed: Annotated[Text, says("`region` in words")] = ""
    fewer: Annotated[Text, ABSENT, says("on how many of its workloads, where these are not all")] = ""
    small: Annotated[StrictBool, ABSENT, says("whether it says that something is small; absent: no")] = False
    due_to: Annotated[Text, says("of a claim about the split: which sides bring the speed-up")] = ""
    region: Ends | None = None
    margin: Annotated[Amount, ABSENT, says("percent of difference that matters, where that is the limit")] = 0.0
    margin_from: Annotated[Text, ABSENT, says("who says so: document and section")] = ""
    together: Annotated[bool, says("whether it holds at once with all others that say so (Holm)")] = False
    effects: Annotated[tuple[Effect, ...], says("the evidence")]

    @property
    def claimed_here(self) -> str:
        """What is claimed, with how many of its workloads this run has where these are not all."""
        return f"{self.claimed} ({self.fewer})" if self.fewer else self.claimed

    @property
    def low(self) -> float | None:
        """The lower end of what is claimed; None where there is none."""
        return self.region.low if self.region else None

    @property
    def high(self) -> float | None:
        """The upper end; None where there is none."""
        return self.region.high if self.region else None

    @property
    def is_comparison(self) -> bool:
        """Whether it is of `--compare A B`: nobody claimed anything, and the region is the margin of "same"."""
        return self.claim == AD_HOC

    @property
    def is_condition(self) -> bool:
        """Whether it is of `--fail-if`: nobody claimed anything, and the region is what was asked about."""
        return self.claim == FAIL_IF

    @property
    def is_open(self) -> bool:
        """Whether it is not settled."""
        return self.verdict is Word.INCONCLUSIVE

    @property
    def is_understated(self) -> bool:
        """Whether a range of gains was claimed, and every effect that is refuted lies above it. "The same within 1 %"
        is no gain; and what is said to be small is not, where it lies above."""
        lows = [effect.lower for effect in self.effects if effect.verdict is Word.REFUTED]
        nothing = 0.0 if self.unit else 1.0
        if self.small or self.low is None or self.high is None or self.low <= nothing or not lows:
            return False
        return all(low is not None and low > self.high for low in lows)

    @property
    def is_at_least_so(self) -> bool:
        """Whether a range of gains was claimed, and every interval lies within or above it: it may be understated."""
        nothing = 0.0 if self.unit else 1.0
        if self.small or self.low is None or self.high is None or self.low <= nothing or not self.effects:
            return False
        return all(effect.lower is not None and effect.lower >= self.low for effect in self.effects)

    @property
    def word(self) -> str:
        """Its word; of a refuted claim that is understated that one."""
        return UNDERSTATED if self.verdict is Word.REFUTED and self.is_understated else self.verdict.value

    @property
    def is_factorial(self) -> bool:
        """Whether its rows are effects of a grid's factors, with both sides of the split among them."""
        return {ARCHITECTURE, OPERATIONS} <= {effect.factor for effect in self.effects}

    @property
    def unit(self) -> str:
        """The unit of its effects; empty where they are ratios of times."""
        return next((effect.unit for effect in self.effects if effect.unit), "")


VERDICTS = TypeAdapter(tuple[Verdict, ...])


def too_early(verdicts: Iterable[Verdict]) -> bool:
    """Whether something was compared without a claim, and none of that has an interval yet."""
    compared = [effect for verdict in verdicts if verdict.is_comparison for effect in verdict.effects]
    return bool(compared) and all(effect.cause.is_too_early for effect in compared)


# What a fleet keeps: its machines in run.json, and machines.json, each effect by machine kind and over machines.
# A fleet is a run of several machines: one folder whose `machines/NAME/` is an ordinary run each (see
# `harness/slices`).


FLEET, HOME = "fleet", "machines"
"""The `mode` of a fleet's run.json; the folder of a fleet in which the runs of its machines lie."""

Spending = Literal["replicate", "split"]
"""How a fleet was used: every machine measured all, or each experiment was measured on one machine."""


class Machine(Shape):
    """One machine of a fleet. `name` is a plain folder name."""

    name: Annotated[Text, says("its name in this fleet")]
    kind: Annotated[Text, says("what kind of machine it is, in words; empty until it is known")] = ""
    folder: Annotated[Text | None, says("its run, from the folder of the fleet; null: it measured nothing")] = None
    status: Annotated[Text, says('as of a run; "left out" where it was not used')] = ""
    experiments: Annotated[
        list[Text], says("workloads that it measured; where the work was split only these count")
    ] = []
    reason: Annotated[Text, says("why it was left out, or what happened to it")] = ""


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """An effect over machines, or a value: its centre and its interval. In memory as those of `Effect`."""

    ratio: Annotated[Value, says("t_baseline / t_variant, or the value; null: none")]
    low: Annotated[LowEnd, says("lower end of its interval; null: open")]
    high: Annotated[HighEnd, says("upper end; null: open")]


@dataclass(frozen=True, kw_only=True)
class OfKind(Pooled):
    """The same on the machines of one kind: the mean of what is true on each of them."""

    kind: Annotated[Text, says("the kind of machine")]
    machines: Annotated[tuple[Text, ...], says("names of these machines")]
    rounds: Annotated[Count, says("number of rounds, of all together")]
    verdict: Annotated[Word, says("what it says of the claim on these machines, as of an effect")]


@dataclass(frozen=True, kw_only=True)
class OverMachines:
    """One effect over all machines that measured it. Intervals hold with probability 1 - `alpha` each."""

    claim: Annotated[Text, says("as in verdicts.json")]
    part: Annotated[PartName, says("as in verdicts.json")] = ""
    workload: Annotated[Text, says("where it was measured")]
    variant: Annotated[Text, says("the side that is asked about")]
    baseline: Annotated[Text, says("the side that it is compared with; may be empty")]
    metric: Annotated[Text, says("as of an effect")] = ""
    unit: Annotated[Text, says("unit of a value; empty for a ratio")] = ""
    alpha: Annotated[Alpha, says("chance that an interval misses")]
    kinds: Annotated[tuple[OfKind, ...], says("the effect by machine kind")]
    mean: Annotated[Pooled | None, says("mean over these machines; null for fewer than two")] = None
    spread: Annotated[Value, says("standard deviation between machines, of the log ratio or in its unit; null: none")]
    apart: Annotated[bool, says("whether two machines have intervals without a common point")] = False


MACHINES = TypeAdapter(list[OverMachines])
