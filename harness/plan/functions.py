"""Any functions that a request or a claim compares: where each is, and what they are called with."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from llama_workbench import ROOT, variants
from llama_workbench.datasets.workloads import Workload, workloads

from ..calls.called import WORK, Call
from ..calls.command import AS_THEY_ARE, CONCLUDE, IGNORE, IMPORT, INPUT, PREFIX, PREPARE, CommandSettings
from ..calls.digest import packages_of
from ..calls.environments import PythonEnvironment, check_begins, environments_at, facts_of, with_own
from ..calls.revisions import parse_at
from ..calls.source import Source, is_command, named_apart
from ..claims.model import Claim, NamedCall
from ..claims.reading import select
from ..machine.places import published
from ..spec.hypotheses import Hypothesis
from ..store.schema import SideEnvironment
from .options import ADD, CALL, CALM, CHECK, COMPARE, ENV, SIZES, STATISTIC, PlanError, Request

# From what was asked to what is compared: the claims that were chosen, and pairs of variants without a claim.


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

    def whole(hypothesis: Hypothesis) -> bool:
        return request.everything or bool(request.claims) or bool(hypothesis.quick and request.workloads)

    def parts_of(claim: Claim, anywhere: bool) -> tuple[Hypothesis, ...]:
        return tuple(
            part
            for hypothesis in claim.hypothesis
            if bool(of(hypothesis)) == bool(request.workloads)
            if (measured := hypothesis.as_a_whole() if whole(hypothesis) else hypothesis.in_quick_set())
            if (part := measured.selected(request.variants, of(hypothesis), anywhere=anywhere))
        )

    chosen = []
    for claim in select(claims, request.claims or None):
        if parts := parts_of(claim, False) or (parts_of(claim, True) if request.claims else ()):
            chosen.append(claim.model_copy(update={"hypothesis": parts}))
    return tuple(chosen)


def ad_hoc_pairs(request: Request, chosen: Sequence[Claim], added: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Variants asked for that no remaining claim compares, each against the first asked for, or the usual baseline."""
    in_claims = {name for claim in chosen for name in claim.names()}
    loose = [name for name in dict.fromkeys((*request.variants, *added)) if name not in in_claims]
    if not loose:
        return ()
    common = Counter(pair.baseline for claim in chosen for pair in claim.comparisons()).most_common(1)
    baseline = request.variants[0] if request.variants else common[0][0] if common else variants.USUAL_BASELINE
    return tuple((baseline, name) for name in loose if name != baseline)


@dataclass(frozen=True)
class Functions:
    """sources: name → where the function is. workloads: name → what functions are called with. made_by: name of such a
    workload → the sources of its payload and of the user's check. environments: name → the environment that the
    function runs in, where one is named. commands: how those of them are run that are commands."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    made_by: Mapping[str, tuple[Source, Source | None]] = field(default_factory=dict)
    environments: Mapping[str, PythonEnvironment] = field(default_factory=dict)
    commands: CommandSettings = AS_THEY_ARE

    @cached_property
    def environment_facts(self) -> dict[str, SideEnvironment]:
        """What a run says of them, and of what sides have of their own: see `facts_of`. What the compared functions
        import comes first."""
        facts = facts_of(self.environments, packages_of(self.sources.values()) if self.environments else ())
        for name, source in self.sources.items():
            if source.variables or source.options:
                variables = {key: published(value) for key, value in source.variables.items()}
                facts[name] = {**facts.get(name, {}), "variables": variables, "options": published(source.options)}
        return {name: SideEnvironment.model_validate(side) for name, side in facts.items()}

    @cached_property
    def alone(self) -> frozenset[str]:
        """The sides that have a process of their own."""
        return frozenset(name for name, source in self.sources.items() if source.is_alone)

    def call(self, workload: str, baseline: str) -> Call:
        """What a measuring process must know of a workload."""
        payload, check = self.made_by[workload]
        return Call(self.sources[baseline], payload, check, self.commands)

    def fault(self, workload: Workload, sides: Iterable[str], evidence: str) -> str:
        """Why these sides cannot be compared on this workload, in words; empty where they can."""
        odd = [name for name in sides if (name in self.sources) != (workload.kind == "call")]
        if odd and workload.kind == "call":
            return f"{workload.name} is for functions, and {odd[0]} is a model: compare it on a workload of models"
        if odd:
            return f"{odd[0]} is a function, and {workload.name} is for models: give it an input generator"
        if workload.kind == "call" and evidence == "architecture":
            return 'evidence = "architecture", but functions have no trace of operations: use "operations" or "context"'
        return ""


def functions_of(request: Request, claims: Sequence[Claim], *, on_paper: bool = False) -> tuple[Request, Functions]:
    """All functions, and the request with the names of those that it compares. Nothing is imported. on_paper: no
    environment that a claim names is made or looked at.

    Raises PlanError and SourceError.
    """
    taken = [*variants.names(), WORK.name]
    sources: list[Source] = []
    made_by: dict[str, tuple[Source, Source | None]] = {}
    workloads: dict[str, Workload] = {}
    environments: dict[str, PythonEnvironment] = {}
    elsewhere = bool(request.environments)
    commands = [side for side in request.compare or () if _is_command(side)]
    settings = _settings(request, any(not _is_command(side, (IMPORT,)) for side in commands))
    if request.own_environment and not (request.calls or commands):
        raise PlanError(f"{request.own_environment}: only with {CALL}: models run in this environment")
    if request.sizes and len(request.calls) != 1:
        raise PlanError(f"{SIZES}: only with {CALL} FILE:FUNCTION, and one alone: it is called with a seed and a size")
    if request.calls or (commands and len(commands) == len(request.compare or ())):
        if request.compare is None:
            raise PlanError(f"{CALL} {request.calls[0]}: only with --compare A B")
        parsed = [_parsed(_beside(side, request.calls), COMPARE, elsewhere) for side in request.compare]
        _check_imports(parsed, request)
        sides = _placed(with_own(named_apart(parsed, taken), request.of_sides), request.environments)
        environments = _environments(sides)
        for side in sides:
            check_begins(side)
        sources += sides
        request = replace(request, compare=tuple(side.name for side in sides))
        check = request.check and _parsed(request.check, CHECK, elsewhere)
        payloads = [_parsed(text, CALL, elsewhere) for text in request.calls] or [
            A_PYTHON if any(side.module for side in sides) else NOTHING
        ]
        for payload, size in itertools.product(named_apart(payloads), request.sizes or [0]):
            slug = re.sub(r"[^a-z0-9.]+", "-", payload.name.lower()).strip("-.") or "call"
            name = "-".join(filter(None, (slug, request.statistic, str(size or ""))))
            made_by[name] = (replace(payload, size=size), check or None)
            workloads[name] = _workload(name, *made_by[name], request)
    elif request.statistic is not None:
        raise PlanError(f"{STATISTIC} {request.statistic}: only with {CALL} FILE:FUNCTION: models have no percentiles")
    elif request.calm:
        raise PlanError(f"{CALM}: only with {CALL} FILE:FUNCTION: models always run so")
    elif request.check is not None:
        raise PlanError(f"{CHECK} {request.check}: only with {CALL} FILE:FUNCTION")
    for claim in claims:
        of_claim = _of_claim(claim, made_by, workloads)
        if not on_paper:
            environments |= _environments(of_claim)
            for side in of_claim:
                check_begins(side)
        sources += of_claim
    functions = Functions(_by_name(sources, taken), workloads, made_by, environments, settings)
    if made_by and not functions.alone and request.device == "cpu":
        functions = replace(functions, sources={**functions.sources, WORK.name: WORK})
    return request, functions


def _of_claim(
    claim: Claim, made_by: dict[str, tuple[Source, Source | None]], workloads: dict[str, Workload]
) -> list[Source]:
    """The functions that a claim names, each with the place of its environment; what they are called with goes into
    `made_by` and `workloads`. Raises PlanError and SourceError."""
    folder, sources = claim.folder or Path.cwd(), []
    for function in claim.function:
        option = f"claim {claim.id}: function {function.name}: source ="
        source = parse_at(function.source, option=option, folder=folder, elsewhere=bool(function.environment))
        source = replace(source, name=function.name, environment=function.environment or "")
        sources.append(replace(source, variables=function.variables))
    for call, size in [(each, size) for each in claim.call for size in each.sizes or [0]]:
        name = f"{call.name}-{size}" if size else call.name
        option = f"claim {claim.id}: call {call.name}:"
        payload = replace(parse_at(call.payload, option=f"{option} payload =", folder=folder), size=size)
        checked = call.check and parse_at(call.check, option=f"{option} check =", folder=folder)
        if made_by.setdefault(name, (payload, checked or None)) != (payload, checked or None):
            raise PlanError(f"claim {claim.id}: another claim has a call {name!r} of its own: rename one")
        workloads[name] = _workload(name, payload, checked or None, call)
    return sources


NOTHING = Source("run", str(ROOT / "harness" / "calls" / "command.py"), "nothing")
"""What makes no arguments: two commands need none."""


def _is_command(side: str | Source, begins: tuple[str, ...] = (PREFIX, IMPORT)) -> bool:
    return is_command(side.given if isinstance(side, Source) else side, begins)


A_PYTHON = Source("import", str(ROOT / "harness" / "calls" / "command.py"), "fresh")
"""What makes the argument of an import."""


def _settings(request: Request, has_commands: bool) -> CommandSettings:
    """How commands are run. Raises PlanError where nothing is a command, or what is named is not there."""
    more = {PREPARE: request.prepare, CONCLUDE: request.conclude}
    given = {IGNORE: request.ignore_failure, INPUT: request.input, **more}
    if not has_commands and (lone := [option for option, value in given.items() if value]):
        raise PlanError(f"{lone[0]}: only with a command: {COMPARE} {PREFIX}COMMAND {PREFIX}COMMAND")
    for option, command in more.items():
        try:
            program = next(iter(shlex.split(command)), "")
        except ValueError as error:
            raise PlanError(f"{option} {command!r}: {error}") from None
        if program and shutil.which(program) is None:
            raise PlanError(f"{option} {command!r}: there is no program {program!r} on the PATH")
    file = request.input and request.input.expanduser().resolve()
    if file and not file.is_file():
        raise PlanError(f"{INPUT} {request.input}: there is no such file")
    return CommandSettings(request.ignore_failure, request.prepare, request.conclude, str(file or ""))


def _beside(side: str | Source, calls: Sequence[str | Source]) -> str | Source:
    """A side as it was given; a bare name is a function of the file, or module, of the input generator."""
    if isinstance(side, str) and side.isidentifier() and calls and isinstance(calls[0], str):
        return f"{calls[0].rpartition(':')[0].rpartition('=')[2]}:{side}"
    return side


def _parsed(what: str | Source, option: str, elsewhere: bool = False) -> Source:
    return what if isinstance(what, Source) else parse_at(what, option=option, elsewhere=elsewhere)


def _check_imports(sides: Sequence[Source], request: Request) -> None:
    """Raises PlanError where an import is compared with something else, or a command has no use for an option."""
    imports = [side for side in sides if side.module]
    if request.environments and (other := next((side for side in sides if side.command and not side.module), None)):
        asked = request.own_environment
        raise PlanError(f"{asked}: a command finds its own environment: name its program there in {other.shown!r}")
    if imports and (len(imports) < len(sides) or request.calls):
        left = f"leave out {CALL}" if request.calls else "compare it with another import"
        whole = f"""{PREFIX}'python -c "import {imports[0].module}"' is a whole process, from exec to exit"""
        raise PlanError(f"{imports[0].shown}: only the import is timed, and nothing is called: {left}; {whole}")


def _placed(sides: Sequence[Source], environments: Sequence[tuple[str, str]]) -> list[Source]:
    """The sides, each with the place of its environment as the user named it. Raises PlanError."""
    names = [side.name for side in sides]
    for name, place in environments:
        if name and name not in names:
            problem = f"neither is called {name!r}; the names are {' and '.join(names)}"
            raise PlanError(f"{ENV} {name}={place}: {problem} ({sides[0].renamed} gives one a name)")
    return [
        replace(
            side, environment=next((place for name, place in reversed(environments) if name in ("", side.name)), "")
        )
        for side in sides
    ]


def _environments(sides: list[Source]) -> dict[str, PythonEnvironment]:
    """Name → environment, of the sides that have one; the place in the sides becomes its interpreter."""
    environments = environments_at(side.environment for side in sides if side.environment)
    of = {side.name: environments[side.environment] for side in sides if side.environment}
    sides[:] = [replace(side, environment=of[side.name].python) if side.name in of else side for side in sides]
    return of


def _by_name(sources: Sequence[Source], taken: Sequence[str]) -> dict[str, Source]:
    by_name: dict[str, Source] = {}
    for source in sources:
        if source.name in taken:
            raise PlanError(f"{source.shown}: a variant {source.name!r} exists already; give it another name")
        if by_name.setdefault(source.name, source) != source:
            raise PlanError(f"{source.shown}: another function is called {source.name!r} already; rename one")
    return by_name


def _workload(name: str, payload: Source, check: Source | None, asked: Request | NamedCall) -> Workload:
    return Workload(
        name=name,
        kind="call",
        geometry="",
        tokens=1,
        threads=asked.threads or 1,
        payload=payload.shown,
        size=payload.size or None,
        check=check.shown if check else None,
        statistic=asked.statistic,
        calm=asked.calm,
        description=getattr(asked, "description", "") or f"called with inputs from {payload.shown}",
    )


def variants_in(request: Request) -> Request:
    """The request where a side of `--compare` may be FILE:FUNCTION: as with `--add-variant`.

    Raises PlanError where that function does not look like one that builds a model, and SourceError.
    """
    if request.compare is None or request.calls or any(map(_is_command, request.compare)):
        return request
    added = added_sources(request.added)
    parsed = {
        place: _parsed(side, COMPARE)
        for place, side in enumerate(request.compare)
        if not isinstance(side, str) or ":" in side  # else it is a name
    }
    for place, source in parsed.items():
        if not builds(source):
            problem = "is no build(config, weights, *, max_length); for any other function add an input generator"
            raise PlanError(f"{COMPARE} {request.compare[place]}: {source.function} {problem}: {CALL} FILE:FUNCTION")
    fresh = [source for source in dict.fromkeys(parsed.values()) if source not in added.values()]
    named = dict(zip(fresh, named_apart(fresh, [*variants.names(), *added]), strict=True))
    sides = [
        named.get(parsed[place], parsed[place]).name if place in parsed else side
        for place, side in enumerate(request.compare)
    ]
    return replace(request, added=(*added.values(), *named.values()), compare=tuple(sides))


def builds(source: Source) -> bool:
    """Whether a function may build a model, by its parameters. One that is not defined in a file that is known may."""
    if source.factory or source.file is None:
        return True
    for node in ast.parse(source.file.read_bytes(), source.file.name).body:
        if isinstance(node, ast.FunctionDef) and node.name == source.function:
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            return "max_length" in names or given.kwarg is not None
    return True
