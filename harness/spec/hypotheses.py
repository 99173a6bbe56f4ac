"""What every hypothesis of a claim has in common; each metric adds its own keys (see `harness/metrics`).

The description of a field says what it expects: a fault in a claim is told with it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from llama_workbench.variants.spelling import did_you_mean

from .comparison import Comparison
from .experiments import Contrast, Target
from .regions import Range, Region

Device = Literal["cpu", "cuda"]
DEVICES: tuple[str, ...] = get_args(Device)
"""Kinds of device that models can be measured on."""


def no_repeats(values: tuple[str, ...]) -> tuple[str, ...]:
    """The values as they are. Raises ValueError where one occurs twice."""
    if len(set(values)) < len(values):
        raise ValueError("repeats")
    return values


def rising(pair: tuple[float, float]) -> tuple[float, float]:
    """The pair as it is. Raises ValueError unless its first number is the lower one."""
    if not pair[0] < pair[1]:
        raise ValueError("low must be below high")
    return pair


NAME = "a name of letters, digits and any of . _ + - (no spaces)"

# Strict numbers: TOML's `true` is not 1 and "1" is not 1. TOML does have inf and nan, which no claim can mean.
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, description="a number")]
Text = Annotated[str, Field(strict=True, min_length=1, pattern=r"\S")]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", description=NAME)]
Names = Annotated[
    tuple[Name, ...],
    Field(min_length=1, description="a list of one or more names without repeats"),
    AfterValidator(no_repeats),
]
Quantity = Annotated[Name, Field(description="a name")]


class Margin(BaseModel):
    """By how much two times must differ to matter, and whose limit that is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    percent: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, description="a number of percent above 0")]
    document: Annotated[Text, Field(description="the title of a document")]
    section: Annotated[Text, Field(description="the heading of a section")]


class Hypothesis(BaseModel):
    """What would make a claim true. Each metric has a model of its own, with the keys that it needs.

    `cpu_only` says why a metric cannot be measured on another device; empty where it can. `least_workloads` is how
    many workloads a hypothesis needs to mean anything. `quantities`: what its key `quantity` may be, where it has one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    cpu_only: ClassVar[str] = ""
    least_workloads: ClassVar[int] = 1
    quantities: ClassVar[Collection[str]] = ()

    part: Annotated[Text | None, Field(description="a short label")] = None
    who: Annotated[
        tuple[Text, ...] | None, Field(min_length=1, description="who says this part, where not all of the claim's")
    ] = None
    metric: str
    quick: Annotated[
        Annotated[bool, Field(strict=True)] | Names,
        Field(description="true, false, or a list of some of its workloads: what is measured without --all"),
    ] = True
    small: Annotated[
        bool, Field(strict=True, description="true: it says that something is small, so that more of it is no yes")
    ] = False
    left_out: Annotated[int, Field(ge=0, description="0: a run notes here how many workloads only --all measures")] = 0
    device: Annotated[Device | None, Field(description='"cpu" or "cuda"')] = None

    @model_validator(mode="after")
    def _quick_ones_fit(self) -> Self:
        if isinstance(self.quick, tuple):
            if other := set(self.quick) - set(self.workload_names()):
                raise ValueError(f"quick names {', '.join(sorted(other))}, which workloads does not")
            if len(self.quick) < self.least_workloads:
                raise ValueError(f"quick needs at least {self.least_workloads} workloads, has {len(self.quick)}")
        return self

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def region(self) -> Region | Range:
        """What it allows: log ratios, or values."""
        raise NotImplementedError

    @property
    def matters(self) -> Margin | None:
        """The margin that matters, where it is the limit."""
        return getattr(self, "margin", None)

    @property
    def due_to(self) -> str:
        """Of a claim about the split: which sides bring the speed-up. Else empty."""
        return ""

    def describe(self) -> str:
        """What is claimed, in words."""
        return self.region.describe()

    def title(self) -> str:
        """What is measured, in words: the metric, what of it, and of which variants."""
        names = (self.metric, getattr(self, "quantity", ""), " + ".join(getattr(self, "phases", ())))
        sides = " against ".join(self.variant_names())
        return " ".join(name for name in names if name) + (f" of {sides}" if sides else "")

    def fault(self) -> str:
        """Why it can never be settled, in words for its author; empty where it can."""
        quantity: str = getattr(self, "quantity", "")
        if not self.quantities or quantity in self.quantities:
            return ""
        hint = did_you_mean(quantity, self.quantities, f"there are: {', '.join(self.quantities)}", quote='"')
        return f'quantity = "{quantity}" is no {self.metric}: {hint}'

    def elsewhere(self, device: str) -> str:
        """Why a run that measures on this kind of device cannot settle it; empty where it can."""
        if self.device is not None and self.device != device:
            needs = "needs a CUDA device" if self.device == "cuda" else "is about the CPU alone"
            return f"{needs}: run with --device {self.device}; this run measured on {device}"
        if device != "cpu" and self.cpu_only:
            return f"{self.cpu_only}: run with --device cpu; this run measured on {device}"
        return ""

    # -- what it needs -----------------------------------------------------------------------------------------------

    def variant_names(self) -> tuple[str, ...]:
        """All variants that it asks about, baselines included."""
        sides = (getattr(self, "variant", None), getattr(self, "baseline", None))
        return tuple(name for side in sides if side for name in ((side,) if isinstance(side, str) else side))

    def workload_names(self) -> tuple[str, ...]:
        """All workloads that it asks about; none where it asks about no call."""
        names: tuple[str, ...] = getattr(self, "workloads", ())
        return names

    def comparisons(self) -> Iterator[Comparison]:
        """The timed effects that it is computed from."""
        return iter(())

    def targets(self) -> Iterator[Target]:
        """What the measuring loop must settle. What is computed from an effect needs it known well wherever it lies."""
        for comparison in self.comparisons():
            yield Target(comparison, (Region(-math.inf, math.inf),), "operations")

    def subjects(self) -> tuple[tuple[str, str], ...]:
        """Every (workload, variant) that its pass looks at: they take part in the run, untimed."""
        return ()

    def contrasts(self) -> tuple[Contrast, ...]:
        """What the measuring loop must settle among many variants at once, on each of its workloads."""
        return ()

    def in_quick_set(self) -> Self | None:
        """What of it is measured where nobody asked for it by name or for everything; None for nothing."""
        if isinstance(self.quick, tuple):
            left_out = len(self.workload_names()) - len(self.quick)
            return self.model_copy(update={"workloads": self.quick, "quick": True, "left_out": left_out})
        return self if self.quick else None

    def as_a_whole(self) -> Self:
        """The same where it was asked for: its list of quick workloads means nothing any more."""
        return self.model_copy(update={"quick": True}) if isinstance(self.quick, tuple) else self

    def selected(self, variants: Sequence[str], workloads: Sequence[str], *, anywhere: bool) -> Self | None:
        """Cut down to these variants and workloads (none given: all); None where nothing is left.

        anywhere: whether it may be tried on workloads that it does not list."""
        if variants and not set(self.variant_names()) <= set(variants):
            return None
        if not workloads:
            return self
        names = tuple(name for name in self.workload_names() if name in workloads)
        return self.model_copy(update={"workloads": names}) if len(names) >= self.least_workloads else None


class ValueHypothesis(Hypothesis):
    """One value (of each workload, where it names any), counted in `unit`."""

    counted_in: ClassVar[str] = "%"

    @property
    def unit(self) -> str:
        """What the value is counted in."""
        return self.counted_in

    @property
    def region(self) -> Range:
        """The values that it allows."""
        return Range(-math.inf, math.inf, self.unit)


class RangeHypothesis(ValueHypothesis):
    """One value that must lie in a range: `range`, `above` or `at_most`."""

    range: Annotated[
        tuple[Number, Number] | None,
        Field(description="[low, high]"),
        AfterValidator(lambda ends: ends and rising(ends)),
    ] = None
    above: Annotated[Number | None, Field(description="a number")] = None
    at_most: Annotated[Number | None, Field(description="a number")] = None

    @model_validator(mode="after")
    def _has_one_range(self) -> Self:
        exactly_one(self, "range", "above", "at_most")
        return self

    @property
    def region(self) -> Range:
        """The values that it allows."""
        low, high = self.range or (self.above, self.at_most)
        return Range(-math.inf if low is None else low, math.inf if high is None else high, self.unit)


def exactly_one(hypothesis: Hypothesis, *keys: str) -> str:
    """The one of these keys that is given. Raises ValueError for none and for several."""
    given = [key for key in keys if getattr(hypothesis, key) is not None]
    if len(given) != 1:
        raise ValueError(f"expected exactly one of {', '.join(keys)}; found {' and '.join(given) or 'none'}")
    return given[0]
