"""What the teams' own rules pick, once the numbers they asked for are there. Pure functions.

The documents of the dispute decide by thresholds: the execution plan acts on what takes more than 10 % of the time, the
review on what takes more than 5 %, and the hand-off lists four options, A to D, with conditions in words. Here each
rule is a value with its source, and is applied to shares and effects *with their intervals*: where an interval lies on
both sides of a threshold, every option that remains possible is named, and the pick is "cannot tell".

Shares are percent of a workload's time. Effects are ratios t_old / t_new and enter the rules as gains in percent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from ..metrics.share.shares import share as time_share

MASK_CREATION, CACHE_HANDLING = "mask_create", "cache"
"""Names of the time shares that the rules ask for."""

PROPOSAL, LAYOUT_ALONE, CACHE_ALONE, MASK_ALONE = "proposal", "layout", "cache", "mask"
"""Names of the effects that the rules ask for (EFFECTS)."""

CANNOT_TELL = "cannot tell"

OPTIONS: Mapping[str, str] = {
    "A": "execute TEAM-005's plan",
    "B": "modify it: keep the good parts",
    "C": "reject it",
    "D": "optimise in steps, the unified cache first",
}
"""The hand-off's letters. What other documents do is put under the letter that it amounts to; their own letters
differ."""


class Measured(NamedTuple):
    """A number with its interval; infinite ends where there is none."""

    value: float
    low: float
    high: float


UNKNOWN = Measured(math.nan, -math.inf, math.inf)

_share_of, _gain_of = "share of {}".format, "gain of {}".format
"""Names of quantities."""

Above = Callable[[str, float], bool]
"""(quantity, threshold) → whether it lies above."""


@dataclass(frozen=True)
class Choice:
    """An option by its letter, and what is then done in the document's own terms."""

    option: str
    action: str


@dataclass(frozen=True)
class Rule:
    """One document's rule.

    thresholds: quantity ("share of NAME" or "gain of NAME") → thresholds in percent that `choose` asks about, rising.
    remark: how we interpret the rule, or what of it cannot be measured.
    """

    team: str
    name: str
    document: str
    section: str
    says: str
    thresholds: Mapping[str, tuple[float, ...]]
    choose: Callable[[Above], Choice]
    remark: str


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
    """What a rule picks. option: a letter of OPTIONS, or "cannot tell" with the choices that remain possible (a letter
    may have several). used: the numbers that the pick depends on."""

    rule: Rule
    option: str
    choices: tuple[Choice, ...]
    used: tuple[Used, ...]


def _by_shares(threshold: float, mask: str, cache: str, neither: str) -> Callable[[Above], Choice]:
    def choose(above: Above) -> Choice:
        # Unifying comes first: the struct that the documents sketch for it holds the cached masks as well.
        if above(_share_of(CACHE_HANDLING), threshold):
            return Choice("D", cache)
        return Choice("B", mask) if above(_share_of(MASK_CREATION), threshold) else Choice("C", neither)

    return choose


def _by_options(above: Above) -> Choice:
    proposal = _gain_of(PROPOSAL)
    if above(proposal, 100):
        return Choice("A", "execute the plan")
    if not above(proposal, 1):
        return Choice("C", "reject the plan (no improvement)")
    if above(_gain_of(CACHE_ALONE), 1):
        return Choice("D", "start with the unified cache only, then decide")
    if above(_gain_of(LAYOUT_ALONE), 1):
        return Choice("B", "keep the single file, drop the unified cache")
    return Choice("B", "keep the modular files and add what gains")


PLAN, REVIEW = "TEAM-006 EXECUTION PLAN", "TEAM-006 CRITICAL REVIEW & DECISION"
HAND_OFF = "HANDOFF TO TEAM-006: Critical Review & Execution"

FRAGMENTATION = "all time spent in cache handling is taken for fragmentation: the most that unifying can save"

# fmt: off
RULES: tuple[Rule, ...] = (
    Rule(
        "TEAM-005", "the hand-off's rule", HAND_OFF, "Phase 2: Decision",
        "execute the plan if it brings significant improvement, reject it if it brings none, start with the unified "
        "cache if that alone gains, else keep the good parts",
        {_gain_of(PROPOSAL): (1, 100), _gain_of(CACHE_ALONE): (1,), _gain_of(LAYOUT_ALONE): (1,)}, _by_options,
        'the document has no figures: "significant" is read as its own promise (2x, a gain of 100 %), "no improvement" '
        "as 1 % or less; A also asks for worker crates that work and a realistic timeline, which is not measured",
    ),
    Rule(
        "TEAM-006", "the plan's 10 % rule", PLAN, "Phase 2: Decision Point",
        "cache masks if making them takes more than 10 % of the time, unify caches if fragmentation does, else ship",
        {_share_of(MASK_CREATION): (10,), _share_of(CACHE_HANDLING): (10,)},
        _by_shares(10, "cache masks (Phase 3A)", "unify the caches (Phase 3B)", "document and ship (Phase 4)"),
        FRAGMENTATION,
    ),
    Rule(
        "TEAM-006", "the review's 5 % rule", REVIEW, "If Profiling Shows Issues",
        "cache masks if making them takes more than 5 % of the time, unify caches if fragmentation does, else nothing",
        {_share_of(MASK_CREATION): (5,), _share_of(CACHE_HANDLING): (5,)},
        _by_shares(
            5, "cache masks in Attention (the review's Option B)",
            "a unified cache struct in the modular code (the review's Option B)", "do nothing (the review's Option C)",
        ),
        FRAGMENTATION,
    ),
    Rule(
        "TEAM-006", "the review's keep rule", REVIEW, "Phase 3: Validate Improvements",
        "keep a change only if it gains more than 10 %",
        {_gain_of(MASK_ALONE): (10,)},
        lambda above: Choice("B", "keep the cached masks") if above(_gain_of(MASK_ALONE), 10)
        else Choice("C", "take the cached masks out again"),
        "applied to the one change that was made; the execution plan's success criteria have the same figure",
    ),
)
# fmt: on
"""Every rule with a threshold in the documents."""


def decide(shares: Mapping[str, Measured], effects: Mapping[str, Measured]) -> tuple[Decision, ...]:
    """Apply the rules to one workload: its time shares (percent) and its effects (ratios t_old / t_new) by name.

    What is not in the mappings, or has no value (NaN), counts as not measured. Raises ValueError for a share outside 0
    to 100, a ratio below 0, or an interval whose ends are the wrong way round.
    """
    for numbers, most in ((shares, 100.0), (effects, math.inf)):
        for name, (value, low, high) in numbers.items():
            if not (math.isnan(value) or (low <= high and 0 <= value <= most)):
                expected = f"expected (value, low, high), value from 0 to {most:g}, low <= high"
                raise ValueError(f"{name} = {(value, low, high)}: {expected}")
    quantities = {_share_of(name): share for name, share in shares.items()}
    quantities |= {_gain_of(name): Measured(*(100 * (end - 1) for end in ratio)) for name, ratio in effects.items()}
    known = {name: measured for name, measured in quantities.items() if not math.isnan(measured.value)}
    return tuple(_apply(rule, known) for rule in RULES)


def _apply(rule: Rule, known: Mapping[str, Measured]) -> Decision:
    """Every combination of sides of the thresholds that the intervals allow, through the rule."""
    allowed = [_levels(known.get(name, UNKNOWN), cuts) for name, cuts in rule.thresholds.items()]
    choices: dict[Choice, None] = {}
    asked: set[tuple[str, float]] = set()
    for levels in product(*allowed):
        at = dict(zip(rule.thresholds, levels, strict=True))

        def above(name: str, threshold: float, at: Mapping[str, int] = at) -> bool:
            asked.add((name, threshold))
            return rule.thresholds[name].index(threshold) < at[name]

        choices[rule.choose(above)] = None
    cuts = [(name, cut) for name, cuts in rule.thresholds.items() for cut in cuts]
    used = tuple(Used(name, known.get(name, UNKNOWN), cut) for name, cut in cuts if (name, cut) in asked)
    options = {choice.option for choice in choices}
    return Decision(rule, options.pop() if len(options) == 1 else CANNOT_TELL, tuple(choices), used)


def _levels(measured: Measured, cuts: Sequence[float]) -> range:
    """How many of the thresholds the true value may lie above; "above" is strict, as in "more than 10 %"."""
    return range(sum(cut < measured.low for cut in cuts), sum(cut < measured.high for cut in cuts) + 1)


SHARES_OF = "team006_before"
"""The code whose time shares the documents' rules ask about: the worker before anything was cached."""

EFFECTS: Mapping[str, tuple[str, str]] = {
    PROPOSAL: ("team005_proposal", "team006_before"),
    LAYOUT_ALONE: ("team005_proposal", "team005_hybrid"),
    CACHE_ALONE: ("team005_hybrid", "team005_split"),
    MASK_ALONE: ("team006_after", "team006_before"),
}
"""By the names above: which variant against which baseline."""


def effects_of(verdicts: Iterable[Mapping[str, Any]], workload: str) -> dict[str, Measured]:
    """The effects that the rules ask for on one workload, from the records of verdicts.json."""
    ratios: dict[tuple[str, str], Measured] = {}
    for effect in (effect for verdict in verdicts for effect in verdict["effects"]):
        if effect["workload"] == workload and effect.get("ratio") is not None:
            high = math.inf if effect["high"] is None else effect["high"]
            ratios[effect["variant"], effect["baseline"]] = Measured(effect["ratio"], effect["low"] or 0.0, high)
    return {name: ratios[sides] for name, sides in EFFECTS.items() if sides in ratios}


def decisions_of(
    table: pd.DataFrame, verdicts: Iterable[Mapping[str, Any]], alpha: float
) -> dict[str, tuple[Decision, ...]]:
    """What the rules pick on each workload with time shares of SHARES_OF, from phases.parquet and verdicts.json."""
    records = list(verdicts)

    def percent(workload: str, phase: str) -> Measured:
        part = time_share(table, workload, SHARES_OF, [phase], "forward", alpha=alpha)
        return Measured(100 * part.value, 100 * part.low, 100 * part.high)

    return {
        workload: decide(
            {phase: percent(workload, phase) for phase in (MASK_CREATION, CACHE_HANDLING)},
            effects_of(records, workload),
        )
        for workload in table.loc[table["variant"] == SHARES_OF, "workload"].astype(str).unique()
    }


@dataclass(frozen=True)
class Pick:
    """What one rule picks over all workloads that have the numbers it asks for: what is then done, in words, and on how
    many of them. Nothing where no workload has them."""

    rule: Rule
    actions: Mapping[str, int]

    @property
    def done(self) -> str:
        """What is then done: "do nothing", "do nothing (on 3 of 4 workloads); undecided: ... (on 1 of 4)"."""
        if len(self.actions) < 2:
            return next(iter(self.actions), "nothing: its numbers were not measured")
        ways = sorted(self.actions.items(), key=lambda item: -item[1])
        return "; ".join(f"{action} (on {count} of {self._total} workloads)" for action, count in ways)

    @property
    def where(self) -> str:
        """On which workloads, where all say the same: "on all 4 workloads"; else empty."""
        if len(self.actions) != 1:
            return ""
        if self._total == 1:
            return "on the one workload that has its numbers"
        return f"on {'both' if self._total == 2 else f'all {self._total}'} workloads"

    @property
    def _total(self) -> int:
        return sum(self.actions.values())


def picks_of(decisions: Mapping[str, Sequence[Decision]]) -> list[Pick]:
    """One pick for each rule, in the order of RULES."""
    return [
        Pick(row[0].rule, Counter(picked(each) for each in row if not any(used.is_missing for used in each.used)))
        for row in zip(*decisions.values(), strict=True)
    ]


def picked(decision: Decision) -> str:
    """What is then done, without the letters and phases of the document."""
    actions = list(dict.fromkeys(choice.action.partition(" (")[0] for choice in decision.choices))
    if len(actions) == 1:
        return actions[0]
    letters = (f"({letter}) {action}" for letter, action in zip("abcdefgh", actions, strict=False))
    return f"undecided: {' or '.join(letters)}"


def decision_markdown(decisions: Mapping[str, Sequence[Decision]]) -> str:
    """What each document's rule picks on each workload, with the numbers it used."""
    blocks = ["# What the teams' own rules pick"]
    for workload, picked in decisions.items():
        blocks.append(f"## {workload}")
        for decision in picked:
            rule = decision.rule
            option = ", ".join(filter(None, (decision.option, OPTIONS.get(decision.option))))
            pick = f"**{option}** by {rule.team}'s rule: {rule.says}"
            used = (f"- {number.describe()}" for number in decision.used)
            remark = f"- our interpretation: {rule.remark}"
            blocks.append("\n".join([pick, f"({rule.document}, {rule.section})", *used, remark]))
    return "\n\n".join(blocks) + "\n"
