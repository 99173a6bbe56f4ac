"""From a request to a plan: experiments, each a workload with its variants and the effects it must settle.

One experiment serves every claim that needs its workload. Controls ride along: the baseline entered twice (`@aa`), an
identical copy of another variant (`@copy`) where a call is cheap, and the frozen reference benchmark that saved
runs are compared by.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from llama_workbench import ROOT, variants
from llama_workbench.datasets import workloads as workload_data
from llama_workbench.datasets.geometries import Geometry, geometries, parameter_count
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import FUNCTION_REFERENCE, REFERENCE_BENCHMARK, digests

from ..calls.called import WORK, Call
from ..calls.command import AS_THEY_ARE, CommandSettings
from ..calls.digest import digest_of
from ..calls.source import Source
from ..claims.model import Claim
from ..claims.reading import select
from ..metrics.unmeasurable import UnmeasurableHypothesis
from ..spec.comparison import AA, COPY, Comparison, EnteredName, held_together, is_one_table, sides_of
from ..spec.dispute import Dispute
from ..spec.experiments import DECODE_PRECISION, QUESTION_PRECISION, Contrast, Experiment, Target, without
from ..spec.hypotheses import Hypothesis
from ..spec.regions import ANSWERS, Condition
from ..store.schema import CallSources, CommandsRecord, SourceRecord, Sources
from .functions import (
    A_PYTHON,
    NOTHING,
    Functions,
    ad_hoc_pairs,
    added_sources,
    check_evidence,
    check_variant,
    functions_of,
    own_workloads,
    selected,
    variants_in,
)
from .options import AGAINST, BEST, PlanError, Request

COMPARE_WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")
HEADLINES = 2
"""Claims whose sides are profiled without being asked for: a look at one takes some three seconds."""

COPY_PARAMETERS, COPY_LIMIT = 150_000_000, 2_500_000_000
"""Parameters, and parameters times tokens of a call, up to which an identical-copy control rides along; beyond, its
time is better spent on rounds (the A/A control always rides)."""


@dataclass(frozen=True)
class Plan:
    """What will be measured, and what it is for.

    `claims` are as they will be judged (selection applied); `ad_hoc` pairs are (baseline, variant) without a claim.
    `added` maps the names of outside variants to their sources. Parts of claims that are not for `device` are judged,
    not measured. `conditions`: when an ad-hoc comparison fails. `functions`: any functions that are compared.
    `dispute`: what is asked about the claims.
    """

    mode: str  # "claims" or "compare"
    claims: tuple[Claim, ...]
    ad_hoc: tuple[tuple[str, str], ...]
    experiments: tuple[Experiment, ...]
    added: Mapping[str, Source]
    device: str = "cpu"
    conditions: tuple[Condition, ...] = ()
    functions: Functions = field(default_factory=Functions)
    dispute: Dispute = field(default_factory=Dispute)

    @property
    def sides(self) -> tuple[str, ...]:
        """What is compared without a claim, the baseline first."""
        return sides_of(self.ad_hoc)

    @property
    def is_tabled(self) -> bool:
        """Whether all that it compares is one table."""
        sized = any(each.workload.size for each in self.experiments)
        return self.mode == "compare" and is_one_table(len(self.ad_hoc), sized=sized)

    @property
    def threads(self) -> int:
        """The fewest that any of its workloads computes on, as run.json has it for the whole run. A workload that takes
        more says so itself: for it, the others are not of another machine."""
        return min((experiment.workload.threads for experiment in self.experiments), default=1)

    @property
    def calm(self) -> bool:
        """Whether freed memory is kept, and no garbage collected in samples, on any workload: as run.json has it
        for the whole run. Functions that it measures as they run say so themselves."""
        return not self.experiments or any(each.workload.calm for each in self.experiments)

    def hypotheses(self) -> list[Hypothesis]:
        """The parts of claims that this run can settle."""
        return [part for claim in self.claims for part in claim.hypothesis if not part.elsewhere(self.device)]

    def asks(self, claim: Claim, part: Hypothesis) -> bool:
        """Whether the first screen asks for this part of a claim: it is that of a question; or, where nobody can
        measure that one here, the first beside it, which then leads the answer."""
        return (claim.id, part.part) in self._asked

    @cached_property
    def _asked(self) -> set[tuple[str, str | None]]:
        """(claim, part) of these; None: the claim has one without a label."""
        parts = [(claim.id, part) for claim in self.claims for part in claim.hypothesis]
        here = {
            (claim, part.part)
            for claim, part in parts
            if not (isinstance(part, UnmeasurableHypothesis) or part.elsewhere(self.device))
        }
        asked = set()
        for question in self.dispute.question:
            forms = [(question.claim, part) for part in question.parts]
            asked |= {*[form for form in forms if form in here][:1]}
        return asked

    def profiled_headlines(self) -> list[tuple[str, str]]:
        """(workload, variant) of what the first questions of the first HEADLINES claims compare that are asked about,
        on two workloads each: those of the cards, where there are any."""
        parts = {(claim.id, part.part): part for claim in self.claims for part in claim.hypothesis}
        first: dict[str, Hypothesis] = {}
        for question in [each for each in self.dispute.question if each.card] or self.dispute.question:
            if part := parts.get((question.claim, question.part)):
                first.setdefault(question.claim, part)
        sides: list[tuple[str, str]] = []
        for part in [*first.values()][:HEADLINES]:
            compared = [target.comparison for target in part.targets() if not part.elsewhere(self.device)]
            for workload in list(dict.fromkeys(each.workload for each in compared))[:2]:
                sides += [
                    (workload, name) for pair in compared if pair.workload == workload for name in sorted(pair.sides)
                ]
        return list(dict.fromkeys(sides))

    def comparisons(self) -> list[Comparison]:
        """Every different timed effect of the report."""
        return list(dict.fromkeys(target.comparison for each in self.experiments for target in each.targets))

    def calls(self) -> dict[str, Call]:
        """Workload → what any functions are called with there."""
        asked = [each for each in self.experiments if each.workload.kind == "call"]
        return {each.workload.name: self.functions.call(each.workload.name, each.baseline) for each in asked}

    def restricted(self, selected: Collection[tuple[str, str]]) -> Plan:
        """For only these (workload, variant) pairs: effects that miss a side fall away, claims stay."""
        experiments = []
        for whole in self.experiments:
            left = without(whole, [name for name in whole.variants if (whole.workload.name, name) not in selected])
            if left.targets or (left.variants and not whole.targets):
                experiments.append(left)
        return replace(self, experiments=tuple(experiments))


Rename = Callable[[Workload], Workload]


def make_plan(
    request: Request,
    claims: Sequence[Claim],
    *,
    checkpoint: Geometry | None = None,
    on_paper: bool = False,
    dispute: Dispute | None = None,
) -> Plan:
    """Plan the measurements for a request. on_paper: environments that claims name are neither made nor looked at.
    dispute: what is asked about the claims.

    `checkpoint` is the shape of a real model that stands in for every shipped geometry; workloads are then renamed
    after it and repeated ones fall together.

    Raises:
        PlanError, DataError, ClaimError, variants.UnknownVariant: a name is unknown (with the nearest), a claim asks
            for what nobody can find out, or nothing is left to measure.
    """
    asked_for = [] if request.compare else select(claims, request.claims or None)
    request, functions = functions_of(variants_in(request), asked_for, on_paper=on_paper)
    added = added_sources(request.added)
    known = [*variants.names(), *added, *functions.sources]
    for name in (*request.variants, *(request.compare or ())):
        check_variant(name, known)

    own = {**own_workloads(request), **functions.workloads}

    def workload_of(name: str) -> Workload:
        return own[name] if name in own else workload_data.get(name)

    for name in request.workloads:
        workload_of(name)
    rename, shapes = renaming(checkpoint)
    chosen, pairs, names = _chosen(request, claims, added, tuple(own))
    chosen = tuple(_renamed(claim, lambda name: rename(workload_of(name)).name) for claim in chosen)
    chosen = tuple(_tested_here(claim) for claim in chosen)
    for claim in chosen:
        for name in claim.names():
            check_variant(name, known, f"claim {claim.id}: ")
        for fault in filter(None, (hypothesis.fault() for hypothesis in claim.hypothesis)):
            raise PlanError(f"claim {claim.id}: {fault}")
    workloads = {workload.name: workload for workload in (rename(workload_of(name)) for name in names)}
    if request.threads is not None:
        workloads = {name: each.model_copy(update={"threads": request.threads}) for name, each in workloads.items()}
    mode = "compare" if request.compare is not None else "claims"
    if request.fail_if and request.compare is None:
        raise PlanError(f"--fail-if {request.fail_if[0]}: only with --compare A B")
    conditions = tuple(dict.fromkeys(request.fail_if))
    plan = Plan(mode, chosen, pairs, (), added, request.device, conditions, functions, dispute or Dispute())
    settle_pairs = not (plan.conditions and request.only_conditions)
    return replace(plan, experiments=experiments_of(plan, workloads, shapes, settle_pairs=settle_pairs))


def experiments_of(
    plan: Plan, workloads: Mapping[str, Workload], shapes: Mapping[str, Geometry], *, settle_pairs: bool = True
) -> tuple[Experiment, ...]:
    """What a plan's claims and pairs need, on these workloads; `shapes`: by name of geometry.
    `settle_pairs`: whether pairs without a claim must be settled themselves, or only the conditions on them.

    Raises PlanError where nothing is left to measure, or a claim asks for what nobody can find out.
    """
    here = [(claim, part) for claim in plan.claims for part in claim.hypothesis if not part.elsewhere(plan.device)]
    _check_sides(here, workloads, plan)
    targets = _targets(here, workloads, plan, settle_pairs)
    looked_at: dict[str, list[str]] = {name: [] for name in workloads}
    for where, variant in (pair for _, part in here for pair in part.subjects()):
        looked_at.setdefault(where, []).append(variant)
    contrasts = {name: part.contrasts() for _, part in here if part.contrasts() for name in part.workload_names()}
    asked = {name for claim, part in here if plan.asks(claim, part) for name in part.workload_names()}
    experiments = tuple(
        _experiment(
            workload, targets[name], looked_at[name], contrasts.get(name, ()), name in asked, shapes, plan.functions
        )
        for name, workload in workloads.items()
        if targets[name] or name in contrasts or looked_at[name]
    )
    if not experiments and not any(claim.hypothesis for claim in plan.claims):
        raise PlanError("nothing to measure: no selected claim has a comparison on the selected workloads and variants")
    return experiments


def _chosen(
    request: Request, claims: Sequence[Claim], added: Mapping[str, Source], own: tuple[str, ...]
) -> tuple[tuple[Claim, ...], tuple[tuple[str, str], ...], Sequence[str]]:
    """The claims, the pairs (baseline, variant) without a claim, and the names of the workloads. own: workloads that
    the user brings."""
    if request.compare is not None:
        compared = f"--compare {' '.join(request.compare)}"
        if len({*request.compare}) < len(request.compare):
            raise PlanError(f"{compared}: both sides are the same; an A/A check runs automatically")
        for name in request.compare:
            if name not in added and (what := variants.missing(name)):
                raise PlanError(f"{compared}: {name} cannot be built here: {what}")
        baseline = request.compare[0] if request.against in ("", BEST) else request.against
        if baseline not in request.compare:
            raise PlanError(f"{AGAINST} {baseline}: expected {BEST} or a side: {', '.join(request.compare)}")
        pairs = tuple((baseline, name) for name in request.compare if name != baseline)
        return (), pairs, request.workloads or own or COMPARE_WORKLOADS
    if request.against:
        raise PlanError(f"{AGAINST} {request.against}: only with --compare A B")
    chosen = selected(request, claims)
    here = [part for claim in chosen if (part := claim.on(request.device))]
    names = dict.fromkeys(name for claim in here for name in claim.workloads())
    return chosen, ad_hoc_pairs(request, here, tuple(added)), request.workloads or tuple(names)


def _targets(
    parts: Sequence[tuple[Claim, Hypothesis]], workloads: Mapping[str, Workload], plan: Plan, settle_pairs: bool
) -> dict[str, list[Target]]:
    """By workload, what must be settled; `settle_pairs`: whether it is also asked which side of a pair without a claim
    is faster."""
    targets: dict[str, list[Target]] = {name: [] for name in workloads}
    for number, (claim, hypothesis) in enumerate(parts):
        for target in hypothesis.targets():
            comparison = target.comparison
            if comparison.metric != "time" and workloads[comparison.workload].kind != "generate":
                needs = f"needs a workload that generates, and {comparison.workload} does not"
                raise PlanError(f'claim {claim.id}: metric = "{comparison.metric}" {needs}')
            target = replace(target, part=f"{number} {claim.id}", headline=claim.headline)
            if plan.asks(claim, hypothesis):
                decodes = workloads[comparison.workload].kind == "decode"
                precision = DECODE_PRECISION if decodes else QUESTION_PRECISION
                target = replace(target, question=True, precision=precision)
            targets[comparison.workload].append(target)
    engines = {name for name in variants.names() if variants.get(name).engine is not None}
    sized = any(workload.size for workload in workloads.values())
    # As `judge.parts` does it.
    together = 1 if plan.claims else held_together(len(plan.ad_hoc), len(workloads), sized=sized)
    for baseline, variant in plan.ad_hoc:
        evidence = "context" if {baseline, variant} & engines else "operations"
        for name, workload in workloads.items():
            if plan.mode == "compare" or workload.has_model:
                comparison = Comparison(name, variant, baseline)
                if settle_pairs:
                    part = f"{variant} against {baseline}"
                    targets[name].append(Target(comparison, ANSWERS, evidence, part=part, at_once=together))
                for condition in plan.conditions:
                    part = f"{condition}: {variant} against {baseline}"
                    at_once = condition.at_once(len(plan.ad_hoc) * len(workloads))
                    targets[name].append(Target(comparison, (condition.region,), evidence, part=part, at_once=at_once))
    return targets


def _check_sides(parts: Sequence[tuple[Claim, Hypothesis]], workloads: Mapping[str, Workload], plan: Plan) -> None:
    """Raises PlanError where what cannot be compared is, by a claim or without one, or where a claim calls it evidence
    of what it is not."""
    functions, added = plan.functions, plan.added
    for pair in plan.ad_hoc:
        for workload in workloads.values():
            fault = functions.fault(workload, pair, "operations")
            if fault and (plan.mode == "compare" or workload.has_model):
                raise PlanError(f"{' and '.join(pair)}: {fault}")
    for claim, hypothesis in parts:
        where = f"claim {claim.id}: "
        for target in hypothesis.targets():
            sides, workload = target.comparison.sides, workloads[target.comparison.workload]
            if fault := functions.fault(workload, sorted(sides), target.evidence):
                raise PlanError(f"{where}{fault}")
            for name in sides - functions.sources.keys():
                check_evidence(name, target.evidence, where, added)


def _tested_here(claim: Claim) -> Claim:
    """The claim; a part of which no side can be built here says what to install instead."""

    def part_here(part: Hypothesis) -> Hypothesis:
        names = {name for pair in part.comparisons() for name in pair.sides}
        missing = {name: why for name in sorted(names) if (why := variants.missing(name))}
        if not names or len(missing) < len(names):
            return part
        reason = f"not tested here: {' and '.join(missing)}: {next(iter(missing.values()))}"
        return UnmeasurableHypothesis(metric="none", part=part.part, who=part.who, reason=reason)

    return claim.model_copy(update={"hypothesis": tuple(map(part_here, claim.hypothesis))})


def renaming(checkpoint: Geometry | None) -> tuple[Rename, Mapping[str, Geometry]]:
    """How workloads are renamed for a real checkpoint, and the shapes by name."""
    if checkpoint is None:
        return (lambda workload: workload), geometries()

    def rename(workload: Workload) -> Workload:
        if not workload.has_model:
            return workload
        moved = workload_data.on_geometry(workload, checkpoint)
        return moved.model_copy(update={"name": workload.name.replace(workload.geometry, checkpoint.name, 1)})

    return rename, {**geometries(), checkpoint.name: checkpoint}


def _renamed(claim: Claim, rename: Callable[[str], str]) -> Claim:
    def moved(hypothesis: Hypothesis) -> Hypothesis:
        names = tuple(dict.fromkeys(map(rename, hypothesis.workload_names())))
        return hypothesis.model_copy(update={"workloads": names}) if names else hypothesis

    return claim.model_copy(update={"hypothesis": tuple(moved(h) for h in claim.hypothesis)})


def _experiment(
    workload: Workload,
    targets: Sequence[Target],
    looked_at: Sequence[str],
    contrasts: tuple[Contrast, ...],
    is_asked: bool,
    shapes: Mapping[str, Geometry],
    functions: Functions,
) -> Experiment:
    names = tuple(dict.fromkeys(name for t in targets for name in (t.comparison.baseline, t.comparison.variant)))
    grid = contrasts[0].cells if contrasts else ()
    names = tuple(dict.fromkeys((*names, *looked_at, *grid)))
    if not targets and not grid:  # nothing is timed against anything
        return Experiment(workload, names, names[0], (), ())
    common = Counter(target.comparison.baseline for target in targets).most_common(1)
    baseline = common[0][0] if common else grid[0]
    # Where a side is alone each round has fresh processes, so that nothing of it can stay for a control to find.
    controls: list[str] = [] if functions.alone & {*names} else [EnteredName.of_control(baseline, AA)]
    if workload.has_model:
        tokens = max(workload.tokens + (workload.new_tokens or 0), workload.context)  # decode fills its context first
        parameters = parameter_count(shapes[workload.geometry].config)
        cost = parameters * tokens * workload.batch
        other = next((name for name in (variants.USUAL_COPY, *names) if name in names and name != baseline), None)
        if cost <= COPY_LIMIT and parameters <= COPY_PARAMETERS and other is not None:
            controls.append(EnteredName.of_control(other, COPY))
        if REFERENCE_BENCHMARK not in names:
            controls.append(REFERENCE_BENCHMARK)
    elif workload.kind == "call" and controls and FUNCTION_REFERENCE in functions.sources and not workload.statistic:
        controls.append(FUNCTION_REFERENCE)
    grid_is_asked = is_asked and bool(contrasts)
    return Experiment(workload, names, baseline, tuple(controls), tuple(targets), contrasts, grid_is_asked)


# The code that a plan measures, and the code that measures it: digests by which a run that goes on is still one.


MEASURING = tuple(ROOT / "harness" / name for name in ("worker", "examiner", "measure", "spec", "calls"))
"""What the measuring processes run, and what decides what they are told."""


def sources_of(plan: Plan) -> Sources | None:
    """Digests of the source of all variants and functions of a plan, and of what functions are called with and checked
    by. None where sides have environments of their own: what is installed there is not read.

    Raises OutsideVariantError where a file cannot be read.
    """
    if plan.functions.environments:
        return None
    names = sorted({name for experiment in plan.experiments for name in experiment.variants})
    controls = {name for each in plan.experiments for name in each.controls if not EnteredName(name).is_control}
    names += [name for name in sorted(controls) if name not in names]
    given = {**plan.added, **plan.functions.sources}
    variants = {
        name: _source(given[name]) if name in given else SourceRecord(digest=digests.digest(name)) for name in names
    }
    commands = _commands(plan.functions.commands)
    calls = {
        name: CallSources(payload=_source(payload), check=None if check is None else _source(check), commands=commands)
        for name, (payload, check) in plan.functions.made_by.items()
        if name in plan.calls()
    }
    return Sources(variants=variants, calls=calls, harness=digests.digest_of_folders(MEASURING))


def _commands(settings: CommandSettings) -> CommandsRecord | None:
    """How commands were run, without folders; None where nothing was said of it."""
    if settings == AS_THEY_ARE:
        return None
    record, file = {**asdict(settings)}, Path(settings.input)
    if settings.input:
        record |= {"input": file.name, "input_digest": hashlib.sha256(file.read_bytes()).hexdigest()}
    return CommandsRecord.model_validate(record)


def _source(given: Source) -> SourceRecord:
    """What run.json says of code that the user brought: no folders, for runs are published."""
    if given in (WORK, NOTHING, A_PYTHON):
        return SourceRecord(digest=digest_of(given))
    file = Path(given.where).name if given.is_file else None
    return SourceRecord(digest=digest_of(given), file=file, given=given.again, commit=given.commit or None)
