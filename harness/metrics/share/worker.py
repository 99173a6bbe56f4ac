"""The verb `phases`: calls of every variant with its phases marked, beside calls of the plain one."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from timeit import timeit
from typing import Any

import torch

from llama_workbench import variants
from llama_workbench.datasets.lengths import call_lengths, warmup_length

from ...spec.comparison import EnteredName
from ...worker.channel import in_one_line
from ...worker.model_gating import own_case
from ...worker.rounds import SHORT_SAMPLE_NS, is_primed, rebuilt
from ...worker.state import Bench, Runner, Worker, WorkerError
from .marking import PhaseError
from .phases import Instrumented, check_ops, durations, instrument, ops_of_phases

ROUND_NS, MOST_CALLS = 40_000_000, 9
"""A round calls each variant this long, marked and plain together, within one and so many calls."""

TIMESTAMP_SHARE = 0.02
"""Phases are timed by thread CPU time, unless its timestamps (0.2-0.7 µs, a system call; wall time: 0.05) cost more."""

PREEMPTED_SHARE, PREEMPTED_NS, RETAKES = 0.02, 20_000, 5
"""By wall time, a call that waited longer than this for its processor is taken again, up to so many times."""


@dataclass(frozen=True)
class _Pass:
    """What all rounds of a workload have in common."""

    worker: Worker
    bench: Bench
    marked: dict[str, Instrumented]
    clock: Callable[[], int]
    retakes: int  # how often a call that was held up is taken again


def phases(worker: Worker, workload: str, variants: Sequence[str], rounds: int, wall: bool) -> dict[str, Any]:
    """Time by phase: rows [variant, round, call, tokens, plain_ns, {phase: ns}]; facts or a reason by variant.

    `wall`: something computes in other threads, so that the thread's CPU time does not tell.
    """
    bench = worker.benches[workload]
    if bench.checkpoint is None:
        raise WorkerError("a component has no phases: it is one part of a forward, timed alone")
    facts: dict[str, dict[str, Any]] = {}
    marked: dict[str, Instrumented] = {}
    for index, name in enumerate(variants):
        worker.mark(index)
        try:
            made = instrumented(worker, name)
            timestamps = _check(worker, bench, name, made)
        except Exception as error:
            reason = str(error) if isinstance(error, PhaseError) else f"raises {in_one_line(error)}"
            facts[name] = {"reason": reason, "clock": None, "timestamps": 0, "lines": {}}
            continue
        marked[name] = made
        facts[name] = {"reason": None, "timestamps": timestamps, "lines": made.lines}
    worker.mark(-1)
    cost_ns = timeit(thread_time_ns, number=1000) * 1e6  # of one timestamp
    costly = any(
        facts[name]["timestamps"] * cost_ns > TIMESTAMP_SHARE * bench.subjects[name].call_ns for name in marked
    )
    clock = perf_counter_ns if wall or costly else thread_time_ns
    for name, made in marked.items():
        made.set_clock(clock)
        facts[name]["clock"] = "thread CPU" if clock is thread_time_ns else "wall"
    retakes = RETAKES if costly and not wall and bench.workload.lengths == "repeated" else 0
    this = _Pass(worker, bench, marked, clock, retakes)
    rows = [row for round_index in range(rounds if marked else 0) for row in _round(this, round_index)]
    return {"rows": rows, "facts": facts}


def instrumented(worker: Worker, entered: str) -> Instrumented:
    """The marked twin of a variant, imported once a process. Raises PhaseError where it cannot be marked."""
    name = EnteredName(entered).original
    if name in worker.added:
        raise PhaseError(f"{name}: code from outside names no phases (comments in ours do)")
    tag = f"phases_{EnteredName(entered).identifier}"
    return worker.once(("phases", entered), lambda: instrument(variants.get(name), tag))


def _check(worker: Worker, bench: Bench, name: str, made: Instrumented) -> int:
    """Same logits to the bit as the plain variant, and every op in its phase; → timestamps in a timed call."""
    assert bench.checkpoint is not None
    case = own_case(worker, bench)
    build = bench.subjects[name].variant.build
    with torch.no_grad():
        plain, twin = (
            make(bench.checkpoint.config, bench.checkpoint.weights, max_length=bench.max_length)
            for make in (build, made.variant.build)
        )
        for model in (plain, twin):
            model.reset()
        for tokens, position in case.steps:
            ops, logits = ops_of_phases(made, partial(twin.forward, tokens, position))
            check_ops(ops)
            if not torch.equal(logits, plain.forward(tokens, position)):
                raise PhaseError(f"{name}: the marked variant gives other logits than the plain one")
    with torch.inference_mode():
        runner = bench.kind.runner(worker, bench, made.variant)
        runner.prepare(bench.workload.tokens, bench.take(), 1)
        made.start(0)
        runner.call()
    return len(made.log)


def _round(this: _Pass, round_index: int) -> list[list[Any]]:
    """All variants rebuilt, each marked and plain; calls of all of them in random order."""
    bench, marked, work = this.bench, this.marked, this.bench.workload
    rng = random.Random(f"phases {bench.seed} {work.name} {this.worker.process} {round_index}")
    slowest_ns = max(bench.subjects[name].call_ns for name in marked)
    count = round(min(max(ROUND_NS / 2 / slowest_ns, 1), MOST_CALLS))
    if slowest_ns < SHORT_SAMPLE_NS:
        count = max(count, 3)
    prime = is_primed(work, once=bench.once, slowest_ns=slowest_ns, parameter_bytes=bench.parameter_bytes)
    lengths = call_lengths(work, round_index=round_index, count=count, seed=bench.seed)
    warm_length = warmup_length(work, lengths=lengths)

    def build(side: tuple[str, bool]) -> Runner:
        name, with_marks = side
        source = marked[name] if with_marks else bench.subjects[name]
        runner = bench.kind.runner(this.worker, bench, source.variant)
        runner.prepare(warm_length, bench.take(), 1)
        runner.call()
        return runner

    def prepare(runner: Runner, length: int) -> None:
        runner.prepare(length, bench.take(1 + prime), 1 + prime)
        if prime:
            runner.call()

    rows: list[list[Any]] = []
    sides = {(name, with_marks): index for index, name in enumerate(marked) for with_marks in (False, True)}
    with rebuilt(this.worker, rng, sides, build) as built:
        gc.collect()
        for call, length in enumerate(lengths):
            spent = {}
            for _, (name, with_marks), runner in built.turns():
                ready = partial(prepare, runner, length)
                spent[name, with_marks] = _timed_call(this, runner, marked[name] if with_marks else None, ready)
            for name in marked:
                plain_ns = sum(spent[name, False].values())
                rows.append([name, round_index, call, length, plain_ns, spent[name, True]])
    return rows


def _timed_call(this: _Pass, runner: Runner, made: Instrumented | None, prepare: Callable[[], None]) -> dict[str, int]:
    """Nanoseconds by phase of one call, all under "" where it is not marked; taken again where it had to wait."""
    taken: list[tuple[int, dict[str, int]]] = []
    for _ in range(1 + this.retakes):
        prepare()
        cpu_start = thread_time_ns()
        start = this.clock()
        if made is not None:
            made.start(start)
        runner.call()
        end = this.clock()
        waited = end - start - (thread_time_ns() - cpu_start)
        taken.append((waited, {"": end - start} if made is None else durations(made.log, end)))
        if waited <= PREEMPTED_NS + PREEMPTED_SHARE * (end - start):
            break
    return min(taken, key=lambda call: call[0])[1]


VERBS = {"phases": phases}
