"""The factorial of a run: effects as they were judged, in the groups of the page, and what they say.

Effects come from verdicts.json. What it does not hold (the share as a number, the times of cells) `samples` computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_workbench.harness.metrics.attribution.grid import ARCHITECTURE, DUMMY, OPERATIONS, TOTAL, Grid
from llama_workbench.harness.metrics.attribution.metric import MARGIN_PERCENT, Attribution, factor_of

from .data import Claim, Effect

SIDES = (ARCHITECTURE, OPERATIONS, TOTAL)

GROUPS = ("the split", "each factor alone", "two together", "three together", "all four together", "control")
"""Headings of the forest, in order."""


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
    """A grid on one workload, from samples. rounds: those that are whole."""

    grid: Grid
    cells: tuple[Cell, ...]
    rounds: int
    attribution: Attribution


def is_factorial(claim: Claim) -> bool:
    """Whether a claim was judged by a factorial: its effects have both sides of the split."""
    names = {factor(effect) for effect in claim.effects}
    return {ARCHITECTURE, OPERATIONS} <= names


def factor(effect: Effect) -> str:
    """The factor, interaction or side that an effect is about; "" for any other effect."""
    return factor_of(effect.variant, effect.baseline)


def group(name: str) -> str:
    """The heading that an effect stands under."""
    if name in SIDES:
        return GROUPS[0]
    return GROUPS[-1] if name == DUMMY else GROUPS[min(name.count(":") + 1, 4)]


def rows(claim: Claim, workload: str) -> Claim:
    """A claim's effects on one workload as what the forest plot draws: a row each, by group, against the margin within
    which an effect counts as none."""
    chosen = [effect for effect in claim.effects if effect.workload == workload and factor(effect)]
    chosen.sort(key=lambda effect: GROUPS.index(group(factor(effect))))
    margin = 1 + MARGIN_PERCENT / 100
    return Claim(
        id="ad-hoc",  # nobody claims anything of a single factor: the region is a margin
        title=claim.title,
        alpha=claim.alpha,
        claimed=f"no effect (±{MARGIN_PERCENT:g} %)",
        low=1 / margin,
        high=margin,
        effects=tuple(
            replace(effect, workload=factor(effect), variant="", baseline=group(factor(effect))) for effect in chosen
        ),
    )


def sentences(claim: Claim, workload: str, measured: Measured | None) -> list[str]:
    """What the factorial says on a workload: the total, who has which share of it, what is settled and what is not."""
    by_name = {factor(effect): effect for effect in claim.effects if effect.workload == workload}
    found = []
    if (total := by_name.get(TOTAL)) is not None:
        found.append(f"All new against all old: {total.text} over {total.rounds} rounds.")
    if measured is not None and (share := measured.attribution.share) is not None:
        value, low, high = (100 * part for part in share)
        found.append(
            f"Of this speed-up (its logarithm) architecture has {value:.0f} % [{low:.0f}, {high:.0f}] and operations "
            f"{100 - value:.0f} % [{100 - high:.0f}, {100 - low:.0f}]."
        )
    elif measured is not None:
        found.append(
            "No share can be told: by these intervals the total may be nothing or a loss, and nothing cannot be shared."
        )
    for side in (ARCHITECTURE, OPERATIONS):
        if (effect := by_name.get(side)) is not None:
            found.append(f"{side.capitalize()}: {effect.text}, {_meaning(effect)}.")
    factors = [name for name in by_name if ":" not in name and name not in (*SIDES, DUMMY)]
    told = [f"{name} {by_name[name].text} ({by_name[name].verdict})" for name in factors if _is_settled(by_name[name])]
    if told:
        found.append(f"Settled of the factors: {', '.join(told)}.")
    if open_ := [name for name in factors if not _is_settled(by_name[name])]:
        found.append(f"Not settled of the factors: {', '.join(open_)}.")
    mixed = [name for name in by_name if ":" in name and by_name[name].verdict in ("faster", "slower")]
    several = [name for name in by_name if ":" in name]
    same = sum(by_name[name].verdict == "same" for name in several)
    if mixed:
        found.append(f"Effects do not just add up: {', '.join(f'{name} {by_name[name].text}' for name in mixed)}.")
    elif several:
        found.append(
            f"None of the {len(several)} interactions is shown to be beyond ±{MARGIN_PERCENT:g} %, and {same} of them "
            "to be within."
        )
    return found


def _meaning(effect: Effect) -> str:
    if effect.verdict == "inconclusive":
        return f"not settled{': ' + effect.warnings[0] if effect.warnings else ''}"
    meanings = {
        "faster": f"gains more than {MARGIN_PERCENT:g} %",
        "slower": f"loses more than {MARGIN_PERCENT:g} %",
        "same": f"changes nothing (within ±{MARGIN_PERCENT:g} %)",
    }
    return meanings.get(effect.verdict, f"{effect.verdict}{': ' + effect.warnings[0] if effect.warnings else ''}")


def _is_settled(effect: Effect) -> bool:
    return effect.verdict in ("faster", "slower", "same")


def forest_text(claim: Claim, workload: str) -> str:
    """The forest of `rows` in words."""
    told: Sequence[str] = [f"{effect.workload} {effect.text}, {effect.verdict}" for effect in claim.effects]
    return f"Effects of the factorial on {workload}, speed-up of new over old: {'; '.join(told) or 'none'}."
