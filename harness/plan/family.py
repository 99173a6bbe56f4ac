"""The level of every interval in a report: the measuring loop and the judge divide alpha by the same number."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping

from ..claims.model import Claim
from ..spec.comparison import Comparison


def ad_hoc_comparisons(pairs: Iterable[tuple[str, str]], measured: Mapping[str, Collection[str]]) -> list[Comparison]:
    """Pairs (baseline, variant) without a claim, on every workload that has both sides."""
    found = [Comparison(workload, variant, baseline) for baseline, variant in pairs for workload in measured]
    return [comparison for comparison in found if _has(measured, comparison)]


def interval_alpha(
    claims: Iterable[Claim],
    ad_hoc: Iterable[tuple[str, str]],
    *,
    measured: Mapping[str, Collection[str]],
    device: str,
    alpha: float,
) -> float:
    """What each interval of a report is judged at: `alpha` of the report over the number of different intervals.

    Those are the comparisons of claims and the ones without a claim, of which the run took both sides on, and what
    metrics add of their own. A pair that is asked for twice has one interval, right or wrong for both, and counts
    once, whichever side is called the baseline.

    measured: workload → variants that the run took on. device: the kind that it measures on; parts of claims that are
    about another one have no interval.
    """
    parts = [part for claim in claims for part in claim.hypothesis if not part.elsewhere(device)]
    own: set[Hashable] = {key for part in parts for key in part.intervals()}
    compared = [comparison for part in parts for comparison in part.comparisons() if _has(measured, comparison)]
    compared += ad_hoc_comparisons(ad_hoc, measured)
    pairs = {(each.workload, frozenset((each.variant, each.baseline)), each.metric) for each in compared}
    return alpha / max(len(pairs) + len(own), 1)


def _has(measured: Mapping[str, Collection[str]], comparison: Comparison) -> bool:
    return {comparison.variant, comparison.baseline} <= set(measured.get(comparison.workload, ()))
