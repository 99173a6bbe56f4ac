"""The verbs of a process that has torch: for models, parts of a layer, and profilers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from llama_workbench.datasets import geometries, tokenizer
from llama_workbench.datasets.checkpoints import load
from llama_workbench.datasets.lengths import DECODE_ROOM, longest_call
from llama_workbench.datasets.tokenizer import Prompts
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import Build, LlamaConfig
from llama_workbench.variants.outside import OutsideVariantError

from . import model_gating
from .channel import raised_by
from .correctness import (
    SMALL_LENGTH,
    TOLERANCES,
    Case,
    fault_of,
    run_cases,
    small_cases,
    small_geometries,
    small_weights,
)
from .functions import open_functions
from .model_gating import ComponentsKind, Drawn, ModelsKind, of_small_gate
from .models import model_variant
from .rounds import output_places
from .state import Bench, Runner, Worker

# -- the verb `check`: every call of the small gate on its own, and what a wrong variant may have got wrong ------------

ROUNDED = 6e-2  # errors up to here may come from a type with fewer digits (see TOLERANCES)

NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Tried:
    """A case that a model went through. got: its logits by call, as far as it came. calls: what became of each, as
    `check` says. fresh: whether a model built for this case alone was right; None where that was not tried."""

    geometry: str
    case: Case
    got: Sequence[Tensor]
    calls: Sequence[dict[str, Any]]
    fresh: bool | None

    @property
    def right(self) -> bool:
        return not any(call["fault"] for call in self.calls)

    @property
    def raised(self) -> bool:
        return len(self.got) < len(self.case.steps)


def check(worker: Worker, variant: str) -> dict[str, Any]:
    """`calls` of all cases, likely `causes` in words, their `dtype` and `tolerance`.

    A call has its `geometry`, `case`, `number` in it from 1, `tokens`, `position`, `error` as a share of the largest
    right logit (None where there is none to measure) and `fault` in words, empty where nothing is wrong. `refused`: why
    the variant cannot be had at all, else None. It computes in float64, or in float32 where it raises in float64: as in
    the gate."""
    try:
        build = model_variant(worker, variant).build
    except OutsideVariantError as error:
        return {"refused": str(error)}
    tried: list[Tried] = []
    for dtype in (torch.float64, torch.float32):
        tried = list(_tried(worker, build, dtype))
        if not any(case.raised for case in tried):
            break
    return {
        "refused": None,
        "calls": [call for case in tried for call in case.calls],
        "causes": _causes(tried, dtype),
        "dtype": str(dtype).removeprefix("torch."),
        "tolerance": TOLERANCES[dtype],
    }


def _tried(worker: Worker, build: Build, dtype: torch.dtype) -> Iterator[Tried]:
    """Every case of the small gate, on one model for each geometry, as the gate does it."""
    for name, config in small_geometries().items():
        model: Any = None
        for case, expected in zip(small_cases(config), of_small_gate(worker, name, dtype), strict=True):
            got: list[Tensor] = []
            raised = ""
            try:
                model = model or build(config, small_weights(config, dtype), max_length=SMALL_LENGTH)
                model.reset()
                with torch.inference_mode():
                    for tokens, position in case.steps:
                        got.append(model.forward(tokens.clone(), position).clone().cpu())
            except Exception as error:
                model, raised = None, raised_by(error)
            calls = []
            for index, (tokens, position) in enumerate(case.steps):
                error_size, fault = math.inf, raised if index == len(got) else NOT_REACHED
                if index < len(got):
                    error_size, fault = fault_of(got[index], expected[index], TOLERANCES[dtype])
                call = {"geometry": name, "case": case.name, "number": index + 1, "tokens": tokens.shape[1]}
                size = error_size if math.isfinite(error_size) else None
                calls.append({**call, "position": position, "error": size, "fault": fault})
            fresh = None
            if not raised and any(call["fault"] for call in calls):
                fresh = _is_right_alone(build, config, case, expected, dtype)
            yield Tried(name, case, got, calls, fresh)


def _is_right_alone(
    build: Build, config: LlamaConfig, case: Case, expected: Sequence[Tensor], dtype: torch.dtype
) -> bool:
    try:
        [got] = run_cases(build(config, small_weights(config, dtype), max_length=SMALL_LENGTH), [case])
    except Exception:
        return False
    return not any(fault_of(*pair, TOLERANCES[dtype])[1] for pair in zip(got, expected, strict=True))


def _causes(tried: Sequence[Tried], dtype: torch.dtype) -> list[str]:
    """What may be wrong, the surest first; nothing where all is right."""
    wrong = [case for case in tried if not case.right]
    if not wrong:
        return []
    if all(case.fresh for case in wrong):
        return ["`reset` does not forget the sequence before: each case is right on a model built for it alone"]
    mistakes = [words for name, words in MISTAKES.items() if _is(name, tried, dtype)]
    if mistakes:
        return [f"the logits of all calls are those of a Llama with this mistake: {words}" for words in mistakes]
    return list(_by_place(tried, wrong))


def _is(mistake: str, tried: Sequence[Tried], dtype: torch.dtype) -> bool:
    """Whether a Llama with this mistake gives the same logits at every call."""
    for case in tried:
        if case.raised:
            return False
        config = small_geometries()[case.geometry]
        alike = logits_with(mistake, config, small_weights(config, dtype), case.case.steps)
        if any(fault_of(*pair, TOLERANCES[torch.float32])[1] for pair in zip(case.got, alike, strict=True)):
            return False
    return True


def _by_place(tried: Sequence[Tried], wrong: Sequence[Tried]) -> Iterator[str]:
    """What the places have in common at which it is wrong."""
    calls = [call for case in wrong for call in case.calls if call["fault"] and call["fault"] != NOT_REACHED]
    if all((call["error"] or math.inf) <= ROUNDED for call in calls):
        yield (
            "all errors are small: something may be computed in a type with fewer digits than the weights have, or "
            "with another epsilon than config.rms_norm_eps"
        )
    if any("NaN" in call["fault"] for call in calls):
        yield "NaN comes from rows of scores that are masked entirely (softmax of nothing but -inf), or from overflow"
    if {case.geometry for case in wrong} == {"plain"}:
        yield (
            "only the geometry with 5 heads of 16 at a width of 64 is wrong: the size of a head is config.head_dim, "
            "not hidden_size / num_attention_heads; it also has an lm_head of its own and rms_norm_eps 1e-5"
        )
    if {case.geometry for case in wrong} == {"grouped"}:
        yield (
            "only the geometry with grouped queries is wrong: it also has Llama 3's rope_scaling, rope_theta 500,000, "
            "rms_norm_eps 1e-6 and an lm_head with the embedding's weights"
        )
    if all(call["number"] > 1 for call in calls):
        yield "first calls are right and later ones are not: what is kept in the cache, or where later tokens stand"
    if all(case.case.steps[0][0].shape[0] > 1 for case in wrong):
        yield "only batches are wrong: rows of a batch must not see each other"
    elif all(call["tokens"] == 1 for call in calls):
        yield "only calls of one token are wrong: the path for decoding"
    elif all(call["tokens"] > 1 for call in calls) and any(
        call["tokens"] == 1 for case in tried if case.right for call in case.calls
    ):
        yield "only calls of several tokens are wrong: the mask, or the path for prompts"
    if {case.case.name for case in wrong} <= {"up to the context limit", "whole context at once"}:
        yield "only the whole context is wrong: tables and caches must have max_length places"


# A Llama with one mistake at a time, of those that people make when they write one. Where a variant's logits are wrong,
# they are compared with these. If they agree on every call, the mistake has a name. It shares no code with the variants
# or the examiner's reference.


MISTAKES: Mapping[str, str] = {
    "neighbours": "RoPE turns neighbouring values (2i and 2i + 1); weights with Hugging Face names need halves "
    "(i and i + head_dim / 2)",
    "backwards": "RoPE turns the other way round: the sign of the sine is wrong",
    "no rope": "RoPE is missing",
    "theta": "RoPE's base is always 10,000; config.rope_theta is not used",
    "scaling": "config.rope_scaling (Llama 3) is not used",
    "epsilon 1e-5": "the norms' epsilon is always 1e-5; config.rms_norm_eps is not used",
    "epsilon 1e-6": "the norms' epsilon is always 1e-6; config.rms_norm_eps is not used",
    "restart": "each call's positions begin at 0; the argument `position` is not used",
    "forgets": "a call sees its own tokens only: keys and values of earlier calls are not used",
    "no mask": "there is no causal mask: tokens see those that come after them",
    "mask without past": "the causal mask of a later call does not count what is in the cache already (it is aligned "
    "at the upper left, as `is_causal` is)",
    "heads in turns": "key and value heads are repeated in turns (0, 1, 0, 1); each belongs to queries side by side "
    "(0, 0, 1, 1)",
    "unscaled": "scores are not divided by the square root of head_dim",
    "swapped": "SiLU is applied to up_proj; it belongs to gate_proj",
    "no final norm": "the last norm (model.norm) is missing",
    "first": "the logits are those of a call's first token; they should be those of its last",
}
"""Name → what it is, for whoever made it."""


def logits_with(
    mistake: str, config: LlamaConfig, weights: Mapping[str, Tensor], steps: Sequence[tuple[Tensor, int]]
) -> list[Tensor]:
    """Logits [B, V] of each call of a sequence, (tokens [B, T], position) each; "" for a Llama without mistake."""
    past: dict[int, tuple[Tensor, Tensor]] = {}
    with torch.inference_mode():
        return [_call(mistake, config, weights, tokens, position, past) for tokens, position in steps]


def _call(
    mistake: str,
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    tokens: Tensor,
    position: int,
    past: dict[int, tuple[Tensor, Tensor]],
) -> Tensor:
    (batch, length), size = tokens.shape, config.head_dim
    epsilon = {"epsilon 1e-5": 1e-5, "epsilon 1e-6": 1e-6}.get(mistake, config.rms_norm_eps)

    def norm(x: Tensor, name: str) -> Tensor:
        return weights[name] * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)

    x = F.embedding(tokens, weights["model.embed_tokens.weight"])
    angles = _angles(mistake, config, 0 if mistake == "restart" else position, length).to(x.dtype)
    for layer in range(config.num_hidden_layers):
        part = f"model.layers.{layer}"
        y = norm(x, f"{part}.input_layernorm.weight")
        q, k, v = (
            F.linear(y, weights[f"{part}.self_attn.{name}_proj.weight"]).view(batch, length, -1, size).transpose(1, 2)
            for name in "qkv"
        )
        q, k = _turned(mistake, q, angles), _turned(mistake, k, angles)
        if layer in past and mistake != "forgets":
            k, v = (torch.cat(both, dim=2) for both in zip(past[layer], (k, v), strict=True))
        past[layer] = k, v
        y = _attention(mistake, q, k, v).transpose(1, 2).flatten(2)
        x = x + F.linear(y, weights[f"{part}.self_attn.o_proj.weight"])
        y = norm(x, f"{part}.post_attention_layernorm.weight")
        gate, up = (F.linear(y, weights[f"{part}.mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        if mistake == "swapped":
            gate, up = up, gate
        x = x + F.linear(F.silu(gate) * up, weights[f"{part}.mlp.down_proj.weight"])
    x = x[:, 0] if mistake == "first" else x[:, -1]
    if mistake != "no final norm":
        x = norm(x, "model.norm.weight")
    return F.linear(x, weights["lm_head.weight"])


def _angles(mistake: str, config: LlamaConfig, position: int, length: int) -> Tensor:
    """The angle of each token's position and each pair of values, [T, D / 2]."""
    theta = 10_000.0 if mistake == "theta" else config.rope_theta
    frequencies = theta ** -(torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    scaling = config.rope_scaling
    if scaling is not None and mistake != "scaling":
        turns = frequencies * scaling.original_max_position_embeddings / (2 * math.pi)
        kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        frequencies = torch.lerp(frequencies / scaling.factor, frequencies, kept.clamp(0, 1))
    turning = {"no rope": 0.0, "backwards": -1.0}.get(mistake, 1.0)
    return torch.outer(torch.arange(position, position + length).double(), frequencies) * turning


def _turned(mistake: str, x: Tensor, angles: Tensor) -> Tensor:
    """x [B, H, T, D] with each pair of values turned by its angle."""
    cos, sin = angles.cos(), angles.sin()
    if mistake == "neighbours":
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _attention(mistake: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q [B, H, T, D] on k and v [B, KV heads, positions, D]."""
    groups = q.shape[1] // k.shape[1]
    if mistake == "heads in turns":
        k, v = k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)
    else:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = q @ k.transpose(-1, -2) * (1.0 if mistake == "unscaled" else q.shape[-1] ** -0.5)
    length, seen = scores.shape[-2:]
    first_hidden = seen - length + 1
    if mistake == "mask without past" and length > 1:
        first_hidden = 1
    hidden = torch.ones(length, seen, dtype=torch.bool).triu(seen if mistake == "no mask" else first_hidden)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


# -- the verb `open` for models and parts of a layer -------------------------------------------------------------------


def open_workload(
    worker: Worker, workload: dict[str, Any], folder: str | None, seed: int, call: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Load the checkpoint (once a process) and cut the prompts of a workload; no folder for a component, nor for any
    function, of which `call` is what `Call` holds."""
    if call is not None:
        return open_functions(worker, workload, folder, seed, call)
    if folder is None:
        work = Workload.model_validate(workload)
        worker.benches[work.name] = Bench(work, ComponentsKind(), seed)
        return {"parameters": 0, "digest": "", "synthetic": True}
    dtype = getattr(torch, workload["dtype"])
    source, cache, device = Path(folder), worker.cache, worker.device.kind
    key = (folder, workload["dtype"])
    if key not in worker.checkpoints:
        worker.checkpoints[key] = load(source, dtype=dtype, device=device, cache=cache)
    checkpoint = worker.checkpoints[key]
    geometry = geometries.Geometry(workload["geometry"], checkpoint.config, "", "")
    work = Workload.model_validate(workload, context={"geometries": {geometry.name: geometry}})
    longest = min(work.context + longest_call(work) + 1, checkpoint.config.max_position_embeddings)
    words = checkpoint.config.vocab_size
    text = tokenizer.text_ids(source, vocab_size=words, cache=cache)
    prompt = torch.from_numpy(Prompts(text, batch=work.batch, draw="gate").tokens(0, longest)).to(device)
    prompts = Prompts(text, batch=work.batch, draw=worker.draw, repeated=work.prompts == "repeated")
    worker.benches[work.name] = Bench(
        work, ModelsKind(), seed, checkpoint, prompt, longest, prompts=prompts, source=source
    )
    return {
        "hidden_size": checkpoint.config.hidden_size,
        "layers": checkpoint.config.num_hidden_layers,
        "parameters": checkpoint.parameters,
        "digest": checkpoint.digest,
        "synthetic": checkpoint.synthetic,
    }


# -- the verbs `stretch` and `stretch_outputs` -------------------------------------------------------------------------


def _stretch_of(worker: Worker, workload: str, variant: str) -> tuple[Runner, list[Tensor]]:
    """The variant's runner for all stretches, and the outputs of the last one."""
    bench = worker.benches[workload]
    key = ("stretch", workload, variant)
    return worker.once(key, lambda: (bench.kind.runner(worker, bench, bench.subjects[variant].variant), []))


def stretch(worker: Worker, workload: str, variant: str, seconds: float) -> dict[str, Any]:
    """As many calls as take about `seconds`, once the parent says to go on. With 0 seconds there are none: that
    measures what the asking costs."""
    bench = worker.benches[workload]
    subject = bench.subjects[variant]
    assert subject.output is not None
    with torch.inference_mode():
        runner, kept = _stretch_of(worker, workload, variant)
        count = max(round(seconds * 1e9 / subject.call_ns), seconds > 0)
        if count and (bench.once or bench.workload.kind == "generate"):
            count = 1
        elif bench.workload.kind == "decode":
            count = min(count, DECODE_ROOM // 2)
        kept[:] = output_places({}, subject.output, count)
        runner.prepare(bench.workload.tokens, bench.take(count), count)
        worker.wait()
        for place in kept:
            place.copy_(runner.call())
    return {"calls": count}


def stretch_outputs(worker: Worker, workload: str, variant: str, outputs: str) -> dict[str, Any]:
    """Leave an output of the last stretch in a file for the examiner."""
    runner, kept = _stretch_of(worker, workload, variant)
    drawn = Drawn(1)
    drawn.keep(variant, runner.asked, kept)
    drawn.end_sub_round()
    return {"drawn": drawn.write(Path(outputs)), "changed": worker.changed(variant, files=False)}


VERBS: Mapping[str, Callable[..., Any]] = {
    "device": lambda worker: worker.device.facts(),
    "open": open_workload,
    "check": check,
    "differences": model_gating.differences,
    "stretch": stretch,
    "stretch_outputs": stretch_outputs,
}
