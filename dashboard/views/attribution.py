"""The factorial of a run: effects as they were judged, in the groups of the page, and what they say.

Effects come from verdicts.json. What it does not hold (the share as a number, the times of cells) `samples` computes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llama_workbench.harness.metrics.attribution import DUMMY, MARGIN_PERCENT, Attribution, Grid
from llama_workbench.harness.spec.sides import ARCHITECTURE, OPERATIONS, TOTAL
from llama_workbench.harness.store.verdict_schema import AD_HOC, Effect, Ends

from .. import words
from .data import Claim

SIDES = (ARCHITECTURE, OPERATIONS, TOTAL)

GROUPS = ("the split", "each factor alone", "two together", "three together", "all four together", "control")
"""Headings of the forest plot, in order."""


@dataclass(frozen=True)
class Cell:
    """One combination: its levels, the median time of a call, its speed-up over the all-old cell. None is open."""

    variant: str
    levels: tuple[str, ...]
    call_ns: float
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Measured:
    """A grid on one workload, from samples. rounds: how many have all cells."""

    grid: Grid
    cells: tuple[Cell, ...]
    rounds: int
    attribution: Attribution


def _group(effect: Effect) -> str:
    if effect.factor in SIDES:
        return GROUPS[0]
    return GROUPS[-1] if effect.factor == DUMMY else GROUPS[min(effect.factor.count(":") + 1, 4)]


def rows(claim: Claim, workload: str) -> Claim:
    """A claim's effects on one workload for the forest plot: one row each, by group, with the margin as region."""
    chosen = sorted(
        (effect for effect in claim.effects if effect.workload == workload and effect.factor),
        key=lambda effect: GROUPS.index(_group(effect)),
    )
    margin = 1 + MARGIN_PERCENT / 100
    return replace(
        claim,
        claim=AD_HOC,  # nobody claims anything of a single factor: the region is a margin
        part="",
        claimed=f"no effect (±{MARGIN_PERCENT:g} %)",
        region=Ends(1 / margin, margin),
        effects=tuple(
            replace(each, workload=each.factor, named="", variant="", baseline=_group(each)) for each in chosen
        ),
    )


MEANING = (
    "Architecture is file layout and cache ownership. Operations are the mask policy, the copies around RoPE, and "
    "softmax and attention. Every combination of old and new was timed; each side has the mean of changing it first "
    "and last, so both add up to the total."
)
"""What the two sides are."""

STATES = {
    "faster": "proven",
    "slower": "proven",
    "same": f"none: within ±{MARGIN_PERCENT:g} %",
    "not evidence": "no evidence",
}
"""What a verdict on one side comes to; any other is open."""


def headline(claim: Claim) -> list[str]:
    """A sentence a side: what it changes on each workload, and whether that is proven."""
    lines = []
    for side in (OPERATIONS, ARCHITECTURE):
        changes: dict[str, list[str]] = {}
        for effect in claim.effects:
            if effect.factor == side:
                state = STATES.get(effect.verdict, "inconclusive")
                changes.setdefault(state, []).append(f"{_change(effect)} on {effect.where}")
        sentence = "; ".join(f"{words.listing(where)} ({state})" for state, where in changes.items())
        lines += [f"{side.capitalize()}: {sentence}."] * bool(sentence)
    return lines


def _change(effect: Effect) -> str:
    """A ratio's interval as a change of the speed: "+2.8 to +21 %"."""
    if effect.lower is None or effect.upper is None:
        return "not bounded" if effect.value else "not measured"
    low, high = (100 * (end - 1) for end in (effect.lower, effect.upper))
    return f"{low:+.2g} to {high:+.2g} %" if high < 100 else f"{low:+.0f} to {high:+,.0f} %"


def share_sentence(measured: Measured) -> str:
    """Which part of the speed-up either side has."""
    if measured.attribution.share is None:
        return "No share: by these intervals the total may be no gain or a loss, so there is nothing to divide."
    value, low, high = (100 * part for part in measured.attribution.share)
    return (
        f"Operations have {100 - value:.0f} % [{100 - high:.0f}, {100 - low:.0f}] of this speed-up, architecture "
        f"{value:.0f} % [{low:.0f}, {high:.0f}], as parts of its logarithm."
    )
