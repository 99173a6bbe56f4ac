"""Same results as the reference: logits, greedy tokens, and what one part of a layer gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from llama_workbench.variants import Engine, LlamaConfig, Model
from llama_workbench.variants.generation import generate

from .outcome import LogitsGate

TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Largest allowed |logit - reference| as a share of the largest reference logit of the case.

float64 leaves room for the reference itself: transformers normalises and builds its cosines in float32 (measured
difference on the small geometry: 5e-7). float32: differences between kernels grow with depth and width; measured
2e-6 at most on the shipped geometries.
"""

ROUNDING_TOLERANCE = 2e-3
"""The same where a variant's cache rounds to fewer bits, and the reference's in the same way. A value that lies between
two that can be kept is rounded up by one and down by the other, if their kernels differ in its last bit: measured in
float32 on the shipped geometries, 5e-4 at most. A cache that does not round, or otherwise, is off by 4e-3 and more on
the small geometries, and one with a wrong scale, place or page by more than that: tests plant them.
"""


def tolerance_of(dtype: torch.dtype, rounding: str = "") -> float:
    """Largest allowed error of a variant that computes in `dtype`; `rounding` of its cache."""
    return max(TOLERANCES[dtype], ROUNDING_TOLERANCE if rounding else 0.0)


@dataclass(frozen=True)
class Case:
    """Calls on one sequence: `steps` holds (tokens, position) of each, tokens [B, T]; a fresh sequence at the start."""

    name: str
    steps: tuple[tuple[Tensor, int], ...]


def case_of(name: str, tokens: Tensor, lengths: Iterable[int]) -> Case:
    """Calls of these lengths one after another along `tokens` [B, T], without those that T leaves no room for."""
    steps, position = [], 0
    for length in lengths:
        if length and position + length <= tokens.shape[1]:
            steps.append((tokens[:, position : position + length], position))
            position += length
    return Case(name, tuple(steps))


def run_cases(model: Model, cases: Sequence[Case], device: str = "cpu") -> list[list[Tensor]]:
    """Logits [B, V] of every step of every case; the model is reset before each case.

    The model computes on `device`; the cases and what comes back lie on the CPU.
    """
    out = []
    with torch.inference_mode():
        for case in cases:
            model.reset()
            out.append([model.forward(tokens.to(device), position).clone().cpu() for tokens, position in case.steps])
        model.reset()
    return out


def judge_logits(
    cases: Sequence[Case],
    got: Sequence[Sequence[Tensor]],
    expected: Sequence[Sequence[Tensor]],
    dtype: torch.dtype,
    *,
    engine: Engine | None = None,
    rounding: str = "",
) -> LogitsGate:
    """Compare step by step; NaN or infinity never passes, nor does a wrong shape. `rounding`: of the cache.

    Where an `engine` gives log-probabilities, they are compared with the reference's.
    """
    tolerance = tolerance_of(dtype, rounding)
    if engine is not None and engine.outputs == "log-probabilities":
        expected = [[torch.log_softmax(logits.double(), -1) for logits in steps] for steps in expected]
    worst = 0.0
    for case, ours, theirs in zip(cases, got, expected, strict=True):
        for step, (logits, reference) in enumerate(zip(ours, theirs, strict=True)):
            error, fault = fault_of(logits, reference, tolerance)
            if fault:
                return LogitsGate(False, f"{case.name}, call {step + 1}: {fault}", len(cases), error, tolerance)
            worst = max(worst, error)
    return LogitsGate(True, f"{len(cases)} case{'s' * (len(cases) != 1)}", len(cases), worst, tolerance)


def fault_of(logits: Any, reference: Tensor, tolerance: float) -> tuple[float, str]:
    """By how much logits [B, V] of a call are off, as a share of the largest right one, and what is wrong, in words.

    Infinite where there is nothing to compare; no words where they are right.
    """
    if not isinstance(logits, Tensor) or logits.shape != reference.shape:
        shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        return math.inf, f"{shape} for {list(reference.shape)}"
    if not bool(torch.isfinite(logits).all()):
        return math.inf, "NaN or infinite logits"
    error = float((logits.double() - reference.double()).abs().max() / reference.double().abs().max())
    return error, f"logits off by {error:.1e} of the largest (allowed {tolerance:.0e})" if error > tolerance else ""


def greedy(model: Model, prompt: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """A reference's generation: tokens [B, N], and by how much each led, as a share of that call's largest logit."""
    margins: list[Tensor] = []

    def forward(tokens: Tensor, position: int) -> Tensor:
        logits = model.forward(tokens, position)
        best = logits.topk(2, dim=-1).values  # [B, 2]
        margins.append((best[:, 0] - best[:, 1]) / logits.abs().max())
        return logits

    watched: Any = SimpleNamespace(reset=model.reset, forward=forward)
    with torch.inference_mode():
        tokens = torch.stack(list(generate(watched, prompt, count)), dim=1)
        return tokens, torch.stack(margins, dim=1)


def judge_tokens(got: Tensor, expected: Tensor, margins: Tensor, dtype: torch.dtype) -> str | None:
    """None where greedy tokens [B, N] are the reference's; else the first wrong one, in words.

    A near-tie is not a fault: where the reference's best led by at most twice the tolerance of the logits gate
    (`margins`, see `greedy`), a right variant may take the second-best token. The rest of that row is not compared.
    """
    if got.shape != expected.shape:
        return f"{list(got.shape)} tokens for {list(expected.shape)}"
    for row, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        differing = (ours != theirs).nonzero()
        if not len(differing):
            continue
        first = int(differing[0])
        lead = float(margins[row, first])
        if not lead <= 2 * TOLERANCES[dtype]:
            return (
                f"token {first + 1} of sequence {row + 1} is {int(ours[first])}, expected {int(theirs[first])}, "
                f"which leads by {lead:.1e} of the largest logit"
            )
    return None


def beyond(case: Case, config: LlamaConfig, cannot: Mapping[str, str]) -> str | None:
    """What of a case a variant cannot do ("heads", "batch" or "chunks"), None where it can do all; see
    `Variant.cannot`."""
    if "heads" in cannot and config.num_attention_heads * config.head_dim != config.hidden_size:
        return "heads"
    if "batch" in cannot and any(tokens.shape[0] > 1 for tokens, _ in case.steps):
        return "batch"
    if "chunks" in cannot and any(tokens.shape[1] > 1 and position for tokens, position in case.steps):
        return "chunks"
    return None


TOLERANCE = TOLERANCES[torch.float32]


def judge_component(got: Tensor, expected: Tensor) -> LogitsGate:
    """Compare a result with the right one, both float64."""
    error = component_error(got, expected)
    fault = "" if error <= TOLERANCE else f"off by {error:.1e} of the largest value"
    if got.shape != expected.shape:
        fault = f"{list(got.shape)} for {list(expected.shape)}"
    return LogitsGate(not fault, fault or "1 case", 1, error, TOLERANCE)


def component_error(got: Tensor, expected: Tensor) -> float:
    """Largest error as a share of the largest finite value; infinite where infinite values are not the same."""
    if got.shape != expected.shape:
        return math.inf
    # No indexing by a mask: it took 0.3 s for the 8 million scores of 512 tokens, most of a round.
    error = float((got - expected).masked_fill_(got == expected, 0.0).abs_().max())
    largest = float(expected.abs().masked_fill_(expected.isinf(), 0.0).max())
    return error / max(largest, 1e-30) if math.isfinite(error) else math.inf


# What a cache of fewer bits keeps: variants that have one are held to a reference that rounds in the same way.


def rounded(x: Tensor, how: str) -> Tensor:
    """Keys or values [..., D] as they are read back; `how`: as `Variant.cache_rounding`, and "" leaves them."""
    if how == "bfloat16":
        return x.bfloat16().to(x.dtype)
    if how == "int8":
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-20) / 127
        return (torch.round(wide / scale) * scale).to(x.dtype)
    return x
