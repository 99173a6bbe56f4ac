"""By which rule a run measures, and its verdicts from its samples and from what its passes found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..claims.model import Claim
from ..evidence.design import Design
from ..evidence.effect import ALPHA
from ..evidence.evidence import fault_cost_ns
from ..judge.stopping import StoppingRule
from ..judge.verdicts import judge_claims
from ..plan.experiments import Plan
from ..report.stored import evidence_of
from ..spec.conditions import conditions_in
from ..stats.samples import Clocks
from ..store.folder import RunFolder
from ..store.forms import plain
from ..store.verdict_schema import Verdict


def judge_run(
    manifest: Mapping[str, Any], claims: Sequence[Claim], folder: RunFolder
) -> tuple[tuple[Verdict, ...], dict[str, Any]]:
    """Verdicts and noise of a stored run. Raises RunError where one of its files cannot be read, or the samples are
    gone that its manifest speaks of."""
    evidence = evidence_of(folder, manifest)
    pairs = [(baseline, variant) for baseline, variant in manifest.get("ad_hoc", [])]
    verdicts = judge_claims(claims, evidence, ad_hoc=pairs, conditions=conditions_in(manifest))
    return tuple(verdicts), plain(evidence.noise)


def counted(manifest: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    """The manifest with the rounds that lie in the folder: of a killed run it counts those of some time before."""
    rounds = folder.finished_rounds()
    experiments = manifest.get("experiments", ())
    recounted = [each | {"rounds": rounds.get(each["workload"]["name"], 0)} for each in experiments]
    return {**manifest, "experiments": recounted}


def stopping_rule(
    plan: Plan,
    wall: Mapping[str, frozenset[str]],
    environment: Mapping[str, Any] | None = None,
    horizons: Mapping[str, int] | None = None,
    *,
    to_compare: bool = False,
) -> StoppingRule:
    """The rule for a plan. `wall`: workload → variants that must be timed by wall. `environment`: as in run.json.
    `horizons`: workload → how many lives it should have. `to_compare`: see `StoppingRule`."""
    threaded = frozenset(experiment.workload.name for experiment in plan.experiments if experiment.workload.threads > 1)
    clocks = Clocks(plan.device, threaded, wall)
    workloads = [experiment.workload for experiment in plan.experiments]
    statistics = {workload.name: workload.statistic for workload in workloads if workload.statistic}
    cost, design = fault_cost_ns(environment or {}), Design(True, horizons or {}, statistics)
    return StoppingRule(plan.experiments, clocks, ALPHA, cost, design, to_compare=to_compare)
