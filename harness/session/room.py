"""Whether there is room for a large model, in memory and for its checkpoint on the disk, and for what a run caches."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from llama_workbench.cache import FIX, CacheError, unwritable
from llama_workbench.datasets import geometries
from llama_workbench.datasets.geometries import Geometry, parameter_count
from llama_workbench.datasets.synthetic_files import TYPES, WEIGHTS_SEED, synthetic_files
from llama_workbench.variants.memory_policy import expected
from llama_workbench.variants.presets import presets

from ..machine.environment import available_bytes
from ..metrics.registry import metric_of
from ..plan.experiments import Plan
from ..spec.entered import EnteredName
from ..spec.experiments import Experiment

LARGE_PARAMETERS = 1_000_000_000
"""Models with fewer are never left out."""

SPARE_SHARE = 0.5
"""Of the weights: for calls and the reference, and for what else the run holds."""


def left_out(models: Sequence[Experiment], real: Geometry | None, cache: Path) -> dict[str, str]:
    """Workload → why there is no room for its model, where there is none. real: the user's model, in place of all."""
    asked = (
        (one.workload.name, no_room(one, real or geometries.get(one.workload.geometry), None if real else cache))
        for one in models
    )
    return {name: reason for name, reason in asked if reason}


def no_room(experiment: Experiment, geometry: Geometry, cache: Path | None) -> str:
    """Why a model cannot be measured here, with what it needs and what is free; empty where it can.

    The weights lie in memory once: all processes map one file. `cache`: where the checkpoint is written if it is not
    there yet; None for one of the user's.
    """
    parameters = parameter_count(geometry.config)
    if parameters < LARGE_PARAMETERS:
        return ""
    dtype = experiment.workload.dtype
    weights = parameters * TYPES[dtype][1]
    copies = 0
    for name in experiment.entered():  # all of them are there at once, in a round
        variant = presets().get(EnteredName(name).original)
        policy = variant.memory if variant else None
        sizes = {"item_bytes": TYPES[dtype][1], "max_length": 1}
        copies += expected(policy, geometry.config, (), **sizes)["held"]["repacked"] if policy else weights
    needed, free = weights + copies + int(SPARE_SHARE * weights), available_bytes()
    if needed > free:
        return f"no room: {_gib(needed)} of memory are needed ({_gib(weights)} of weights), {_gib(free)} are free"
    if cache is None:
        return ""
    files = synthetic_files(geometry, seed=WEIGHTS_SEED, dtype=geometry.dtype, cache=cache)
    free = shutil.disk_usage(next(path for path in (cache, *cache.resolve().parents) if path.exists())).free
    if files.size_bytes > free and not files.are_there():
        return f"no room: {_gib(files.size_bytes)} of {cache} are needed for the checkpoint, {_gib(free)} are free"
    return ""


def cache_note(plan: Plan, cache: Path) -> str:
    """What to know of a cache that cannot be written; empty of one that can. `CacheError` where something that is asked
    for needs it; missing checkpoints need it too, and writing them says so."""
    if not (why := unwritable(cache)):
        return ""
    asked = {part.metric for part in plan.hypotheses() if metric_of(part.metric).needs_cache}
    if needs := " and ".join(f'metric = "{name}"' for name in sorted(asked)):
        raise CacheError(f"{cache}: cannot be written ({why}), and claims with {needs} need it; {FIX}")
    return f"cache: {cache} cannot be written ({why}): nothing is kept there, each process does the work again; {FIX}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
