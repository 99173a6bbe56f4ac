"""Architecture or operations? A full factorial: every combination of old and new levels, measured in the same rounds.

    samples --grid_times--> log times [rounds, cells] --contrasts--> one log ratio a round --judge--> Effect

A ladder of presets credits each thing with what it does beside one setting of the others. A full factorial has every
setting: each effect is a contrast of half the cells against the other half, so every cell's time serves every effect
(Fisher 1935; Box, Hunter and Hunter, "Statistics for Experimenters", chapter 5), and whether effects add up is seen and
not assumed.

Every round has all cells in random order. Its number for an effect is the mean over cells of the sign-coded speed-up:
minus the median, over the round's sub-rounds, of the log time of a call. Common drift cancels, because the signs sum to
0. The series goes through the same confidence sequence as any other comparison. The estimates are those of least
squares on the log times (a test compares them with statsmodels); the intervals are not, because least squares takes
residuals that share a round for independent, and allows one look only.

Scale. An effect is the log of t_old / t_new: above 1 the new level is faster, on the geometric mean over the settings
of the other factors. An interaction of two factors is half the difference between the effects of one with the other new
and old: above 1 both new levels together gain more than the sum of each alone.

The split. With L the log speed-up of a cell over the all-old one, the total is L(new, new), for architecture and
operations new. Changing architecture first gains L(new, old), changing it last L(new, new) - L(old, new); the mean of
both (Shapley's value of a game of two) favours neither and adds up to the total. In effects it is the sum of those with
an odd number of architecture factors and an even number of operations factors, and the other way round for operations.
Only the four corners enter, so it has twice the standard error of an effect.

The dummy. A random half of the cells against the rest, drawn anew for every round, has no effect whatever the cells do;
times enter as deviations from their cell's mean, else real effects would make it noisy. It is a control of this
analysis; `@aa` is the control of the measuring.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

ARCHITECTURE, OPERATIONS, TOTAL = "architecture", "operations", "total"
"""The two sides of the split, and their sum: from the all-old corner to the all-new one."""

DUMMY = "dummy"


@dataclass(frozen=True)
class Factor:
    """One axis of a grid with its two levels; `kind` is the side of the dispute that it belongs to."""

    name: str
    old: str
    new: str
    kind: Literal["architecture", "operations"]

    def change(self) -> str:
        """The step in words: "modular → single_file"."""
        return f"{self.old} → {self.new}"


@dataclass(frozen=True)
class Grid:
    """Every combination of the factors' levels; a cell is the variant called NAME_level_level_..."""

    name: str
    factors: tuple[Factor, ...]

    def cells(self) -> tuple[str, ...]:
        """Names of the variants, all-old first, all-new last, the last factor changing fastest."""
        return tuple("_".join((self.name, *levels)) for levels in product(*((f.old, f.new) for f in self.factors)))

    def signs(self) -> NDArray[np.float64]:
        """[cells, factors]: -1 where the factor is old, +1 where it is new."""
        return np.array(list(product((-1.0, 1.0), repeat=len(self.factors))))

    def terms(self) -> tuple[str, ...]:
        """Names of all effects: the factors', then "layout:cache" and so on by order."""
        names = [factor.name for factor in self.factors]
        return tuple(":".join(term) for order in range(1, len(names) + 1) for term in combinations(names, order))


GRID = Grid(
    "grid",
    (
        Factor("layout", "modular", "single_file", "architecture"),
        Factor("cache", "split", "unified", "architecture"),
        Factor("mask", "fresh", "per_model", "operations"),
        Factor("ops", "composite", "fused", "operations"),
    ),
)
"""The dispute's own: file layout and cache ownership against mask policy and fused operations."""


def contrasts(grid: Grid = GRID) -> dict[str, NDArray[np.float64]]:
    """Name → weights over `grid.cells()` of the log speed-ups, for every effect and for the split.

    The positive weights of each sum to 1, the negative ones to -1 (all are 0 for a side that has no factors).
    """
    signs = grid.signs()
    place = {factor.name: index for index, factor in enumerate(grid.factors)}
    kinds = {factor.name: factor.kind for factor in grid.factors}
    weights: dict[str, NDArray[np.float64]] = {}
    split = {ARCHITECTURE: np.zeros(len(signs)), OPERATIONS: np.zeros(len(signs))}
    for term in grid.terms():
        names = term.split(":")
        weights[term] = signs[:, [place[name] for name in names]].prod(axis=1) / (len(signs) / 2)
        odd = [kind for kind in split if sum(kinds[name] == kind for name in names) % 2]
        if len(odd) == 1:
            split[odd[0]] += weights[term]
    return {**weights, **split, TOTAL: split[ARCHITECTURE] + split[OPERATIONS]}
