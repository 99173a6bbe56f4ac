"""The verb `check`: every call of the small gate on its own, and what a wrong variant may have got wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from llama_workbench.variants import Build, LlamaConfig
from llama_workbench.variants.outside import OutsideVariantError

from . import reference_logits
from .channel import raised_by
from .gates.logits import TOLERANCES, Case, fault_of, run_cases
from .gates.mistakes import MISTAKES, logits_with
from .gates.small import SMALL_LENGTH, small_cases, small_geometries, small_weights
from .models import model_variant
from .state import Worker

ROUNDED = 6e-2
"""Errors up to here may come from a type with fewer digits (see TOLERANCES)."""


NOT_REACHED = "not reached"


@dataclass(frozen=True)
class CheckedCall:
    """What became of a call."""

    geometry: str
    case: str
    number: int  # its place in its case, from 1
    tokens: int
    position: int
    error: float | None  # of the largest right logit; None where there is none to measure
    fault: str  # what is wrong, in words; empty where nothing is


@dataclass(frozen=True)
class Tried:
    """A case that a model went through."""

    geometry: str
    case: Case
    expected: Sequence[Tensor]
    got: Sequence[Tensor]  # its logits by call, as far as it came
    calls: Sequence[CheckedCall]
    fresh: bool | None = None  # whether a model built for this case alone was right; None where that was not tried

    @property
    def right(self) -> bool:
        return not any(call.fault for call in self.calls)

    @property
    def raised(self) -> bool:
        return len(self.got) < len(self.case.steps)


def check(worker: Worker, variant: str) -> dict[str, Any]:
    """`calls` of all cases (fields of `CheckedCall`), likely `causes` in words, their `dtype` and `tolerance`.

    `refused`: why the variant cannot be had at all, else None. It computes in float64, or in float32 where it raises in
    float64: as in the gate.
    """
    try:
        build = model_variant(worker, variant).build
    except OutsideVariantError as error:
        return {"refused": str(error)}
    tried: list[Tried] = []
    for dtype in (torch.float64, torch.float32):
        tried = list(_tried(worker, build, dtype))
        if not any(case.raised for case in tried):
            break
    calls = [asdict(call) for case in tried for call in case.calls]
    kind = str(dtype).removeprefix("torch.")
    return {
        "refused": None,
        "calls": calls,
        "causes": _causes(tried, dtype),
        "dtype": kind,
        "tolerance": TOLERANCES[dtype],
    }


def _tried(worker: Worker, build: Build, dtype: torch.dtype) -> Iterator[Tried]:
    """Every case of the small gate, on one model for each geometry, as the gate does it."""
    for name, config in small_geometries().items():
        reference = reference_logits.of_small_gate(worker, name, dtype)
        model: Any = None
        for case, expected in zip(small_cases(config), reference, strict=True):
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
            done = Tried(name, case, expected, got, list(_calls(name, case, expected, got, raised, dtype)))
            yield done if done.right or raised else replace(done, fresh=_is_right_alone(build, config, done, dtype))


def _calls(
    geometry: str, case: Case, expected: Sequence[Tensor], got: Sequence[Tensor], raised: str, dtype: torch.dtype
) -> Iterator[CheckedCall]:
    """A `CheckedCall` for each step of the case. `raised`: what stopped it at the first step without logits."""
    for index, (tokens, position) in enumerate(case.steps):
        error, fault = math.inf, raised if index == len(got) else NOT_REACHED
        if index < len(got):
            error, fault = fault_of(got[index], expected[index], TOLERANCES[dtype])
        size = error if math.isfinite(error) else None
        yield CheckedCall(geometry, case.name, index + 1, tokens.shape[1], position, size, fault)


def _is_right_alone(build: Build, config: LlamaConfig, tried: Tried, dtype: torch.dtype) -> bool:
    try:
        [got] = run_cases(build(config, small_weights(config, dtype), max_length=SMALL_LENGTH), [tried.case])
    except Exception:
        return False
    return not any(
        fault_of(logits, right, TOLERANCES[dtype])[1] for logits, right in zip(got, tried.expected, strict=True)
    )


# -- why ---------------------------------------------------------------------------------------------------------------


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
    configs = small_geometries()
    for case in tried:
        if case.raised:
            return False
        config = configs[case.geometry]
        alike = logits_with(mistake, config, small_weights(config, dtype), case.case.steps)
        if any(fault_of(got, same, TOLERANCES[torch.float32])[1] for got, same in zip(case.got, alike, strict=True)):
            return False
    return True


def _by_place(tried: Sequence[Tried], wrong: Sequence[Tried]) -> Iterator[str]:
    """What the places have in common at which it is wrong."""
    right = [case for case in tried if case.right]
    calls = [call for case in wrong for call in case.calls if call.fault and call.fault != NOT_REACHED]
    if all((call.error or math.inf) <= ROUNDED for call in calls):
        yield (
            "all errors are small: something may be computed in a type with fewer digits than the weights have, or "
            "with another epsilon than config.rms_norm_eps"
        )
    if any("NaN" in call.fault for call in calls):
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
    if all(call.number > 1 for call in calls):
        yield "first calls are right and later ones are not: what is kept in the cache, or where later tokens stand"
    batches = [case.case.steps[0][0].shape[0] > 1 for case in wrong]
    if all(batches):
        yield "only batches are wrong: rows of a batch must not see each other"
    elif all(call.tokens == 1 for call in calls):
        yield "only calls of one token are wrong: the path for decoding"
    elif all(call.tokens > 1 for call in calls) and any(call.tokens == 1 for case in right for call in case.calls):
        yield "only calls of several tokens are wrong: the mask, or the path for prompts"
    longest = {case.case.name for case in wrong} <= {"up to the context limit", "whole context at once"}
    if longest:
        yield "only the whole context is wrong: tables and caches must have max_length places"
