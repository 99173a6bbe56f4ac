"""The gate on small models of random weights: every kind of call, before a variant sees the checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from llama_workbench.datasets.geometries import stored_shapes
from llama_workbench.variants import Build, Engine, LlamaConfig, RopeScaling

from ..channel import raised_by
from .logits import TOLERANCES, Case, beyond, case_of, greedy, judge_logits, judge_tokens, run_cases
from .outcome import LogitsGate

SMALL_LENGTH = 48
"""max_length of the small gate's models; its last case fills it."""

GENERATED = 6
"""Tokens that the small gate asks an engine for."""

WEIGHTS = 3
"""Version of `small_weights`, by which `reference_logits` keeps the reference's logits on them."""

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
    which then counts. Whoever changes the weights counts WEIGHTS up.
    """
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


def generated_gate(model: Any, prompts: Sequence[Tensor], dtype: torch.dtype) -> LogitsGate:
    """Whether an engine generates the tokens that its own `forward` finds most likely. (`forward` passed before.)"""
    for prompt in prompts:
        expected, margins = greedy(model, prompt, GENERATED)
        with torch.inference_mode():
            tokens = model.generate(prompt, GENERATED)
        if wrong := judge_tokens(tokens, expected, margins, dtype):
            detail = f"generated, {prompt.shape[1]} tokens: {wrong}"
            return LogitsGate(False, detail, len(prompts), tolerance=TOLERANCES[dtype])
    return LogitsGate(True, f"{len(prompts)} generated", len(prompts), 0.0, TOLERANCES[dtype])


NOTHING: Mapping[str, str] = MappingProxyType({})


def small_gate(
    build: Build,
    reference: Reference,
    engine: Engine | None = None,
    device: str = "cpu",
    cannot: Mapping[str, str] = NOTHING,
    rounding: str = "",
) -> LogitsGate:
    """All cases on both small geometries, in float64, or in float32 where the variant cannot do float64.

    `rounding`: of the variant's cache, and the reference's. The variant computes on `device`. If it raises, the gate
    fails. What it `cannot` do is left out, and the detail says so; the tokens that an `engine` generates are checked
    as well.
    """
    try:
        return _small_gate(build, reference, torch.float64, engine, device, cannot, rounding)
    except Exception as in_double:
        try:
            gate = _small_gate(build, reference, torch.float32, engine, device, cannot, rounding)
        except Exception as error:
            return LogitsGate(False, raised_by(error))
        return replace(gate, detail=f"{gate.detail}, in float32 (float64: {type(in_double).__name__})")


def _small_gate(
    build: Build,
    reference: Reference,
    dtype: torch.dtype,
    engine: Engine | None,
    device: str,
    cannot: Mapping[str, str],
    rounding: str,
) -> LogitsGate:
    gates: list[LogitsGate] = []
    left_out: Counter[str] = Counter()
    for name, config in small_geometries().items():
        weights = {name: weight.to(device) for name, weight in small_weights(config, dtype).items()}
        cases, expected = [], []
        for case, logits in zip(small_cases(config), reference(name, dtype), strict=True):
            if (missing := beyond(case, config, cannot)) is not None:
                left_out[missing] += 1
            else:
                cases.append(case)
                expected.append(logits)
        if not cases:
            continue
        model = build(config, weights, max_length=SMALL_LENGTH)
        got = run_cases(model, cases, device)
        gate = judge_logits(cases, got, expected, dtype, engine=engine, rounding=rounding)
        if gate.passed and engine is not None and engine.outputs == "log-probabilities":
            gates.append(gate)
            prompts = [case.steps[0][0] for case in cases if case.steps[0][0].shape[1] + GENERATED <= SMALL_LENGTH]
            gate = generated_gate(model, prompts, dtype)
        if not gate.passed:
            return replace(gate, detail=f"{name} geometry, {gate.detail}")
        gates.append(gate)
    count = sum(gate.cases for gate in gates)
    detail = f"{count} cases"
    if left_out:
        reasons = (f"{missing} with {what}: {cannot[what]}" for what, missing in left_out.items())
        detail += f", left out {'; '.join(reasons)}"
    return LogitsGate(True, detail, count, max(gate.max_error for gate in gates), gates[0].tolerance)
