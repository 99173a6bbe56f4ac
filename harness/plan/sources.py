"""The code that a plan measures, and the code that measures it: digests by which a run that goes on is still one."""

from __future__ import annotations

from pathlib import Path

from llama_workbench import ROOT
from llama_workbench.variants import digests

from ..store.sitting_schema import Source, Sources
from .experiments import Plan

MEASURING = tuple(ROOT / "harness" / name for name in ("worker", "examiner", "measure", "spec"))
"""What the measuring processes run, and what decides what they are told."""


def sources_of(plan: Plan) -> Sources | None:
    """Digests of the source of all variants of a plan; None where it compares functions, whose packages may lie
    anywhere. Raises OutsideVariantError where a file cannot be read."""
    if plan.functions.sources:
        return None
    names = sorted({name for experiment in plan.experiments for name in experiment.variants})
    names += [name for name in _controls(plan) if name not in names]
    variants = {
        name: Source(digest=digests.digest(name, plan.added.get(name)), file=_file(plan, name)) for name in names
    }
    return Sources(variants=variants, harness=digests.digest_of_folders(MEASURING))


def _controls(plan: Plan) -> list[str]:
    """Controls that are no copy of another variant."""
    return sorted({name for experiment in plan.experiments for name in experiment.controls if "@" not in name})


def _file(plan: Plan, name: str) -> str | None:
    """The name of an added variant's file, without its folder: run folders are published."""
    return Path(plan.added[name].rpartition(":")[0]).name if name in plan.added else None
