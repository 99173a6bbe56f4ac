"""Why a change gained what it gained: how much of the time it could touch, and what it saved there.

Everything is computed from what the run has measured. Which phases a change touches follows from the factors in which
its two sides differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from llama_workbench import variants
from llama_workbench.harness.metrics.share import shares
from llama_workbench.harness.metrics.share.shares import Share

from .. import words
from . import data
from .breakdown import NAMES, Phases

TOUCHED: Mapping[str, tuple[str, ...]] = {
    "mask": ("mask_create",),
    "mask_application": ("mask_apply",),
    "cache": ("cache",),
    "rope": ("rope",),
    "softmax": ("softmax",),
    "norm": ("norm", "final_norm"),
}
"""Phases whose time a factor may change; the others have none of their own."""

SAID = {**NAMES, "mask_create": "making masks", "mask_apply": "applying masks", "cache": "cache handling"}

WHOLE = "forward"


def explain(run: data.Run, claim: data.Claim, phases: Phases) -> str:
    """Of a claim about times: the phases that the change touches, what they can save at most, and what they did save.
    Empty where the run measured none of these."""
    if claim.unit or not claim.effects or claim.is_factorial:
        return ""
    touched, others = changed(claim)
    texts = [_bound(run, claim, phases, touched, others), *_saved(run, claim, phases, touched)]
    return " ".join(filter(None, texts))


def changed(claim: data.Claim) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The phases of the factors in which the two presets of a claim differ, and the factors that have no phase; empty
    where there are several pairs, or a side is no preset."""
    pairs = {(effect.variant, effect.baseline) for effect in claim.effects}
    known = set(variants.names())
    if len(pairs) != 1 or not {*next(iter(pairs))} <= known:
        return (), ()
    new, old = (variants.get(name).factors for name in next(iter(pairs)))
    factors = [factor for factor in old if new and new.get(factor) != old[factor]]
    touched = tuple(phase for factor in factors for phase in TOUCHED.get(factor, ()))
    return touched, tuple(factor for factor in factors if factor not in TOUCHED)


def _bound(run: data.Run, claim: data.Claim, phases: Phases, touched: Sequence[str], others: Sequence[str]) -> str:
    """What the touched phases take of the baseline, and so can save at most."""
    baseline = claim.effects[0].baseline
    places = dict.fromkeys(effect.workload for effect in claim.effects)
    shares = {place: share for place in places if (share := _share(phases, place, baseline, touched, run.alpha))}
    if not shares:
        return ""
    low, high = min(share.low for share in shares.values()), max(share.high for share in shares.values())
    where = max(shares, key=lambda place: shares[place].high)
    place = f"{', most' if len(shares) > 1 else ''} on {run.named(where)}"
    several = len(touched) > 1
    named = words.listing([SAID.get(phase, phase) for phase in touched])
    text = (
        f"The change touches {named}: {100 * low:.2g} to {100 * high:.2g} % of {baseline}'s forward{place}. "
        f"Without {'them' if several else 'it'} a call would be at most {1 / (1 - high):.3f}× as fast."
    )
    too = (
        f" It also changes {words.listing([name.replace('_', ' ') for name in others])}, which has no phase of its own."
    )
    return text + (too if others else "")


def _saved(run: data.Run, claim: data.Claim, phases: Phases, touched: Sequence[str]) -> list[str]:
    """Where both sides were timed by phase: how much shorter a call became, and by how much the touched phases did."""
    sentences = []
    for effect in claim.effects:
        if effect.value is None or effect.lower is None or effect.upper is None:
            continue
        before, after = (
            _share(phases, effect.workload, side, touched, run.alpha) for side in (effect.baseline, effect.variant)
        )
        if before is None or after is None:
            continue
        total = [1 - 1 / ratio for ratio in (effect.value, effect.lower, effect.upper)]
        # In parts of the old call, for which the new one's shares shrink with it. The ends hold whenever the three
        # intervals do.
        part = [
            before.value - after.value / effect.value,
            before.low - after.high / effect.lower,
            before.high - after.low / effect.upper,
        ]
        named = words.listing([SAID.get(phase, phase) for phase in touched])
        sentences.append(f"On {effect.where} a call became {_percent(total)} shorter; {named} saved {_percent(part)}.")
    return sentences


def _percent(numbers: Sequence[float]) -> str:
    value, low, high = (f"{100 * number:.2g}" for number in numbers)
    return f"{value} % [{low}, {high}]"


def _share(phases: Phases, workload: str, variant: str, touched: Sequence[str], alpha: float) -> Share | None:
    """The share of the touched phases in a forward; None where it was not measured, or they cannot be told apart."""
    if not touched or (workload, variant) not in phases.measured:
        return None
    try:
        share = shares.share(phases.table, workload, variant, list(touched), WHOLE, alpha=alpha)
    except ValueError:
        return None
    return share if math.isfinite(share.value) and share.high < 1 else None
