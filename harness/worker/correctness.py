"""Same results as the reference: logits, greedy tokens, and what one part of a layer gives."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from llama_workbench.datasets.geometries import stored_shapes
from llama_workbench.variants import Build, LlamaConfig, Model, RopeScaling
from llama_workbench.variants.generation import generate

from .channel import raised_by
from .state import LogitsGate

# Same results as the reference: logits, greedy tokens, and what one part of a layer gives.


TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Largest allowed |logit - reference| as a share of the largest reference logit of the case.

float64 leaves room for the reference itself: transformers normalises and builds its cosines in float32 (measured
difference on the small geometry: 5e-7). float32: differences between kernels grow with depth and width; measured
2e-6 at most on the shipped geometries.
"""

CACHE_TOLERANCE = 2e-3
"""The same where a variant's cache rounds to fewer bits, and the reference's in the same way. A value that lies between
two that can be kept is rounded up by one and down by the other, if their kernels differ in its last bit: measured in
float32 on the shipped geometries, 5e-4 at most. A cache that does not round, or otherwise, is off by 4e-3 and more on
the small geometries, and one with a wrong scale, place or page by more than that: tests plant them.
"""

ROUNDING_TOLERANCES = {
    "": 0.0,
    "bfloat16": CACHE_TOLERANCE,
    "int8": CACHE_TOLERANCE,
    "int8 weights": 0.08,
    "int8 products": 0.25,
}
"""By `Variant.rounding`. Weights in int8 are another model, which is held to the plain one: on the shipped geometries a
scale for 32 weights is off by up to 0.05, and int8 on both sides of a product, a scale a row, by up to 0.14. Logits of
another prompt are off by 1 and more; a fault that is as small as the rounding passes.
"""


def tolerance_of(dtype: torch.dtype, rounding: str = "") -> float:
    """Largest allowed error of a variant that computes in `dtype`; `rounding`: see `Variant`."""
    return max(TOLERANCES[dtype], ROUNDING_TOLERANCES[rounding])


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
    """Logits [B, V] of every step of every case; the model is reset before each case. The model computes on `device`;
    the cases and what comes back lie on the CPU."""
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
    rounding: str = "",
) -> LogitsGate:
    """Compare step by step; NaN or infinity never passes, nor does a wrong shape. `rounding`: of the cache."""
    tolerance = tolerance_of(dtype, rounding)
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
    Infinite where there is nothing to compare; no words where they are right."""
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
    """None where greedy tokens [B, N] are the reference's; else the first wrong one, in words. A near-tie is not a
    fault: where the reference's best led by at most twice the tolerance of the logits gate (`margins`, see `greedy`), a
    right variant may take the second-best token. The rest of that row is not compared."""
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


def comes_in_chunks(case: Case) -> bool:
    """Whether several tokens at once follow earlier ones, which a variant with `no_chunks` does wrong."""
    return any(tokens.shape[1] > 1 and position for tokens, position in case.steps)


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
    """Keys or values [..., D] as they are read back; `how`: as `Variant.rounding`; all but a cache's leaves them."""
    if how == "bfloat16":
        return x.bfloat16().to(x.dtype)
    if how == "int8":
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-20) / 127
        return (torch.round(wide / scale) * scale).to(x.dtype)
    return x


# The gate on small models of random weights: every kind of call, before a variant sees the checkpoint.


SMALL_LENGTH = 48  # max_length of the small gate's models; its last case fills it
WEIGHTS = 3  # version of `small_weights`, by which the reference's logits on them are kept

SMALL_RESIDUAL = 2.0**-6
"""Its mean square is about 2e-4 then: an epsilon of 1e-5 instead of 1e-6 changes each norm by 2 %, one left out by
0.2 %, far beyond what rounding does. A power of two, so that nothing else changes."""

EMBEDDING = "model.embed_tokens.weight"

Reference = Callable[[str, torch.dtype], Sequence[Sequence[Tensor]]]
"""(geometry, dtype) → the reference's logits, in the order of `small_cases`."""


def small_geometries() -> dict[str, LlamaConfig]:
    """Geometries of the small gate: plain attention, whose heads do not make up the width, and grouped queries with
    Llama-3 scaling and a tied head."""
    plain = LlamaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=5,
        num_key_value_heads=5, head_dim=16, max_position_embeddings=SMALL_LENGTH,
    )  # fmt: skip
    scaling = RopeScaling(8.0, 1.0, 4.0, 16)
    grouped = replace(plain, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6)
    grouped = replace(grouped, rope_theta=500_000.0, rope_scaling=scaling, tie_word_embeddings=True)
    return {"plain": plain, "grouped": grouped}


def small_weights(config: LlamaConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """Seeded weights of the small gate: norms about 1, all else normal and scaled so that activations keep their size.
    What is written into the residual stream is `SMALL_RESIDUAL` of that. The norms undo it, but for their epsilon,
    which then counts. Whoever changes the weights counts WEIGHTS up."""
    generator = torch.Generator().manual_seed(1234)
    weights: dict[str, Tensor] = {}
    for name, shape in stored_shapes(config).items():
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        if len(shape) == 1:
            values = 1 + 0.1 * values
        elif name != EMBEDDING:
            values *= shape[1] ** -0.5
        if name.endswith(("embed_tokens.weight", "o_proj.weight", "down_proj.weight")):
            values *= SMALL_RESIDUAL
        weights[name] = values.to(dtype)
    return {"lm_head.weight": weights[EMBEDDING], **weights}


def small_cases(config: LlamaConfig) -> list[Case]:
    """Prefill, decode, chunks at an offset, batches, one token, and the very last position of the context."""
    generator = torch.Generator().manual_seed(99)
    tokens = torch.randint(0, config.vocab_size, (3, SMALL_LENGTH), generator=generator)

    def case(name: str, batch: int, *lengths: int) -> Case:
        return case_of(name, tokens[:batch], lengths)

    return [
        case("prefill", 1, 13),
        case("decode after prefill", 1, 7, 1, 1),
        case("chunked prefill", 1, 6, 5, 9),
        case("chunk, decode, chunk", 1, 4, 1, 6, 1),
        case("batch of 3", 3, 9, 1, 4),
        case("single token from empty", 1, 1, 1),
        case("up to the context limit", 1, SMALL_LENGTH - 1, 1),
        case("whole context at once", 1, SMALL_LENGTH),
    ]


def small_gate(
    build: Build,
    reference: Reference,
    device: str = "cpu",
    no_chunks: str = "",
    rounding: str = "",
) -> LogitsGate:
    """All cases on both small geometries, in float64, or in float32 where the variant cannot do float64. `rounding`: of
    the variant's cache, and the reference's. The variant computes on `device`. If it raises, the gate fails. With
    `no_chunks` prompts in chunks are left out, and the detail says so."""
    try:
        return _small_gate(build, reference, torch.float64, device, no_chunks, rounding)
    except Exception as in_double:
        try:
            gate = _small_gate(build, reference, torch.float32, device, no_chunks, rounding)
        except Exception as error:
            return LogitsGate(False, raised_by(error))
        return replace(gate, detail=f"{gate.detail}, in float32 (float64: {type(in_double).__name__})")


def _small_gate(
    build: Build,
    reference: Reference,
    dtype: torch.dtype,
    device: str,
    no_chunks: str,
    rounding: str,
) -> LogitsGate:
    gates: list[LogitsGate] = []
    left_out = 0
    for name, config in small_geometries().items():
        weights = {name: weight.to(device) for name, weight in small_weights(config, dtype).items()}
        cases, expected = [], []
        for case, logits in zip(small_cases(config), reference(name, dtype), strict=True):
            if no_chunks and comes_in_chunks(case):
                left_out += 1
            else:
                cases.append(case)
                expected.append(logits)
        model = build(config, weights, max_length=SMALL_LENGTH)
        gate = judge_logits(cases, run_cases(model, cases, device), expected, dtype, rounding=rounding)
        if not gate.passed:
            return replace(gate, detail=f"{name} geometry, {gate.detail}")
        gates.append(gate)
    count = sum(gate.cases for gate in gates)
    detail = f"{count} cases"
    if left_out:
        detail += f", left out {left_out} with chunks: {no_chunks}"
    return LogitsGate(True, detail, count, max(gate.max_error for gate in gates), gates[0].tolerance)


# The ATen operations of a call: a claim about architecture holds only where both sides run the same ones.


def noting(note: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> TorchDispatchMode:
    """A dispatch mode that runs each operation, after it gave it to `note` with its positional and named arguments.
    torch has every mode import its compiler at the first operation, so that it can be told to leave the handler alone:
    1.7 s of a processor in each process. Here that is done only where the compiler is loaded already."""

    class Noting(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # asked once, when the class is made
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            note(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    return Noting()


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}/{list(value.stride())}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)


@dataclass(frozen=True)
class OpTrace:
    """The ATen ops of one call, each with the shapes, strides and types of its arguments."""

    ops: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Short name of the sequence. Equal digests mean equal traces."""
        return sha256("\n".join(self.ops).encode()).hexdigest()[:16]


def trace(call: Callable[[], object]) -> OpTrace:
    """Record what `call` dispatches, with gradients and inference mode off: in inference mode composite operations stay
    whole, and a trace would not show which kernel scaled_dot_product_attention chose."""
    ops: list[str] = []

    def note(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        ops.append(f"{func}({', '.join(_shown(value) for value in (*args, *kwargs.values()))})")

    with torch.inference_mode(False), torch.no_grad(), noting(note):
        call()
    return OpTrace(tuple(ops))


def trace_difference(baseline: OpTrace, variant: OpTrace) -> str | None:
    """None where both sides run the same ops on the same shapes. Otherwise the first difference, in words."""
    if baseline.ops == variant.ops:
        return None
    for index, (ours, theirs) in enumerate(zip(baseline.ops, variant.ops, strict=False)):
        if ours != theirs:
            return (
                f"op {index + 1} of {len(baseline.ops)} / {len(variant.ops)}: {_short(ours)} against {_short(theirs)}"
            )
    return f"{len(baseline.ops)} ops against {len(variant.ops)}"


def facts_of(ops: OpTrace) -> dict[str, Any]:
    """What a run keeps of a trace."""
    counts = dict(sorted(_counts(ops).items()))
    return {"digest": ops.digest, "ops": len(ops.ops), "attention_kernels": attention_kernels(ops), "counts": counts}


def op_counts(baseline: OpTrace, variant: OpTrace) -> list[tuple[str, int, int]]:
    """Ops that one side runs more often: (name, times in the baseline, times in the variant), largest gap first."""
    ours, theirs = _counts(baseline), _counts(variant)
    rows = [(name, ours[name], theirs[name]) for name in {*ours, *theirs} if ours[name] != theirs[name]]
    return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def _counts(ops: OpTrace) -> Counter[str]:
    """How often each op runs, by its name without "aten."."""
    return Counter(op.split("(")[0].removeprefix("aten.") for op in ops.ops)


def _short(op: str) -> str:
    return op.removeprefix("aten.")[:90]


def attention_kernels(ops: OpTrace) -> list[str]:
    """Names of the fused attention kernels in a trace: which backend scaled_dot_product_attention chose."""
    names = {op.split("(")[0].removeprefix("aten.") for op in ops.ops}
    return sorted(name for name in names if name.startswith("_scaled_dot_product"))
