"""The verbs of a process that has torch: for models, parts of a layer, and profilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import checking, model_gating, stretches
from .opening import open_workload

VERBS: Mapping[str, Callable[..., Any]] = {
    "device": lambda worker: worker.device.facts(),
    "open": open_workload,
    "check": checking.check,
    "differences": model_gating.differences,
    "stretch": stretches.stretch,
    "stretch_outputs": stretches.stretch_outputs,
}
