"""From what was asked to what is compared: the claims that were chosen, and pairs of variants without a claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from llama_workbench import variants
from llama_workbench.datasets.workloads import Workload, workloads

from ..calls.revisions import parse_at
from ..calls.source import Source
from ..claims.model import Claim
from ..claims.reading import select
from ..spec.hypotheses import Hypothesis
from ..spec.regions import Condition
from .options import ADD, PlanError, Request


def own_workloads(request: Request) -> dict[str, Workload]:
    """The workloads of the user's file, by name. Raises DataError for a mistake in it, and PlanError."""
    if request.workloads_file is None:
        return {}
    own = workloads(request.workloads_file)
    if taken := sorted(own.keys() & workloads()):
        problem = f"a workload {taken[0]!r} ships already; give yours another name"
        raise PlanError(f"--workloads-file {request.workloads_file}: {problem}")
    return own


def added_sources(given: Iterable[str | Source]) -> dict[str, Source]:
    """Name → where a variant from outside is. Nothing is imported. Raises PlanError, SourceError."""
    added: dict[str, Source] = {}
    for variant in given:
        source = variant if isinstance(variant, Source) else parse_at(variant, option=ADD)
        if source.name in added or source.name in variants.names():
            problem = (
                f"{ADD} {variant if isinstance(variant, str) else source.shown}: "
                f"a variant {source.name!r} exists already"
            )
            raise PlanError(f"{problem}; give it another name, NAME=FILE:FUNCTION")
        added[source.name] = source
    return added


def check_variant(name: str, known: Sequence[str], where: str = "") -> None:
    if name not in known:
        raise PlanError(f"{where}{variants.unknown(name, known)}")


def conditions(request: Request) -> tuple[Condition, ...]:
    """What `--fail-if` asks for, each once. Raises PlanError where there is no comparison."""
    if request.fail_if and request.compare is None:
        raise PlanError(f"--fail-if {request.fail_if[0]}: only with --compare A B")
    return tuple(dict.fromkeys(request.fail_if))


def check_evidence(name: str, evidence: str, where: str, added: Container[str]) -> None:
    """An engine differs from a model of ours in everything at once: what it shows is never due to one choice.

    What torch.compile runs shows in no op trace, so that it cannot be evidence on architecture.
    """
    if name in added:
        return
    variant = variants.get(name)
    why, allowed = "", '"context"'
    if variant.engine is not None and evidence != "context":
        why = "another engine"
    elif variant.compiled and evidence == "architecture":
        why, allowed = "compiled, and what it runs shows in no op trace", '"operations" or "context"'
    if why:
        only = f"only a hypothesis with evidence = {allowed} may compare it"
        raise PlanError(f'{where}evidence = "{evidence}", but {name} is {why}: {only}')


def selected(request: Request, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """The claims asked for, each cut down to the workloads and variants asked for.

    A claim that is named has all its parts on all their workloads; of the others only what is quick is taken, unless
    everything is asked for. Workloads that are named count as asked for; a part of a layer from the user's own file
    only for claims that list it. Where workloads are named and some part of a named claim lists one of them, only such
    parts are asked; else the claim is tried on all of them.
    """
    parts_of_layers = {name for name, workload in own_workloads(request).items() if workload.component}

    def of(hypothesis: Hypothesis) -> tuple[str, ...]:
        listed = hypothesis.workload_names()
        return tuple(name for name in request.workloads if name not in parts_of_layers or name in listed)

    def parts_of(claim: Claim, anywhere: bool) -> tuple[Hypothesis, ...]:
        return tuple(
            part
            for hypothesis in claim.hypothesis
            if bool(of(hypothesis)) == bool(request.workloads)
            if (measured := _asked_for(hypothesis, request))
            if (part := measured.selected(request.variants, of(hypothesis), anywhere=anywhere))
        )

    chosen = []
    for claim in select(claims, request.claims or None):
        if parts := parts_of(claim, False) or (parts_of(claim, True) if request.claims else ()):
            chosen.append(claim.model_copy(update={"hypothesis": parts}))
    return tuple(chosen)


def _asked_for(hypothesis: Hypothesis, request: Request) -> Hypothesis | None:
    if request.everything or request.claims or (hypothesis.quick and request.workloads):
        return hypothesis.as_a_whole()
    return hypothesis.in_quick_set()


def ad_hoc_pairs(request: Request, chosen: Sequence[Claim], added: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Variants asked for that no remaining claim compares, each against the first asked for, or the usual baseline."""
    in_claims = {name for claim in chosen for name in claim.names()}
    loose = [name for name in dict.fromkeys((*request.variants, *added)) if name not in in_claims]
    if not loose:
        return ()
    common = Counter(pair.baseline for claim in chosen for pair in claim.comparisons()).most_common(1)
    baseline = request.variants[0] if request.variants else common[0][0] if common else variants.USUAL_BASELINE
    return tuple((baseline, name) for name in loose if name != baseline)
