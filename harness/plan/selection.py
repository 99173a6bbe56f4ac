"""From what was asked to what is measured: claims and selection → experiments, each a workload with its variants.

One experiment serves every claim that needs its workload. Controls ride along: the baseline entered twice (`@aa`), an
identical copy of another variant (`@copy`) where a call is cheap, and the frozen yardstick that saved runs are compared
by.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llama_workbench import variants
from llama_workbench.datasets import workloads as workload_data
from llama_workbench.datasets.geometries import Geometry, geometries, parameter_count
from llama_workbench.datasets.workloads import Workload

from ..claims.claims import Claim, Hypothesis, Reading, select
from ..spec.comparison import Comparison
from ..spec.experiments import Experiment, Target
from ..spec.regions import Region

YARDSTICK = "yardstick"
LOADED_INTO = "fast"
"""What stands for "a model" where a claim asks for the loading of weights."""

COMPARE_WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")
AD_HOC_PERCENT = 1.0
"""`--compare`: less than this either way counts as the same (as `judge` has it)."""

COPY_PARAMETERS, COPY_LIMIT = 150_000_000, 2_500_000_000
"""Parameters, and parameters times tokens of a call, up to which an identical-copy control rides along; beyond, its
time is better spent on rounds (the A/A control always rides)."""


class PlanError(ValueError):
    """The request cannot be planned; the text names the value and the fix."""


@dataclass(frozen=True)
class Request:
    """What the user asked for. Empty tuples mean "not said"."""

    claims: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    added: tuple[str, ...] = ()  # FILE:FUNCTION
    compare: tuple[str, str] | None = None  # baseline, variant
    everything: bool = False  # also the parts of claims that take long
    threads: int | None = None
    device: str = "cpu"  # or "cuda"


@dataclass(frozen=True)
class Plan:
    """`claims` are as they will be judged (selection applied); `ad_hoc` pairs are (baseline, variant) without a claim.

    `added` maps the names of outside variants to FILE:FUNCTION. `readings` are what other passes must find out. Parts
    of claims that are not for `device` are judged, not measured.
    """

    mode: str  # "claims" or "compare"
    claims: tuple[Claim, ...]
    ad_hoc: tuple[tuple[str, str], ...]
    experiments: tuple[Experiment, ...]
    added: Mapping[str, str]
    readings: tuple[Reading, ...] = ()
    device: str = "cpu"

    def subjects(self, metric: str) -> list[tuple[str, str]]:
        """(workload, variant) of the readings of one metric, each once: of "share", whose time is taken apart."""
        return _subjects(self.readings, metric)

    def comparisons(self) -> list[Comparison]:
        """Every different effect of the report; alpha is divided by their number."""
        return list(
            dict.fromkeys(target.comparison for experiment in self.experiments for target in experiment.targets)
        )


def make_plan(request: Request, claims: Sequence[Claim], *, checkpoint: Geometry | None = None) -> Plan:
    """Plan the measurements for a request.

    `checkpoint` is the shape of a real model that stands in for every shipped geometry; workloads are then renamed
    after it and repeated ones fall together.

    Raises:
        PlanError, DataError, ClaimError, variants.UnknownVariant: a name is unknown (with the nearest) or nothing is
            left to measure.
    """
    added = _added_names(request.added)
    known = [*variants.names(), *added]
    for name in (*request.variants, *(request.compare or ())):
        _check_variant(name, known)
    for name in request.workloads:
        workload_data.get(name)
    rename, shapes = _shapes(checkpoint)

    if request.compare is not None:
        baseline, variant = request.compare
        if baseline == variant:
            raise PlanError(f"--compare {baseline} {variant}: both sides are the same; the A/A control does that")
        chosen: tuple[Claim, ...] = ()
        pairs: tuple[tuple[str, str], ...] = ((baseline, variant),)
        names = request.workloads or COMPARE_WORKLOADS
    else:
        chosen = _selected(request, claims, known)
        here = _measured_on(request.device, chosen)
        pairs = _ad_hoc_pairs(request, here, tuple(added))
        names = request.workloads or tuple(dict.fromkeys(w for claim in here for w in claim.workloads()))
    if checkpoint is not None:
        chosen = tuple(_renamed(claim, rename) for claim in chosen)
    named = {rename(workload_data.get(name)).name: rename(workload_data.get(name)) for name in names}
    if request.threads is not None:
        named = {name: workload.model_copy(update={"threads": request.threads}) for name, workload in named.items()}

    targets: dict[str, list[Target]] = {name: [] for name in named}
    readings: list[Reading] = []
    for claim in chosen:
        for name in claim.names():
            _check_variant(name, known, f"claim {claim.id}: ")
    for claim in _measured_on(request.device, chosen):
        for hypothesis in claim.hypothesis:
            if isinstance(hypothesis, Hypothesis):
                region, evidence = hypothesis.region, hypothesis.evidence
            else:  # what is computed from an effect needs it known well, wherever it lies
                region, evidence = Region(-math.inf, math.inf), "operations"
            for comparison in hypothesis.comparisons():
                for name in (comparison.variant, comparison.baseline):
                    _check_evidence(name, evidence, f"claim {claim.id}: ", added)
                if comparison.metric != "time" and named[comparison.workload].kind != "generate":
                    raise PlanError(
                        f'claim {claim.id}: metric = "{comparison.metric}" needs a workload that generates, and '
                        f"{comparison.workload} does not"
                    )
                targets[comparison.workload].append(Target(comparison, region, evidence))
        readings += list(claim.readings())
    looked_at = [pair for metric in ("share", "memory", "loading", "roofline") for pair in _subjects(readings, metric)]
    grids = {workload for reading in readings if reading.metric == "attribution" for workload in reading.workloads}
    same = Region.same_within_percent(AD_HOC_PERCENT)
    engines = {name for name in known if name not in added and variants.get(name).engine is not None}
    for baseline, variant in pairs:
        for name, workload in named.items():
            if workload.kind == "component" and request.compare is None:
                continue
            kind = "context" if {baseline, variant} & engines else "operations"
            targets[name].append(Target(Comparison(name, variant, baseline), same, kind))

    experiments = tuple(
        _experiment(
            workload,
            targets[name],
            [variant for where, variant in looked_at if where == name],
            variants.grid_cells() if name in grids else (),
            shapes,
        )
        for name, workload in named.items()
        if targets[name] or name in grids or any(where == name for where, _ in looked_at)
    )
    if not experiments and not any(claim.hypothesis for claim in chosen):
        raise PlanError("nothing to measure: no selected claim has a comparison on the selected workloads and variants")
    mode = "compare" if request.compare is not None else "claims"
    return Plan(mode, chosen, pairs, experiments, added, tuple(readings), request.device)


def _subjects(readings: Sequence[Reading], metric: str) -> list[tuple[str, str]]:
    """(workload, variant) of the readings of one metric, each once."""
    found = (
        (workload, reading.variant or LOADED_INTO)
        for reading in readings
        if reading.metric == metric
        for workload in reading.workloads
    )
    return list(dict.fromkeys(found))


def _added_names(texts: Iterable[str]) -> dict[str, str]:
    """Name → FILE:FUNCTION with the path made absolute; the file is not imported here."""
    added: dict[str, str] = {}
    for text in texts:
        path, function = variants.outside.parse(text)
        if function in added or function in variants.names():
            raise PlanError(f"--add-variant {text}: a variant {function!r} exists already; rename the function")
        added[function] = f"{path.resolve()}:{function}"
    return added


def _check_variant(name: str, known: Sequence[str], where: str = "") -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`workbench variants` lists them"
        raise PlanError(f"{where}unknown variant {name!r}: {hint}")


def _check_evidence(name: str, evidence: str, where: str, added: Mapping[str, str]) -> None:
    """An engine differs from a model of ours in everything at once: what it shows is never due to one choice.

    What torch.compile runs shows in no op trace, so that it cannot be evidence on architecture.
    """
    if name in added:
        return
    variant = variants.get(name)
    if variant.engine is not None and evidence != "context":
        raise PlanError(
            f'{where}evidence = "{evidence}", but {name} is another engine: only a hypothesis with '
            'evidence = "context" may compare it'
        )
    if variant.compiled and evidence == "architecture":
        raise PlanError(
            f'{where}evidence = "architecture", but {name} is compiled, and what it runs shows in no op trace: only a '
            'hypothesis with evidence = "operations" or "context" may compare it'
        )


def _selected(request: Request, claims: Sequence[Claim], known: Sequence[str]) -> tuple[Claim, ...]:
    """The claims asked for, each cut down to the workloads and variants asked for.

    A claim that is named together with a workload it does not list is tried on that workload all the same. A claim that
    is named has all its parts; of the others only the quick ones are taken, unless everything is asked for.
    """
    chosen = []
    for claim in select(claims, request.claims or None):
        parts: list[Hypothesis | Reading] = []
        for hypothesis in claim.hypothesis:
            if not (hypothesis.quick or request.everything or request.claims):
                continue
            if isinstance(hypothesis, Reading):
                parts += _selected_reading(hypothesis, request)
                continue
            names = hypothesis.workloads
            if request.workloads:
                fitting = [name for name in request.workloads if name in names]
                if not fitting and request.claims and hypothesis.metric == "time":
                    component = workload_data.get(names[0]).component
                    fitting = [w for w in request.workloads if workload_data.get(w).component == component]
                names = tuple(fitting)
            baselines = hypothesis.baseline
            if request.variants:
                baselines = tuple(name for name in baselines if name in request.variants)
                if hypothesis.variant not in request.variants:
                    baselines = ()
            if names and baselines:
                parts.append(hypothesis.model_copy(update={"workloads": names, "baseline": baselines}))
        if parts:
            chosen.append(claim.model_copy(update={"hypothesis": tuple(parts)}))
    return tuple(chosen)


def _measured_on(device: str, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    return tuple(part for claim in claims if (part := claim.on(device)))


def _selected_reading(reading: Reading, request: Request) -> list[Reading]:
    """The reading cut down to the workloads and variants asked for: one, or none if nothing is left of it."""
    if request.variants and {reading.variant, reading.baseline} - {None, *request.variants}:
        return []
    if not request.workloads or not reading.workloads:
        return [] if request.workloads else [reading]
    names = tuple(name for name in reading.workloads if name in request.workloads)
    if len(names) < (2 if reading.metric == "trend" else 1):
        return []
    return [reading.model_copy(update={"workloads": names})]


def _ad_hoc_pairs(request: Request, chosen: Sequence[Claim], added: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Variants asked for that no remaining claim compares, each against the first asked for, or the usual baseline."""
    in_claims = {name for claim in chosen for name in claim.names()}
    loose = [name for name in dict.fromkeys((*request.variants, *added)) if name not in in_claims]
    if not loose:
        return ()
    common = Counter(pair.baseline for claim in chosen for pair in claim.comparisons()).most_common(1)
    baseline = request.variants[0] if request.variants else common[0][0] if common else "team006_before"
    return tuple((baseline, name) for name in loose if name != baseline)


def _shapes(checkpoint: Geometry | None):  # type: ignore[no-untyped-def]
    """How workloads are renamed for a real checkpoint, and the shapes by name."""
    if checkpoint is None:
        return (lambda workload: workload), geometries()

    def rename(workload: Workload) -> Workload:
        if workload.kind == "component":
            return workload
        moved = workload_data.on_geometry(workload, checkpoint)
        return moved.model_copy(update={"name": workload.name.replace(workload.geometry, checkpoint.name, 1)})

    return rename, {**geometries(), checkpoint.name: checkpoint}


def _renamed(claim: Claim, rename) -> Claim:  # type: ignore[no-untyped-def]
    def moved(hypothesis: Hypothesis | Reading) -> Hypothesis | Reading:
        names = tuple(dict.fromkeys(rename(workload_data.get(name)).name for name in hypothesis.workloads))
        return hypothesis.model_copy(update={"workloads": names})

    return claim.model_copy(update={"hypothesis": tuple(moved(h) for h in claim.hypothesis)})


def _experiment(
    workload: Workload,
    targets: Sequence[Target],
    looked_at: Sequence[str],
    grid: tuple[str, ...],
    shapes: Mapping[str, Geometry],
) -> Experiment:
    names = tuple(dict.fromkeys(name for t in targets for name in (t.comparison.baseline, t.comparison.variant)))
    names = tuple(dict.fromkeys((*names, *looked_at, *grid)))
    if not targets and not grid:  # nothing is timed against anything
        return Experiment(workload, names, names[0], (), ())
    common = Counter(target.comparison.baseline for target in targets).most_common(1)
    baseline = common[0][0] if common else grid[0]
    controls = [f"{baseline}@aa"]
    if workload.kind != "component":
        tokens = max(workload.tokens + (workload.new_tokens or 0), workload.context)  # decode fills its context first
        parameters = parameter_count(shapes[workload.geometry].config)
        cost = parameters * tokens * workload.batch
        other = next((name for name in ("team005_proposal", *names) if name in names and name != baseline), None)
        if cost <= COPY_LIMIT and parameters <= COPY_PARAMETERS and other is not None:
            controls.append(f"{other}@copy")
        if YARDSTICK not in names:
            controls.append(YARDSTICK)
    return Experiment(workload, names, baseline, tuple(controls), tuple(targets), grid)
