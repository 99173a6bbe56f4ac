"""By which rule a run measures, its verdicts from its samples and from what its passes found, and those of a run that
lies in its folder, of one machine or of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ..claims.model import Claim, in_words_of
from ..claims.reading import SHIPPED, load_dispute, load_folder, stored_claims
from ..evidence.effect import ALPHA
from ..evidence.evidence import Design, fault_cost_ns
from ..judge.parts import judge_claims
from ..judge.stopping import StoppingRule, proven
from ..plan.experiments import Plan
from ..plan.options import PlanError
from ..report.answer import answer
from ..report.standings import evidence_of, write_standings
from ..report.text import gain_text
from ..slices import faces
from ..spec.comparison import Comparison
from ..stats.samples import Clocks
from ..store.files import CLAIMS, VERDICTS
from ..store.folder import RunFolder
from ..store.schema import Environment, Manifest
from ..store.verdict_schema import FLEET, Verdict


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


@dataclass
class FirstAnswers:
    """Tells of each of these pairs once which side is faster, as soon as that is proven. The run continues until the
    interval is narrow enough."""

    rule: StoppingRule
    pairs: list[Comparison]
    tell: Callable[[str], None]

    def look(self) -> None:
        """Tell what has been proven since the last look."""
        for pair in list(self.pairs):
            if (interval := proven(self.rule, pair)) is None:
                continue
            self.pairs.remove(pair)
            gain = gain_text(math.exp(interval.low), math.exp(interval.high))
            where = f" on {pair.workload}" if len(self.rule.pairs) > 1 else ""
            self.tell(f"after {interval.n} processes, {pair.variant} against {pair.baseline}{where}: {gain} so far")


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
    `plans`: workload → how many processes it should have, where that is known, and whether they are looked at early.
    `to_compare`, `is_saved`: see `StoppingRule`."""
    threaded = frozenset(experiment.workload.name for experiment in plan.experiments if experiment.workload.threads > 1)
    clocks = Clocks(plan.device, threaded, wall)
    workloads = [experiment.workload for experiment in plan.experiments]
    statistics = {workload.name: workload.statistic for workload in workloads if workload.statistic}
    horizons = {name: horizon for name, (horizon, _) in (plans or {}).items() if horizon}
    early = frozenset(name for name, (_, is_early) in (plans or {}).items() if is_early)
    cost, design = fault_cost_ns(environment), Design(horizons, statistics, early)
    return StoppingRule(plan.experiments, clocks, ALPHA, cost, design, to_compare=to_compare, is_saved=is_saved)


# -- of a run that lies in its folder ----------------------------------------------------------------------------------


class Rejudged(NamedTuple):
    """Verdicts of a stored run, and its run.json with the noise that was found."""

    verdicts: tuple[Verdict, ...]
    manifest: Manifest


def claims_of(folder: RunFolder, claims_folder: Path | None = None) -> list[Claim]:
    """The claims of a stored run as they were then, or in the words of a folder (`in_words_of`)."""
    claims = stored_claims(folder)
    return in_words_of(claims, load_folder(claims_folder)[0]) if claims_folder else claims


def rejudge(folder: RunFolder, claims_folder: Path | None = None) -> Rejudged:
    """The verdicts of a stored run, from its samples and by the claims as they were then; of a run of several machines
    those over its machines. What is asked about the claims is as it was then too, and so are their words, unless
    `claims_folder` says them anew (`in_words_of`); where the run does not say, as the claims that ship have it.
    Raises RunError where one of its files cannot be read, ClaimError where its claims are not claims."""
    manifest = folder.manifest()
    if claims_folder is not None or "dispute" not in manifest.model_fields_set:
        manifest = manifest.model_copy(update={"dispute": load_dispute(claims_folder or SHIPPED)})
    if manifest.mode == FLEET:
        judged = several_machines().verdicts_of(folder)
        return Rejudged(judged.verdicts, judged.manifest.model_copy(update={"dispute": manifest.dispute}))
    claims = claims_of(folder, claims_folder)
    verdicts, with_noise = judge_run(manifest, claims, folder)  # by the rounds that it says there are
    return Rejudged(verdicts, with_noise.with_rounds(folder.finished_rounds()))


def keep(folder: RunFolder, judged: Rejudged, claims_folder: Path | None = None) -> None:
    """Write what `rejudge` found into the run, and what a folder of claims says of it."""
    verdicts, manifest = judged
    asked_anew = manifest.dispute != folder.manifest().dispute
    if manifest.mode == FLEET:
        several_machines().judge_fleet(folder.path, manifest.dispute if asked_anew else None)
        return
    folder.write_json(VERDICTS, verdicts)
    folder.renew(VERDICTS, noise=manifest.noise, **({"dispute": manifest.dispute.stored()} if asked_anew else {}))
    if claims_folder:
        folder.write_json(CLAIMS, [claim.stored() for claim in claims_of(folder, claims_folder)])
        folder.renew(CLAIMS)
    if folder.finished_rounds():
        write_standings(folder)


def several_machines() -> ModuleType:
    """The slice that measures runs on several machines (`measured_on`) and judges them (`verdicts_of`, `judge_fleet`).
    Raises PlanError where it was taken away."""
    for face in faces("machines"):
        return face
    raise PlanError(
        "runs of several machines are neither measured nor judged here: their part of the workbench is gone"
    )
