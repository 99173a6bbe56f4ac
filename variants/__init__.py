"""What is compared: Llama architectures by name.

`names()` lists them, `get(name)` gives one with `.build`, `.factors` (axis → level) and `.source` (who does it so).
Importing this package does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import compiling
from .config import LlamaConfig, RopeScaling
from .outside import installed
from .presets import (
    GENERATING,
    GRID_AXES,
    GRID_NAME,
    MODULAR,
    USUAL_BASELINE,
    USUAL_COPY,
    Build,
    Engine,
    Model,
    Variant,
    grid_cells,
    presets,
)  # fmt: skip
from .spelling import did_you_mean

__all__ = [
    "FUNCTION_REFERENCE",
    "GENERATING",
    "GRID_AXES",
    "GRID_NAME",
    "MODULAR",
    "REFERENCE_BENCHMARK",
    "REFERENCE_BENCHMARKS",
    "USUAL_BASELINE",
    "USUAL_COPY",
    "Build",
    "Engine",
    "LlamaConfig",
    "Model",
    "RopeScaling",
    "UnknownVariant",
    "Variant",
    "get",
    "grid_cells",
    "missing",
    "names",
    "unknown",
]  # fmt: skip

REFERENCE_BENCHMARK = "yardstick"
"""The variant whose code never changes: saved runs are compared by it."""

FUNCTION_REFERENCE = "function_yardstick"
"""The same for runs of functions (`function_yardstick.py`). It is no variant: it builds no model."""

REFERENCE_BENCHMARKS = (REFERENCE_BENCHMARK, FUNCTION_REFERENCE)


class UnknownVariant(LookupError):
    """No variant has that name; the message suggests the nearest."""


def names() -> list[str]:
    """Names of all variants: ours, then those that installed packages add."""
    return list({**presets(), **installed()})


def get(name: str) -> Variant:
    """The variant of that name. Raises UnknownVariant with the nearest names."""
    known = presets()
    if name not in known:  # asking the environment takes milliseconds
        known = {**installed(), **known}
    if name in known:
        return known[name]
    raise UnknownVariant(unknown(name, known))


def unknown(name: str, known: Iterable[str]) -> str:
    """What to say about a variant's name that is none of those known."""
    hint = did_you_mean(name, known, "`workbench variants` lists them", quote="", most=3)
    return f"unknown variant {name!r}: {hint}"


def missing(name: str) -> str | None:
    """What to install before the variant of that name can be built, in one line; None where it can be."""
    variant = presets().get(name)
    if variant is not None and variant.compiled:
        return compiling.missing()
    return variant.engine.missing() if variant is not None and variant.engine is not None else None
