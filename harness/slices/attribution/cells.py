"""The factorial of a run for its page: effects as judged, in groups and in sentences; from samples cells and share."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from pydantic import ValidationError

from llama_workbench.dashboard import words
from llama_workbench.dashboard.views.data import Claim, Run
from llama_workbench.dashboard.views.samples import ratios, read_evidence

from ...spec.words import ARCHITECTURE, OPERATIONS, SIDES
from ...stats.confidence import running_interval
from ...store.files import CLAIMS, RunError
from ...store.folder import RunFolder
from ...store.verdict_schema import AD_HOC, Effect, Ends
from .metric import DUMMY, GRID, MARGIN_PERCENT, METRIC, Attribution, Grid, attribute

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
class MeasuredGrid:
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


def _grid_of(run: Run, workload: str) -> tuple[Grid, float]:
    """The grid that a claim of the run asks about on a workload, and its margin; those that ship where none can be
    read."""
    asked = [part for claim in RunFolder(run.path).records(CLAIMS) for part in claim.get("hypothesis", ())]
    for part in asked:
        with suppress(ValidationError, TypeError):
            hypothesis = METRIC.hypothesis.model_validate(part)
            if workload in hypothesis.workloads:
                return hypothesis.grid, hypothesis.within_percent
    return GRID, MARGIN_PERCENT


def read_grid(run: Run, workload: str, alpha: float) -> MeasuredGrid:
    """The cells of a run's grid on a workload, and how its speed-up divides, judged at `alpha`.

    Raises RunError too where the run has no grid there.
    """
    evidence, (grid, within) = read_evidence(run), _grid_of(run, workload)
    if not set(evidence.measured.get(workload, ())) & set(grid.cells()):
        raise RunError(
            run.path,
            f"no cell of a grid was measured on {workload}",
            f"Measure one: {run.dispute.command('attribution')}",
        )
    attribution = attribute(evidence, workload, grid, alpha=alpha, within_percent=within)
    logs, plan = attribution.times.logs, evidence.design.plan(workload, alpha)
    cells: list[Cell] = []  # none without a round that has them all
    levels = product(*((factor.old, factor.new) for factor in grid.factors))
    for variant, chosen, column in zip(grid.cells(), levels, logs.T, strict=True) if len(logs) else ():
        ratio, low, high = ratios(running_interval(logs[:, 0] - column, plan)) if cells else (1.0, None, None)
        cells.append(Cell(variant, chosen, math.exp(np.median(column)), ratio or math.nan, low, high))
    return MeasuredGrid(grid, tuple(cells), len(logs), attribution)


def share_sentence(measured: MeasuredGrid) -> str:
    """Which part of the speed-up either side has."""
    if measured.attribution.share is None:
        return "No share: by these intervals the total may be no gain or a loss, so there is nothing to divide."
    value, low, high = (100 * part for part in measured.attribution.share)
    return (
        f"Operations have {100 - value:.0f} % [{100 - high:.0f}, {100 - low:.0f}] of this speed-up, architecture "
        f"{value:.0f} % [{low:.0f}, {high:.0f}], as parts of its logarithm."
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
