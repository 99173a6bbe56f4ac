"""Gates of models and of parts of a layer: right logits, the same as the reference's, and the op trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from llama_workbench.datasets.workloads import pieces
from llama_workbench.variants import Build, Model, Variant

from . import models, outputs, reference_logits
from .gates.logits import (
    TOLERANCE,
    Case,
    beyond,
    case_of,
    component_error,
    judge_component,
    judge_logits,
    judge_tokens,
    run_cases,
)
from .gates.op_trace import OpTrace, facts_of, op_counts, trace, trace_difference
from .gates.outcome import LogitsGate
from .gates.small import small_gate
from .models import ComponentRunner, GenerateRunner, RequestRunner, component_of
from .runners import Runner, takes_requests
from .state import GATE_PROMPT, Bench, BenchKind, DrawnOutputs, Subject, Worker


class ModelsKind(BenchKind):
    """Variants of a model, with a checkpoint."""

    def variant(self, worker: Worker, bench: Bench, entered: str) -> Variant:
        return models.model_variant(worker, entered)

    def gate(self, worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
        return _model_gate(worker, bench, subject, entered)

    def traced(self, bench: Bench, subject: Subject) -> dict[str, Any] | None:
        """torch sees nothing of an engine: two of them would have the same trace. Compiled code cannot be traced."""
        if subject.variant.engine is not None or subject.variant.compiled:
            return None
        subject.trace = _trace(bench, subject.variant.build)
        return facts_of(subject.trace)

    def called_once(self, bench: Bench, subject: Subject, runner: Runner) -> None:
        """Keep the shape and type of what a call gives."""
        runner.prepare(bench.workload.tokens, bench.take(), 1)
        out = runner.call()
        subject.output = out.new_empty(out.shape)

    def learnt(self, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
        assert subject.output is not None
        return {"shape": list(subject.output.shape), "dtype": str(subject.output.dtype).removeprefix("torch.")}

    def admit(self, worker: Worker, bench: Bench, subject: Subject, entered: str, learnt: Mapping[str, Any]) -> None:
        subject.output = torch.empty(learnt["shape"], dtype=getattr(torch, learnt["dtype"]), device=worker.device.kind)
        if subject.variant.engine is not None and subject.variant.engine.loads_once:
            _load_once(worker, bench, subject, entered)

    def runner(self, worker: Worker, bench: Bench, variant: Variant) -> Runner:
        return models.model_runner(worker, bench, variant)

    def drawn(self, most: int) -> DrawnOutputs:
        return outputs.Drawn(most)

    def joined(self, file: str, drawn: Sequence[list[dict[str, Any]]], judged: set[str]) -> list[dict[str, Any]]:
        return outputs.joined(file, drawn, judged)


class ComponentsKind(BenchKind):
    """Parts of a layer, without a checkpoint."""

    def variant(self, worker: Worker, bench: Bench, entered: str) -> Variant:
        return models.model_variant(worker, entered)

    def gate(self, worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
        return _component_gate(worker, bench, subject)

    def admit(self, worker: Worker, bench: Bench, subject: Subject, entered: str, learnt: Mapping[str, Any]) -> None:
        _component_gate(worker, bench, subject)

    def runner(self, worker: Worker, bench: Bench, variant: Variant) -> Runner:
        return models.component_runner(worker, bench, variant)

    def wrong(self, bench: Bench, runners: Mapping[str, Runner]) -> dict[str, str]:
        """Those whose last timed call gave another result than at the gate; their inputs never change."""
        wrong: dict[str, str] = {}
        for name, runner in runners.items():
            subject = bench.subjects[name]
            assert isinstance(runner, ComponentRunner)
            if subject.expected is not None and subject.last is not None:
                error = component_error(runner.component.read(subject.last).float(), subject.expected)
                if not error <= 2 * TOLERANCE:
                    wrong[name] = f"a timed call is off by {error:.1e} of the largest value"
            subject.last = None
        return wrong


def _model_gate(worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
    """The small gate once for all workloads, then the workload's own calls, then the tokens of a generation."""
    engine, device, cannot = subject.variant.engine, worker.device.kind, subject.variant.cannot

    rounding = subject.variant.cache_rounding
    reference = partial(reference_logits.of_small_gate, worker, rounding=rounding)
    build = subject.variant.build
    small = worker.once(("small gate", entered), lambda: small_gate(build, reference, engine, device, cannot, rounding))
    if not small.passed:
        return small
    if rounding and bench.workload.kind == "generate":
        why = f"a cache in {rounding} may choose other tokens than the reference, and nothing says which are right"
        return replace(small, passed=False, unable=True, detail=why)
    case = own_case(worker, bench)
    if (what := beyond(case, bench.loaded.config, cannot)) is not None:
        why = f"cannot do this workload ({what}: {cannot[what]})"
        return replace(small, passed=False, unable=True, detail=why)
    if engine is None or not engine.loads_once:
        model = models.model_of(bench, subject.variant)
    else:
        model = _load_once(worker, bench, subject, entered)
    expected = reference_logits.of_case(worker, bench, case, rounding)
    requests = takes_requests(subject.variant)
    if requests:  # it computes everything before a step anew: two steps are enough
        case, expected = replace(case, steps=case.steps[:2]), [expected[0][:2]]
    got = run_cases(model, [case], device)
    result = judge_logits([case], got, expected, bench.dtype, engine=engine, rounding=rounding)
    if result.passed and bench.generated is not None:
        if wrong := _wrong_tokens(bench, model, requests=requests):
            return replace(result, passed=False, detail=f"{case.name}: {wrong}")
        result = replace(result, detail=f"{result.detail} and {bench.generated[0].numel()} greedy tokens")
    return replace(
        result,
        cases=result.cases + small.cases,
        detail=f"{small.detail}; {result.detail} on {bench.workload.geometry}" if result.passed else result.detail,
    )


def _load_once(worker: Worker, bench: Bench, subject: Subject, entered: str) -> Model:
    """Load an engine for as long as the process lives; building the subject gives this model again."""
    model = models.engine_of(worker, bench, subject.variant, entered)
    subject.variant = replace(subject.variant, build=lambda *_, **__: model)
    return model


def _wrong_tokens(bench: Bench, model: Model, *, requests: bool) -> str | None:
    """Where the model generates other tokens than the reference after the gate prompt, in words."""
    assert bench.generated is not None
    runner = RequestRunner(model, bench) if requests else GenerateRunner(model, bench)
    with torch.inference_mode():
        runner.prepare(bench.workload.tokens, GATE_PROMPT, 1)
        return judge_tokens(runner.call().cpu(), *bench.generated, bench.dtype)


def own_case(worker: Worker, bench: Bench) -> Case:
    """The calls that will be timed: the prompt at its full length and one decode step after it.

    Of a generation every step, along the reference's own tokens, so that one near-tie does not hide the rest.
    """
    work = bench.workload
    tokens = bench.gate_prompt.cpu()
    lengths = [work.context, *pieces(work, work.tokens), 1]
    if work.kind == "generate":
        if bench.generated is None:
            bench.generated = reference_logits.of_generation(worker, bench)
        tokens = torch.cat((tokens[:, : work.tokens], bench.generated[0]), dim=1)
        lengths = [work.tokens] + [1] * bench.generated[0].shape[-1]
    return case_of(work.name, tokens[:, : bench.max_length], lengths)


def _component_gate(worker: Worker, bench: Bench, subject: Subject) -> LogitsGate:
    component = component_of(worker, bench, subject.variant)
    if subject.variant.component is not None:
        subject.variant = replace(subject.variant, component=lambda *_, **__: component)
    got, expected = component.read(component.run()).double(), component.expected().double()
    result = judge_component(got, expected)
    if result.passed:
        subject.expected = expected.float()  # as calls give it
    return result


def _trace(bench: Bench, build: Build) -> OpTrace:
    """The op trace of the workload's own call, caches warm, on a model built outside inference mode (see `trace`)."""
    work, context = bench.workload, bench.workload.context
    with torch.no_grad():
        model = build(bench.loaded.config, bench.loaded.weights, max_length=bench.max_length)
        if work.kind == "generate":
            generation = GenerateRunner(model, bench)
            generation.prepare(work.tokens, GATE_PROMPT, 1)
            generation.call()
            generation.prepare(work.tokens, GATE_PROMPT, 1)
            return trace(generation.call)

        def fill() -> None:
            model.reset()
            if context:
                model.forward(bench.gate_prompt[:, :context], 0)

        def advance(position: int) -> None:
            for length in pieces(work, work.tokens):
                model.forward(bench.gate_prompt[:, position : position + length], position)
                position += length

        fill()
        advance(context)
        if work.kind == "decode":
            return trace(lambda: advance(context + 1))
        fill()
        return trace(lambda: advance(context))


def differences(worker: Worker, workload: str, pairs: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Op-trace differences of (baseline, variant) pairs."""
    subjects = worker.benches[workload].subjects
    entries: list[dict[str, Any]] = []
    for baseline, variant in pairs:
        ours, theirs = subjects[baseline].trace, subjects[variant].trace
        if ours is not None and theirs is not None:
            detail = trace_difference(ours, theirs)
            entry = {"same": detail is None, "detail": detail or "", "counts": op_counts(ours, theirs)}
            entries.append({"baseline": baseline, "variant": variant, **entry})
    return entries
