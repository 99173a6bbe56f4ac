"""The effects of a factorial as they were judged: in groups for the page, and in sentences."""

from __future__ import annotations

from dataclasses import replace

from llama_workbench.dashboard import words
from llama_workbench.dashboard.views.data import Claim

from ...spec.words import ARCHITECTURE, OPERATIONS, SIDES
from ...store.verdict_schema import AD_HOC, Effect, Ends
from .metric import DUMMY, MARGIN_PERCENT

GROUPS = ("the split", "each factor alone", "two together", "three together", "all four together", "control")
"""Headings of the forest plot, in order."""


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
    percent = claim.margin or MARGIN_PERCENT
    margin = 1 + percent / 100
    return replace(
        claim,
        claim=AD_HOC,  # nobody claims anything of a single factor: the region is a margin
        part="",
        claimed=f"no effect (±{percent:g} %)",
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
    "same": "none: within the margin",
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
