"""The code that a plan measures, and the code that measures it: digests by which a run that goes on is still one."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from llama_workbench import ROOT
from llama_workbench.variants import digests

from ..calls.called import WORK
from ..calls.command import AS_THEY_ARE, CommandSettings
from ..calls.digest import digest_of
from ..calls.source import Source as Given
from ..spec.comparison import EnteredName
from ..store.gate_schema import CallSources, CommandsRecord, SourceRecord, Sources
from .experiments import Plan
from .functions import A_PYTHON, NOTHING

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
    names += [name for name in _controls(plan) if name not in names]
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


def _controls(plan: Plan) -> list[str]:
    """Controls that are no copy of another variant."""
    return sorted(
        {name for experiment in plan.experiments for name in experiment.controls if not EnteredName(name).is_control}
    )


def _commands(settings: CommandSettings) -> CommandsRecord | None:
    """How commands were run, without folders; None where nothing was said of it."""
    if settings == AS_THEY_ARE:
        return None
    record, file = {**asdict(settings)}, Path(settings.input)
    if settings.input:
        record |= {"input": file.name, "input_digest": hashlib.sha256(file.read_bytes()).hexdigest()}
    return CommandsRecord.model_validate(record)


def _source(given: Given) -> SourceRecord:
    """What run.json says of code that the user brought: no folders, for runs are published."""
    if given in (WORK, NOTHING, A_PYTHON):
        return SourceRecord(digest=digest_of(given))
    file = Path(given.where).name if given.is_file else None
    return SourceRecord(digest=digest_of(given), file=file, given=given.again, commit=given.commit or None)
