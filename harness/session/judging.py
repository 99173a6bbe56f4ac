"""By which rule a run measures, and its verdicts from its samples and from what its passes found."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..claims.model import Claim
from ..evidence.design import Design
from ..evidence.effect import ALPHA
from ..evidence.evidence import fault_cost_ns
from ..judge.stopping import StoppingRule
from ..judge.verdicts import judge_claims
from ..plan.experiments import Plan
from ..report.answer import answer
from ..report.stored import evidence_of
from ..stats.samples import Clocks
from ..store.files import VERDICTS
from ..store.folder import RunFolder
from ..store.schema import Environment, Manifest
from ..store.verdict_schema import Verdict


def judge_run(manifest: Manifest, claims: Sequence[Claim], folder: RunFolder) -> tuple[tuple[Verdict, ...], Manifest]:
    """Verdicts of a stored run, and its run.json with the noise that was found. Raises RunError where one of its files
    cannot be read, or the samples are gone that its manifest speaks of."""
    evidence = evidence_of(folder, manifest)
    verdicts = judge_claims(claims, evidence, ad_hoc=manifest.ad_hoc, conditions=manifest.fail_if)
    return tuple(verdicts), manifest.model_copy(update={"noise": evidence.noise})


def answer_so_far(manifest: Manifest, claims: Sequence[Claim], folder: RunFolder) -> str:
    """Judge what there is once the rounds are over, and keep it: what follows them (where the difference is, memory,
    profiles) feeds no verdict, takes longer than the rounds of two short functions, and may fail. The first line."""
    verdicts, _ = judge_run(manifest.with_rounds(folder.finished_rounds()), claims, folder)
    folder.write_json(VERDICTS, verdicts)
    return answer(verdicts, manifest.dispute).headline


def stopping_rule(
    plan: Plan,
    wall: Mapping[str, Collection[str]],
    environment: Environment | None = None,
    plans: Mapping[str, tuple[int | None, bool]] | None = None,
    *,
    to_compare: bool = False,
    is_saved: bool = True,
) -> StoppingRule:
    """The rule for a plan. `wall`: workload → variants that must be timed by wall. `environment`: the machine.
    `plans`: workload → how many lives it should have, where that is known, and whether they are looked at early.
    `to_compare`, `is_saved`: see `StoppingRule`."""
    threaded = frozenset(experiment.workload.name for experiment in plan.experiments if experiment.workload.threads > 1)
    clocks = Clocks(plan.device, threaded, wall)
    workloads = [experiment.workload for experiment in plan.experiments]
    statistics = {workload.name: workload.statistic for workload in workloads if workload.statistic}
    horizons = {name: horizon for name, (horizon, _) in (plans or {}).items() if horizon}
    early = frozenset(name for name, (_, is_early) in (plans or {}).items() if is_early)
    cost, design = fault_cost_ns(environment), Design(horizons, statistics, early)
    return StoppingRule(plan.experiments, clocks, ALPHA, cost, design, to_compare=to_compare, is_saved=is_saved)
