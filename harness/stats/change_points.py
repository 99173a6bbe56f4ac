"""Where a history of numbers changes: E-divisive means (Matteson & James 2014).

A series is cut where the parts on both sides are most unlike, by the energy distance between their values, and the cut
counts where that is rare in series whose values were shuffled. Then each part is cut further in the same way, until a
cut does not count. Nothing is assumed about the shape of the noise, but that its values are exchangeable: a history
without a change gets any cut with probability `alpha` at most.

Apache Otava has the same method with a data base, a chat and pinned versions of numpy and scipy around it; ruptures has
its distances without a test of what it finds. Both are why this is written out here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST_PART = 3
"""Values on either side of a cut: with fewer, one value far out is a part of its own."""

SHUFFLES = 999

AT_ONCE = 10_000
"""Distances between values of shuffled series that are in memory at a time, so many squared sizes of a series."""


def change_points(
    values: ArrayLike, *, at: Collection[int] | None = None, alpha: float = 0.01, seed: int = 0
) -> list[int]:
    """Indices of a series (any unit, in order of time) at which it changes: the first value of each new part.

    at: the only indices at which it can change; any, if not given. The same `seed` gives the same cuts. Raises
    ValueError for a value that is not finite.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or not np.isfinite(series).all():
        raise ValueError("one series of finite numbers is wanted")
    allowed = np.isin(np.arange(series.size), sorted(range(series.size) if at is None else at))
    rng = np.random.default_rng(seed)
    cuts: list[int] = []
    while True:
        parts = [slice(*ends) for ends in zip([0, *cuts], [*cuts, series.size], strict=True)]
        energy, cut = _best(series, parts, allowed)
        if cut is None:
            return cuts
        if not _is_rare(energy, series, parts, allowed, alpha, rng):
            return cuts
        cuts = sorted([*cuts, cut])


def _is_rare(
    energy: float,
    series: NDArray[np.float64],
    parts: Sequence[slice],
    allowed: NDArray[np.bool_],
    alpha: float,
    rng: np.random.Generator,
) -> bool:
    """Whether a share of at most `alpha` of series whose values are shuffled within their parts has such a cut."""
    as_large, left = 1, SHUFFLES  # the series itself is one of them
    while left and as_large <= alpha * (SHUFFLES + 1):
        count = min(left, max(1, AT_ONCE // series.size**2))
        left -= count
        copies = np.tile(series, (count, 1))
        shuffled = np.concatenate([rng.permuted(copies[:, part], axis=1) for part in parts], axis=1)
        energies = [np.where(allowed[part], _energies(shuffled[:, part]), -np.inf) for part in parts]
        as_large += int((np.concatenate(energies, axis=1).max(axis=1) >= energy).sum())
    return as_large <= alpha * (SHUFFLES + 1)


def _best(series: NDArray[np.float64], parts: Sequence[slice], allowed: NDArray[np.bool_]) -> tuple[float, int | None]:
    """The largest energy of a cut of one of the parts, and where it is; None where none may be cut."""
    best: tuple[float, int | None] = (-np.inf, None)
    for part in parts:
        energies = np.where(allowed[part], _energies(series[part]), -np.inf)
        if energies.size and (most := float(energies.max())) > best[0]:
            best = most, int(part.start + energies.argmax())
    return best


def _energies(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each index the largest scaled energy distance between the values before it and those from it on, up to the
    end or to some value before that, so that a change that goes back is seen, too. Minus infinity where too few lie on
    a side. values: [..., size]; so is what is given back."""
    size = values.shape[-1]
    sums = np.zeros((*values.shape[:-1], size + 1, size + 1))  # [a, b]: distances of the first a values to the first b
    sums[..., 1:, 1:] = np.abs(values[..., :, None] - values[..., None, :]).cumsum(axis=-2).cumsum(axis=-1)
    inside = np.diagonal(sums, axis1=-2, axis2=-1)  # each pair twice
    cut, end = np.arange(size)[:, None], np.arange(size + 1)[None, :]
    first, second = cut.astype(np.float64), (end - cut).astype(np.float64)
    between = sums[..., :-1, :] - inside[..., :-1, None]
    inside_second = inside[..., None, :] - inside[..., :-1, None] - 2 * between
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = 2 * between / (first * second) - inside_second / (second * (second - 1))
        distance -= inside[..., :-1, None] / (first * (first - 1))
        scaled = distance * first * second / (first + second)
    enough: NDArray[np.float64] = np.where((first >= LEAST_PART) & (second >= LEAST_PART), scaled, -np.inf)
    return enough.max(axis=-1)
