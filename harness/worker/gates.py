"""Before a number counts: same logits as the reference, and, for claims about architecture, the same op trace.

Runs in the measuring process and in the tests; needs torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from llama_workbench.variants import Build, Engine, LlamaConfig, Model, RopeScaling
from llama_workbench.variants.generation import generate

# --- logits --------------------------------------------------------------------------------------------------------

TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Largest allowed |logit - reference| as a share of the largest reference logit of the case.

float64 leaves room for the reference itself: transformers normalises and builds its cosines in float32 (measured
difference on the small geometry: 5e-7). float32: differences between kernels grow with depth and width; measured
2e-6 at most on the shipped geometries.
"""


@dataclass(frozen=True)
class Case:
    """Calls on one sequence: `steps` holds (tokens, position) of each, tokens [B, T]; a fresh sequence at the start."""

    name: str
    steps: tuple[tuple[Tensor, int], ...]


@dataclass(frozen=True)
class Gate:
    """Whether a variant's logits may be trusted. Errors and tolerance are shares of the largest reference logit."""

    passed: bool
    cases: int
    max_error: float
    tolerance: float
    detail: str

    def to_json(self) -> dict[str, object]:
        return {
            "passed": self.passed,
            "cases": self.cases,
            "max_error": self.max_error,
            "tolerance": self.tolerance,
            "detail": self.detail,
        }


SMALL_LENGTH = 48
"""max_length of the small gate's models; its last case fills it."""


def small_geometries() -> dict[str, LlamaConfig]:
    """Geometries of the small gate: plain attention, and grouped queries with Llama-3 scaling and a tied head."""
    plain = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=SMALL_LENGTH,
    )
    grouped = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=SMALL_LENGTH,
        rms_norm_eps=1e-6,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(8.0, 1.0, 4.0, 16),
        tie_word_embeddings=True,
    )
    return {"plain": plain, "grouped": grouped}


def small_weights(config: LlamaConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """Seeded normal weights of the small gate, scaled so that activations keep their size."""
    generator = torch.Generator().manual_seed(1234)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)

    hidden, head_dim, inner = config.hidden_size, config.head_dim, config.intermediate_size
    shapes = {
        "self_attn.q_proj": (config.num_attention_heads * head_dim, hidden),
        "self_attn.k_proj": (config.num_key_value_heads * head_dim, hidden),
        "self_attn.v_proj": (config.num_key_value_heads * head_dim, hidden),
        "self_attn.o_proj": (hidden, config.num_attention_heads * head_dim),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    weights = {"model.embed_tokens.weight": normal(config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        for name, (rows, columns) in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = normal(rows, columns, scale=columns**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = 1 + 0.1 * normal(hidden)
    weights["model.norm.weight"] = 1 + 0.1 * normal(hidden)
    tied = weights["model.embed_tokens.weight"]
    weights["lm_head.weight"] = tied if config.tie_word_embeddings else normal(config.vocab_size, hidden, scale=0.125)
    return weights


def small_cases(config: LlamaConfig) -> list[Case]:
    """Prefill, decode, chunks at an offset, batches, one token, and the very last position of the context."""
    generator = torch.Generator().manual_seed(99)
    tokens = torch.randint(0, config.vocab_size, (3, SMALL_LENGTH), generator=generator)

    def case(name: str, batch: int, *lengths: int) -> Case:
        steps, position = [], 0
        for length in lengths:
            steps.append((tokens[:batch, position : position + length], position))
            position += length
        return Case(name, tuple(steps))

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
) -> Gate:
    """Compare step by step; NaN or infinity never passes, nor does a wrong shape.

    Where an `engine` gives log-probabilities, they are compared with the reference's.
    """
    tolerance = TOLERANCES[dtype]
    if engine is not None and engine.outputs == "log-probabilities":
        expected = [[torch.log_softmax(logits.double(), -1) for logits in steps] for steps in expected]
    worst = 0.0
    for case, ours, theirs in zip(cases, got, expected, strict=True):
        for step, (logits, reference) in enumerate(zip(ours, theirs, strict=True)):
            where = f"{case.name}, call {step + 1}"
            if not isinstance(logits, Tensor) or logits.shape != reference.shape:
                shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
                return Gate(False, len(cases), float("inf"), tolerance, f"{where}: {shape} for {list(reference.shape)}")
            if not bool(torch.isfinite(logits).all()):
                return Gate(False, len(cases), float("inf"), tolerance, f"{where}: NaN or infinite logits")
            error = float((logits.double() - reference.double()).abs().max() / reference.double().abs().max())
            if error > tolerance:
                detail = f"{where}: logits off by {error:.1e} of the largest (allowed {tolerance:.0e})"
                return Gate(False, len(cases), error, tolerance, detail)
            worst = max(worst, error)
    return Gate(True, len(cases), worst, tolerance, f"{len(cases)} cases")


class _Watched:
    """A model that remembers by how much the best logit led at each call."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.reset = model.reset
        self.margins: list[Tensor] = []

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        logits = self.model.forward(tokens, position)
        best = logits.topk(2, dim=-1).values  # [B, 2]
        self.margins.append((best[:, 0] - best[:, 1]) / logits.abs().max())
        return logits


def greedy(model: Model, prompt: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """A reference's generation: tokens [B, N], and by how much each led, as a share of that call's largest logit."""
    watched = _Watched(model)
    with torch.inference_mode():
        tokens = torch.stack(list(generate(watched, prompt, count)), dim=1)
        return tokens, torch.stack(watched.margins, dim=1)


def judge_tokens(got: Tensor, expected: Tensor, margins: Tensor, dtype: torch.dtype) -> str | None:
    """None where greedy tokens [B, N] are the reference's; else the first that is not, in words.

    A near-tie is no fault: each of two logits may be off by the tolerance of the logits gate, so where the reference's
    best led by no more than twice that (`margins`, see `greedy`) a right variant may take the second. What follows is
    then another sequence, and the rest of that row is not compared.
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


def beyond(case: Case, engine: Engine | None) -> str | None:
    """What of a case an engine cannot do ("batch" or "chunks"), None where it can do all."""
    cannot: Mapping[str, str] = {} if engine is None else engine.cannot
    if "batch" in cannot and any(tokens.shape[0] > 1 for tokens, _ in case.steps):
        return "batch"
    if "chunks" in cannot and any(tokens.shape[1] > 1 and position for tokens, position in case.steps):
        return "chunks"
    return None


def generated_gate(model: Any, prompts: Sequence[Tensor], dtype: torch.dtype) -> Gate:
    """Whether an engine generates the tokens that its own `forward`, gated before, says are the likeliest."""
    for prompt in prompts:
        expected, margins = greedy(model, prompt, GENERATED)
        with torch.inference_mode():
            tokens = model.generate(prompt, GENERATED)
        if wrong := judge_tokens(tokens, expected, margins, dtype):
            return Gate(
                False, len(prompts), float("inf"), TOLERANCES[dtype], f"generated, {prompt.shape[1]} tokens: {wrong}"
            )
    return Gate(True, len(prompts), 0.0, TOLERANCES[dtype], f"{len(prompts)} generated")


GENERATED = 6
"""Tokens that the small gate asks an engine for."""


def small_gate(
    build: Build,
    reference: Callable[[str, torch.dtype], Sequence[Sequence[Tensor]]],
    engine: Engine | None = None,
    device: str = "cpu",
) -> Gate:
    """The full battery on both small geometries, in float64, or float32 where the variant cannot do float64.

    The variant computes on `device`. `reference(geometry, dtype)` gives the reference's logits in the order of
    `small_cases`. An exception of the variant counts as a failed gate; its text is the detail. What an `engine` says it
    cannot do is left out, and the detail says so; tokens that it generates are checked too.
    """
    try:
        return _small_gate(build, reference, torch.float64, engine, device)
    except Exception as in_double:
        try:
            gate = _small_gate(build, reference, torch.float32, engine, device)
        except Exception as error:
            return Gate(False, 0, float("inf"), 0.0, f"raises {type(error).__name__}: {_one_line(error)}")
        note = f"{gate.detail}, in float32 (float64: {type(in_double).__name__})"
        return Gate(gate.passed, gate.cases, gate.max_error, gate.tolerance, note)


def _small_gate(
    build: Build,
    reference: Callable[[str, torch.dtype], Sequence[Sequence[Tensor]]],
    dtype: torch.dtype,
    engine: Engine | None,
    device: str,
) -> Gate:
    gates = []
    left_out: dict[str, int] = {}
    for name, config in small_geometries().items():
        weights = {name: weight.to(device) for name, weight in small_weights(config, dtype).items()}
        model = build(config, weights, max_length=SMALL_LENGTH)
        cases, expected = [], []
        for case, logits in zip(small_cases(config), reference(name, dtype), strict=True):
            if (missing := beyond(case, engine)) is not None:
                left_out[missing] = left_out.get(missing, 0) + 1
            else:
                cases.append(case)
                expected.append(logits)
        gate = judge_logits(cases, run_cases(model, cases, device), expected, dtype, engine=engine)
        if gate.passed and engine is not None and engine.outputs == "log-probabilities":
            gates.append(gate)
            prompts = [case.steps[0][0] for case in cases if case.steps[0][0].shape[1] + GENERATED <= SMALL_LENGTH]
            gate = generated_gate(model, prompts, dtype)
        if not gate.passed:
            return Gate(False, gate.cases, gate.max_error, gate.tolerance, f"{name} geometry, {gate.detail}")
        gates.append(gate)
    cases_in_all = sum(gate.cases for gate in gates)
    worst = max(gate.max_error for gate in gates)
    detail = f"{cases_in_all} cases"
    if engine is not None and left_out:
        told = (f"{count} with {what}: {engine.cannot[what]}" for what, count in left_out.items())
        detail += f", left out {'; '.join(told)}"
    return Gate(True, cases_in_all, worst, gates[0].tolerance, detail)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


# --- op traces -----------------------------------------------------------------------------------------------------


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.ops.append(f"{func}({', '.join(_shown(value) for value in (*args, *(kwargs or {}).values()))})")
        return func(*args, **(kwargs or {}))


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}/{list(value.stride())}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)


@dataclass(frozen=True)
class Trace:
    """The ATen ops of one call, each with the shapes, strides and types it was given."""

    ops: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Short name of the sequence: equal digests mean equal traces."""
        return sha256("\n".join(self.ops).encode()).hexdigest()[:16]


def trace(call: Callable[[], object]) -> Trace:
    """Record what `call` dispatches.

    Gradients are off but inference mode is too: under it composite ops stay whole, and the kernel that
    scaled_dot_product_attention chose would not show.
    """
    recorder = _Recorder()
    with torch.inference_mode(False), torch.no_grad(), recorder:
        call()
    return Trace(tuple(recorder.ops))


def trace_difference(baseline: Trace, variant: Trace) -> str | None:
    """None where both sides run the same ops on the same shapes; else the first difference, in words."""
    if baseline.ops == variant.ops:
        return None
    for index, (ours, theirs) in enumerate(zip(baseline.ops, variant.ops, strict=False)):
        if ours != theirs:
            return (
                f"op {index + 1} of {len(baseline.ops)} / {len(variant.ops)}: {_short(ours)} against {_short(theirs)}"
            )
    return f"{len(baseline.ops)} ops against {len(variant.ops)}"


def op_counts(baseline: Trace, variant: Trace) -> list[tuple[str, int, int]]:
    """Ops that one side runs more often: (name, times in the baseline, times in the variant), largest gap first."""
    ours, theirs = (Counter(op.split("(")[0].removeprefix("aten.") for op in side.ops) for side in (baseline, variant))
    found = [(name, ours[name], theirs[name]) for name in {*ours, *theirs} if ours[name] != theirs[name]]
    return sorted(found, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def _short(op: str) -> str:
    return op.removeprefix("aten.")[:90]


def attention_kernels(ops: Trace) -> list[str]:
    """Names of the fused attention kernels in a trace: which backend scaled_dot_product_attention chose."""
    names = {op.split("(")[0].removeprefix("aten.") for op in ops.ops}
    return sorted(name for name in names if name.startswith("_scaled_dot_product"))
