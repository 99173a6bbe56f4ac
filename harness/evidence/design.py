"""What was fixed about a run's series before any was measured: how many values they will have, and of what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llama_workbench.datasets.lengths import PERCENTILES

from ..spec.regions import Region
from ..stats.confidence import LookPlan
from ..store.schema import Manifest


@dataclass(frozen=True)
class Design:
    """How the series of a run are looked at. Each value is of a process of its own.

    horizons: workload → how many values its budget is expected to give; none where nobody knows. statistics: workload →
    the percentile of its calls that is compared, where it is not their median. early: workloads that are looked at
    early (see `stats.confidence`).
    """

    horizons: Mapping[str, int] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict)
    early: frozenset[str] = frozenset()

    @classmethod
    def of(cls, manifest: Manifest) -> Design:
        """That of a run, by its run.json."""
        horizons = {each.workload.name: each.horizon for each in manifest.experiments if each.horizon}
        workloads = [each.workload for each in manifest.experiments]
        statistics = {each.name: each.statistic for each in workloads if each.statistic}
        early = frozenset(each.workload.name for each in manifest.experiments if each.early)
        return cls(horizons, statistics, early)

    def quantile(self, workload: str) -> float | None:
        """Of the times of a workload's calls, the one that is compared; None for the median."""
        return PERCENTILES.get(self.statistics.get(workload, ""))

    def plan(self, workload: str, alpha: float, region: Region | None = None) -> LookPlan:
        """How a series of this workload is looked at. `region`: about which it is asked; None: for its interval."""
        one_sided = region is not None and region.one_sided
        return LookPlan(alpha, self.horizons.get(workload), one_sided, workload in self.early)
