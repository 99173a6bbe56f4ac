"""What a fleet keeps: its machines in run.json, and machines.json, each effect by machine kind and over machines.

A fleet is a run of several machines: one folder whose `machines/NAME/` is an ordinary run each (see `harness/slices`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import TypeAdapter

from ..spec.words import Word
from .forms import Alpha, Count, HighEnd, LowEnd, Shape, Text, Value, says
from .verdict_schema import PartName

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
class General(Pooled):
    """What may be expected of machines in general, if those measured are a fair draw of them (random effects)."""

    next_low: Annotated[LowEnd, says("lower end of where the effect on one more kind of machine lies")]
    next_high: Annotated[HighEnd, says("upper end of it")]


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
    general: Annotated[General | None, says("machines in general; null for too few kinds of them")] = None


MACHINES = TypeAdapter(list[OverMachines])
