"""What the teams' own rules pick, once the numbers they asked for are there. Pure functions.

The documents of a dispute decide by thresholds. Each rule is a value with its source (`spec.dispute`), and is applied
to shares and effects *with their intervals*: where an interval lies on both sides of a threshold, every option that
remains possible is named, and the pick is which are not: "not A".

Shares are percent of a workload's time. Effects are ratios t_old / t_new and enter the rules as gains in percent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import NamedTuple

from ..metrics.share.shares import share as time_share
from ..spec.dispute import GAIN_OF, SHARE_OF, Dispute, Numbers, Rule
from ..spec.table import Table
from ..store.verdict_schema import Verdict
from .markdown import markdown_cell, markdown_rows

CANNOT_TELL = "cannot tell"


class Measured(NamedTuple):
    """A number with its interval; infinite ends where there is none."""

    value: float
    low: float
    high: float


UNKNOWN = Measured(math.nan, -math.inf, math.inf)


@dataclass(frozen=True)
class Choice:
    """An option by its letter, and what is then done in the document's own terms."""

    option: str
    action: str


@dataclass(frozen=True)
class Used:
    """A number that a rule asked for, against one threshold."""

    quantity: str
    measured: Measured
    threshold: float

    @property
    def is_missing(self) -> bool:
        """Whether the run did not measure it."""
        return math.isnan(self.measured.value)

    @property
    def answer(self) -> str:
        """How its interval lies to the threshold."""
        if self.is_missing:
            return "not measured"
        if self.threshold < self.measured.low:
            return "above"
        return "on both sides of" if self.threshold < self.measured.high else "not above"

    def describe(self) -> str:
        """In words: "share of cache 2.1 % [1.8, 2.4]: not above 10 %"."""
        value, low, high = self.measured
        if math.isnan(value):
            return f"{self.quantity}: not measured"
        ends = f"[{low:.3g}, {high:.3g}]" if math.isfinite(low) and math.isfinite(high) else "[no interval yet]"
        return f"{self.quantity} {value:.3g} % {ends}: {self.answer} {self.threshold:g} %"


@dataclass(frozen=True)
class Decision:
    """What a rule picks. option: a letter of the options, or where several remain possible, which of the rule's do not
    ("not A"; "cannot tell" where all may be). choices: those that remain (a letter may have several). used: the numbers
    that the pick depends on."""

    rule: Rule
    option: str
    choices: tuple[Choice, ...]
    used: tuple[Used, ...]

    @property
    def actions(self) -> tuple[str, ...]:
        """What may then be done."""
        return tuple(dict.fromkeys(choice.action for choice in self.choices))


def decide(dispute: Dispute, shares: Mapping[str, Measured], effects: Mapping[str, Measured]) -> tuple[Decision, ...]:
    """Apply the rules to one workload: its time shares (percent) and its effects (ratios t_old / t_new) by name.

    What is not in the mappings, or has no value (NaN), counts as not measured. Raises ValueError for a share outside 0
    to 100, a ratio below 0, or an interval whose ends are the wrong way round.
    """
    for numbers, most in ((shares, 100.0), (effects, math.inf)):
        for name, (value, low, high) in numbers.items():
            if not (math.isnan(value) or (low <= high and 0 <= value <= most)):
                expected = f"expected (value, low, high), value from 0 to {most:g}, low <= high"
                raise ValueError(f"{name} = {(value, low, high)}: {expected}")
    quantities = {SHARE_OF(name): share for name, share in shares.items()}
    quantities |= {GAIN_OF(name): Measured(*(100 * (end - 1) for end in ratio)) for name, ratio in effects.items()}
    known = {name: measured for name, measured in quantities.items() if not math.isnan(measured.value)}
    return tuple(_apply(rule, thresholds(rule, dispute.numbers), known) for rule in dispute.rule)


def thresholds(rule: Rule, numbers: Numbers) -> dict[str, tuple[float, ...]]:
    """What the rule asks for, in the order of the numbers: its thresholds in percent, rising."""
    asked = [(pick.quantity, pick.percent) for pick in rule.pick if pick.percent is not None]
    cuts = {name: tuple(sorted({cut for quantity, cut in asked if quantity == name})) for name in numbers.quantities()}
    return {name: its for name, its in cuts.items() if its}


def _apply(rule: Rule, cuts_of: Mapping[str, tuple[float, ...]], known: Mapping[str, Measured]) -> Decision:
    """Every combination of sides of the thresholds that the intervals allow, through the rule."""
    allowed = [_levels(known.get(name, UNKNOWN), cuts) for name, cuts in cuts_of.items()]
    choices: dict[Choice, None] = {}
    asked: set[tuple[str, float]] = set()
    for levels in product(*allowed):
        at = dict(zip(cuts_of, levels, strict=True))
        for pick in rule.pick:
            if pick.quantity is not None and pick.percent is not None:
                asked.add((pick.quantity, pick.percent))
                is_above = cuts_of[pick.quantity].index(pick.percent) < at[pick.quantity]
                if is_above != (pick.above is not None):
                    continue
            choices[Choice(pick.option, pick.action)] = None
            break
    cuts = [(name, cut) for name, cuts in cuts_of.items() for cut in cuts]
    used = tuple(Used(name, known.get(name, UNKNOWN), cut) for name, cut in cuts if (name, cut) in asked)
    options = {choice.option for choice in choices}
    gone = dict.fromkeys(pick.option for pick in rule.pick if pick.option not in options)
    several = f"not {' or '.join(gone)}" if gone else CANNOT_TELL
    return Decision(rule, options.pop() if len(options) == 1 else several, tuple(choices), used)


def _levels(measured: Measured, cuts: Sequence[float]) -> range:
    """How many of the thresholds the true value may lie above; "above" is strict, as in "more than 10 %"."""
    return range(sum(cut < measured.low for cut in cuts), sum(cut < measured.high for cut in cuts) + 1)


def effects_of(numbers: Numbers, verdicts: Iterable[Verdict], workload: str) -> dict[str, Measured]:
    """The effects that the rules ask for on one workload."""
    ratios = {
        (effect.variant, effect.baseline): Measured(effect.ratio, effect.lower or 0.0, effect.high)
        for verdict in verdicts
        for effect in verdict.effects
        if effect.workload == workload and not effect.unit and effect.value is not None
    }
    sides = {name: (gain.variant, gain.baseline) for name, gain in numbers.gains.items()}
    return {name: ratios[pair] for name, pair in sides.items() if pair in ratios}


def decisions_of(
    dispute: Dispute, table: Table, verdicts: Iterable[Verdict], alpha: float
) -> dict[str, tuple[Decision, ...]]:
    """What the rules pick on each workload with time shares of the variant that they ask about, or where they ask for
    no shares, with any verdict; from phases.parquet and the verdicts. Nothing where there are no rules."""
    judged, numbers = list(verdicts), dispute.numbers
    if not dispute.rule or (numbers.shares and not len(table)):
        return {}

    def percent(workload: str, phases: Sequence[str]) -> Measured:
        part = time_share(table, workload, numbers.shares_of, [*phases], "forward", alpha=alpha)
        return Measured(100 * part.value, 100 * part.low, 100 * part.high)

    if numbers.shares:
        names = [workload for (workload,) in table.where(variant=numbers.shares_of).distinct("workload")]
    else:
        names = [effect.workload for verdict in judged for effect in verdict.effects]
    return {
        workload: decide(
            dispute,
            {name: percent(workload, phases) for name, phases in numbers.shares.items()},
            effects_of(numbers, judged, workload),
        )
        for workload in dict.fromkeys(names)
    }


@dataclass(frozen=True)
class Picked:
    """What one rule picks over all workloads that have the numbers it asks for. actions: on each, what may be done."""

    rule: Rule
    actions: tuple[tuple[str, ...], ...]

    @property
    def done(self) -> str:
        """What is then done: "do nothing", "do nothing (on 3 of 4 workloads); undecided: ... (on 1 of 4 workloads)"."""
        if len(self._ways) < 2:
            return next(iter(self._ways), "nothing: its numbers were not measured")
        total = len(self.actions)
        return "; ".join(f"{way} (on {count} of {total} workloads)" for way, count in self._ways.most_common())

    @property
    def where(self) -> str:
        """On which workloads, where all say the same: "on all 4 workloads"; else empty."""
        if len(self._ways) != 1:
            return ""
        if len(self.actions) == 1:
            return "on the one workload that has its numbers"
        return f"on {'both' if len(self.actions) == 2 else f'all {len(self.actions)}'} workloads"

    @property
    def _ways(self) -> Counter[str]:
        """What is then done, and on how many workloads; those that cannot tell are told together."""
        ways = Counter(possible[0] for possible in self.actions if len(possible) == 1)
        if unsettled := [possible for possible in self.actions if len(possible) > 1]:
            ways[undecided(self.rule, chain.from_iterable(unsettled))] = len(unsettled)
        return ways


def picks_of(decisions: Mapping[str, Sequence[Decision]]) -> list[Picked]:
    """One pick for each rule, in the order of the rules."""
    return [
        Picked(row[0].rule, tuple(each.actions for each in row if not any(used.is_missing for used in each.used)))
        for row in zip(*decisions.values(), strict=True)
    ]


def picked(decision: Decision) -> str:
    """What is then done, without the letters of the document."""
    possible = decision.actions
    return possible[0] if len(possible) == 1 else undecided(decision.rule, possible)


def undecided(rule: Rule, possible: Iterable[str]) -> str:
    """What is left of a rule's actions where it cannot tell: "ruled out: ...; undecided: (a) ... or (b) ..."."""
    left = dict.fromkeys(possible)
    letters = (f"({letter}) {action}" for letter, action in zip("abcdefgh", left, strict=False))
    gone = " and ".join(dict.fromkeys(pick.action for pick in rule.pick if pick.action not in left))
    return f"{gone and f'ruled out: {gone}; '}undecided: {' or '.join(letters)}"


def picks_markdown(picks: Sequence[Picked]) -> str:
    """One row a rule: whose it is, what it says, and what it has one do by this run's numbers."""
    rows = (
        (markdown_cell(pick.rule.team), markdown_cell(pick.rule.says), f"**{markdown_cell(pick.done)}** {pick.where}")
        for pick in picks
    )
    return markdown_rows(("team", "its own rule", "so by these numbers"), rows)


def decision_markdown(dispute: Dispute, decisions: Mapping[str, Sequence[Decision]]) -> str:
    """What each document's rule picks on each workload, with the numbers it used."""
    blocks = ["# What the teams' own rules pick"]
    for workload, picked in decisions.items():
        blocks.append(f"## {workload}")
        for decision in picked:
            rule = decision.rule
            option = ", ".join(filter(None, (decision.option, dispute.options.get(decision.option))))
            pick = f"**{option}** by {rule.team}'s rule: {rule.says}"
            used = (f"- {number.describe()}" for number in decision.used)
            remark = [f"- our interpretation: {rule.remark}"] if rule.remark else []
            blocks.append("\n".join([pick, f"({rule.document}, {rule.section})", *used, *remark]))
    return "\n\n".join(blocks) + "\n"
