"""The verbs `gate` and `differences`: right logits, the op trace, and how long a call takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from time import perf_counter_ns, process_time_ns, thread_time_ns  # bound before any foreign code is imported
from typing import Any

import torch

from llama_workbench.datasets.workloads import pieces
from llama_workbench.variants import Build, Model
from llama_workbench.variants.outside import OutsideVariantError

from ..calls.called import GATED, PayloadError
from . import reference_logits, runners
from .channel import in_one_line
from .devices import Cuda
from .gates.logits import Case, LogitsGate, beyond, case_of, judge_component, judge_logits, judge_tokens, run_cases
from .gates.op_trace import OpTrace, facts_of, op_counts, trace, trace_difference
from .gates.small import small_gate
from .runners import GenerateRunner, RequestRunner, Runner, component_of, runner_of, takes_requests
from .state import GATE_PROMPT, Bench, Subject, Worker
from .watch import OWN_THREADS_SHARE, WAITING_SHARE, queued_ns, waits


def gate(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    """Logits gate (the small one, then this workload's own calls), op trace, and the time of a call.

    A variant that raises fails its gate; the parent sees a result, not an error. A variant also fails if it leaves
    something changed behind that others would feel.
    """
    result = _gated(worker, workload, variant)
    if change := worker.changed(variant, files=False):
        worker.benches[workload].subjects.pop(variant, None)
        return {"gate": {**result["gate"], "passed": False, "detail": change}}
    if not worker.is_outside(variant):
        worker.watch.accept()
    return result


def _gated(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    bench = worker.benches[workload]
    try:
        subject = Subject(runners.variant_of(worker, variant, bench))
        of_kind = _call_gate if bench.call else _component_gate if bench.checkpoint is None else _model_gate
        result = of_kind(worker, bench, subject, variant)
    except (OutsideVariantError, PayloadError) as error:
        return {"gate": asdict(LogitsGate(False, str(error)))}
    except Exception as error:
        return {"gate": asdict(LogitsGate(False, f"raises {in_one_line(error)}"))}
    answer: dict[str, Any] = {"gate": asdict(result)}
    if not result.passed:
        return answer
    try:
        # torch sees nothing of an engine: two of them would have the same trace. Compiled code cannot be traced.
        if bench.checkpoint is not None and subject.variant.engine is None and not subject.variant.compiled:
            subject.trace = _trace(bench, subject.variant.build)
            answer["trace"] = facts_of(subject.trace)
        answer |= calibrate(worker, bench, subject, variant)
        answer["cheap"] = subject.variant.engine is None and not subject.variant.compiled
    except Exception as error:
        return {"gate": asdict(replace(result, passed=False, detail=f"raises {in_one_line(error)}"))}
    bench.subjects[variant] = subject
    return answer


def _model_gate(worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
    """The small gate once for all workloads, then the workload's own calls, then the tokens of a generation."""
    engine, device = subject.variant.engine, worker.device.kind

    reference = partial(reference_logits.of_small_gate, worker)
    small = worker.once(("small gate", entered), lambda: small_gate(subject.variant.build, reference, engine, device))
    if not small.passed:
        return small
    case = own_case(worker, bench)
    if engine is not None and (what := beyond(case, engine)) is not None:
        why = f"cannot do this workload ({what}: {engine.cannot[what]})"
        return replace(small, passed=False, unable=True, detail=why)
    if engine is None or not engine.loads_once:
        model = runners.model_of(bench, subject.variant)
    else:
        model = runners.engine_of(worker, bench, subject.variant, entered)
        subject.variant = replace(subject.variant, build=lambda *_, **__: model)
    expected = reference_logits.of_case(worker, bench, case)
    requests = takes_requests(subject.variant)
    if requests:  # it computes everything before a step anew: two steps are enough
        case, expected = replace(case, steps=case.steps[:2]), [expected[0][:2]]
    result = judge_logits([case], run_cases(model, [case], device), expected, bench.dtype, engine=engine)
    if result.passed and bench.generated is not None:
        if wrong := _wrong_tokens(bench, model, requests=requests):
            return replace(result, passed=False, detail=f"{case.name}: {wrong}")
        result = replace(result, detail=f"{result.detail} and {bench.generated[0].numel()} greedy tokens")
    return replace(
        result,
        cases=result.cases + small.cases,
        detail=f"{small.detail}; {result.detail} on {bench.workload.geometry}" if result.passed else result.detail,
    )


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


def _component_gate(worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
    component = component_of(worker, bench, subject.variant)
    if subject.variant.component is not None:
        subject.variant = replace(subject.variant, component=lambda *_, **__: component)
    got, expected = component.read(component.run()).double(), component.expected().double()
    result = judge_component(got, expected)
    if result.passed:
        subject.expected = expected.float()  # as calls give it
    return result


def _call_gate(worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
    """Any function: the baseline's answers to a few inputs."""
    called = bench.called[entered]
    with worker.modes_of(bench):
        wrong = called.gate()
    same = "" if called.makes_inputs else ", each of them the same: what remembers answers would look fast"
    return LogitsGate(not wrong, wrong or f"{len(GATED)} inputs{same}", len(GATED))


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


CALIBRATION_NS, LONG_CALL_NS = 50_000_000, 500_000_000
"""Calls are timed for so long after a first one. Where the first takes longer than the second number, it is enough."""

MOST_CALLS = 20
OWN_THREADS_NS = 5_000_000
"""With less CPU time than this, other threads are not judged."""


def calibrate(worker: Worker, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
    """Fill in the subject's `call_ns` and `output`; the answer is what the parent must know of them."""
    with worker.modes_of(bench):
        runner = runner_of(worker, bench, subject.variant)
        length = bench.workload.tokens
        calls_ns: list[int] = []

        def take() -> None:
            runner.prepare(length, bench.take(), 1)
            calls_ns.append((worker.device.call_ns(runner) - runner.uncounted_ns) // runner.counts_as)

        clocks = ClockReadings()
        take()
        if calls_ns[0] < LONG_CALL_NS:  # the first of short calls says how long it takes to make caches, not more
            calls_ns.clear()
            clocks = ClockReadings()
            while not calls_ns or (len(calls_ns) < MOST_CALLS and perf_counter_ns() - clocks.wall_ns < CALIBRATION_NS):
                take()
        elsewhere = clocks.elsewhere(len(calls_ns), waiting=bench.call is not None)
        subject.call_ns = max(min(calls_ns), 1)
        if bench.checkpoint is not None:
            runner.prepare(length, bench.take(), 1)
            out = runner.call()
            subject.output = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        if isinstance(worker.device, Cuda) and bench.checkpoint is None:
            subject.call_ns = _call_ns_of_many(worker, bench, runner)
    alone = not isinstance(worker.device, Cuda) and worker.threads == 1
    own_threads = takes_requests(subject.variant) or (alone and elsewhere)
    if own_threads:
        worker.wall_variants.add(entered)
    return {"call_ns": subject.call_ns, "own_threads": own_threads}


class ClockReadings:
    """The clocks at the beginning of some calls. The process's is read first and last, as in `Cpu.sample`."""

    def __init__(self) -> None:
        self.wall_ns, self._waits, self._queued_ns = perf_counter_ns(), waits(), queued_ns()
        self._thread_ns = thread_time_ns()
        self._process_ns = process_time_ns()

    def elsewhere(self, calls: int, *, waiting: bool) -> bool:
        """Whether these calls computed in other threads since, so that this one's time says little; `waiting`: or
        waited for something else, all of them."""
        process_ns = process_time_ns() - self._process_ns
        thread_ns = thread_time_ns() - self._thread_ns
        if process_ns > OWN_THREADS_NS and process_ns - thread_ns > OWN_THREADS_SHARE * process_ns:
            return True
        wall_ns = perf_counter_ns() - self.wall_ns
        waited_ns = wall_ns - process_ns - (queued_ns() - self._queued_ns)
        return waiting and waits() - self._waits >= calls and waited_ns > WAITING_SHARE * wall_ns


def _call_ns_of_many(worker: Worker, bench: Bench, runner: Runner) -> float:
    """Time of one of so many calls that they fill a sample: the events around one short call cost more than it."""
    count, spent = 0, 0
    while spent < worker.device.sample_ns and count < 1 << 16:
        count = 4 * count or 1
        runner.prepare(bench.workload.tokens, bench.take(count), count)
        spent = worker.device.sample(runner, count).device_ns
    return max(spent, 1) / count
