"""Where things stand in a forest plot, whatever it is drawn with: the rows, the ends of the axis, the names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from llama_workbench.dashboard.figures.drawing import TRACK_PX
from llama_workbench.dashboard.views.data import Claim, Effect, Floor

# Heights in pixels. The y axis counts pixels, so that a row is as high on a phone as on a wall.
ROW_PX = 46  # a line of text and a track
GROUP_PX = 26  # a heading
HEAD_PX = 18


def region(claim: Claim) -> tuple[float | None, float | None] | None:
    """Ends of the claimed region on the figure's axis, None for an open one; None where there is nothing to draw.

    What a speed-up is due to is claimed as a word: its region is a single point in per cent, and no ratio.
    """
    if (claim.low is None and claim.high is None) or (not claim.unit and claim.low == claim.high):
        return None
    return claim.low, claim.high


def region_name(claim: Claim) -> str:
    """What the region is, for the legend."""
    return f"{'margin' if claim.is_comparison else 'claimed'}: {claim.claimed or 'not recorded'}"


def rows(effects: Sequence[Effect]) -> tuple[list[tuple[float, Effect]], list[tuple[float, str]], float]:
    """Tracks and headings with the height of their middle above the axis in pixels, and the height of all of them."""
    baselines = list(dict.fromkeys(effect.baseline for effect in effects))
    several = len(baselines) > 1
    top = ROW_PX * len(effects) + (GROUP_PX * len(baselines) if several else 0) + HEAD_PX
    y, placed, headings = float(top - HEAD_PX), [], []
    for baseline in baselines:
        if several:
            y -= GROUP_PX
            headings.append((y + 10, baseline))
        for effect in effects:
            if effect.baseline == baseline:
                y -= ROW_PX
                placed.append((y + TRACK_PX / 2 + 3, effect))
    return placed, headings, top


def span(claim: Claim, floors: Mapping[str, Floor]) -> tuple[float, float]:
    """Ends of the axis of ratios: everything that is finite, and some air, as far as a float goes."""
    known = [1.0, *(region(claim) or ())]
    for effect in claim.effects:
        known += [effect.value, effect.low, effect.high]
        if floor := floors.get(effect.workload):
            known += [floor.low, floor.high]
    logs = [math.log(value) for value in known if value is not None and value > 0]
    low, high = min(logs), max(logs)
    air = max(0.08 * (high - low), 0.003)
    return math.exp(max(low - air, -700.0)), math.exp(min(high + air, 700.0))


def linear_span(claim: Claim) -> tuple[float, float]:
    """The same for values with a unit; from 0 where nothing is below."""
    known = [*(region(claim) or ())]
    for effect in claim.effects:
        known += [effect.value, effect.low, effect.high]
    values = [value for value in known if value is not None] or [0.0, 1.0]
    low, high = min(0.0, *values), max(0.0, *values)
    air = 0.05 * (high - low) or 1.0
    return low - (air if low < 0 else 0.0), high + air


def in_words(claim: Claim, floors: Mapping[str, Floor]) -> str:
    """The forest plot in a sentence a row, for those who do not see it."""
    told = []
    for effect in claim.effects:
        floor = floors.get(effect.workload)
        known = f", A/A floor {floor.low:.3f} to {floor.high:.3f}" if floor else ""
        against = f" against {effect.baseline}" if effect.baseline else ""
        told.append(f"{effect.where}{against}: {effect.text}, {effect.verdict}{known}")
    return (
        f"{'Value' if claim.unit else 'Speed-up'} per workload, {region_name(claim)}. "
        + ". ".join(told or ["No rows"])
        + "."
    )
