"""The verb `check`: every call of the small gate on its own, and what a wrong variant may have got wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from llama_workbench.variants import Build, LlamaConfig
from llama_workbench.variants.outside import OutsideVariantError

from ...examiner.reference import normed, through_layers
from ...worker.channel import raised_by
from ...worker.correctness import (
    SMALL_LENGTH,
    TOLERANCES,
    Case,
    fault_of,
    run_cases,
    small_cases,
    small_geometries,
    small_weights,
)
from ...worker.model_gating import of_small_gate
from ...worker.models import model_variant
from ...worker.state import Worker

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
# they are compared with these. If they agree on every call, the mistake has a name.

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
    lengths = [tokens.shape[1] for tokens, _ in steps]
    places = [torch.arange(length) for length in lengths]  # of each token in its call
    positions = torch.cat([place + position for place, (_, position) in zip(places, steps, strict=True)])
    place, order = torch.cat(places), torch.arange(sum(lengths))
    call = torch.arange(len(steps)).repeat_interleave(torch.tensor(lengths))
    seen = order <= order[:, None]
    match mistake:
        case "restart":
            positions = place
        case "no rope":
            positions = torch.zeros_like(positions)
        case "forgets":
            seen &= call == call[:, None]
        case "no mask":
            seen = call <= call[:, None]
        case "mask without past":
            is_alone = torch.tensor(lengths)[call] == 1
            seen &= is_alone[:, None] | (order <= place[:, None])
    config, weights = _changed(mistake, config, weights)
    tokens = torch.cat([tokens for tokens, _ in steps], dim=1)
    dtype = weights["model.norm.weight"].dtype
    with torch.inference_mode():
        x = through_layers(config, weights, tokens, positions, seen=seen, dtype=dtype)
        if mistake != "no final norm":
            x = normed(x, weights["model.norm.weight"], config.rms_norm_eps)
        chosen = 0 if mistake == "first" else -1
        return [(part[:, chosen]) @ weights["lm_head.weight"].T for part in x.split(lengths, dim=1)]


# With which shape, and which rows of projections (by their letters), a right Llama makes a mistake.

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "theta": {"rope_theta": 10_000.0},
    "scaling": {"rope_scaling": None},
    "epsilon 1e-5": {"rms_norm_eps": 1e-5},
    "epsilon 1e-6": {"rms_norm_eps": 1e-6},
}

ROWS: Mapping[str, tuple[str, Callable[[Tensor, LlamaConfig], Tensor]]] = {
    "neighbours": ("qk", lambda rows, c: rows.unflatten(0, (-1, c.head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)),
    "backwards": ("qk", lambda rows, c: rows.unflatten(0, (-1, 2, c.head_dim // 2)).flip(1).flatten(0, 2)),
    "unscaled": ("q", lambda rows, c: rows * c.head_dim**0.5),
    "heads in turns": ("kv", lambda rows, c: rows.repeat(c.num_attention_heads // c.num_key_value_heads, 1)),
}

OTHER = {"gate_proj": "up_proj", "up_proj": "gate_proj"}


def _changed(
    mistake: str, config: LlamaConfig, weights: Mapping[str, Tensor]
) -> tuple[LlamaConfig, Mapping[str, Tensor]]:
    if mistake == "swapped":
        named = {name: ".".join(OTHER.get(part, part) for part in name.split(".")) for name in weights}
        return config, {named[name]: weight for name, weight in weights.items()}
    if mistake in ROWS:
        letters, change = ROWS[mistake]
        ends = tuple(f".{letter}_proj.weight" for letter in letters)
        weights = {name: change(rows, config) if name.endswith(ends) else rows for name, rows in weights.items()}
    if mistake == "heads in turns":
        return replace(config, num_key_value_heads=config.num_attention_heads), weights
    return replace(config, **SHAPES.get(mistake, {})), weights


VERBS: Mapping[str, Callable[..., Any]] = {"check": check}
