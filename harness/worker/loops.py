"""The verbs `loop`, `stretch` and `stretch_outputs`: calls that a profiler or the parent watches from outside."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, perf_counter_ns  # bound before any foreign code is imported
from typing import Any

import torch
from torch import Tensor

from llama_workbench.datasets.lengths import DECODE_ROOM

from .outputs import Drawn
from .rounds import output_places
from .runners import Runner, runner_of
from .state import Worker


def loop(worker: Worker, workload: str, variant: str, lead_seconds: float, seconds: float) -> dict[str, Any]:
    """Run a variant for a while. A profiler attaches while this waits, before the first call.

    Calls of the first `lead_seconds` do not go through `_profiled_call`: the parent counts samples below it alone.
    """
    bench = worker.benches[workload]
    tokens = bench.workload.tokens
    calls_ns: list[int] = []
    with worker.modes_of(bench):
        runner = runner_of(worker, bench, bench.subjects[variant].variant)

        def call() -> None:
            runner.prepare(tokens, bench.take(), 1)
            runner.call()

        call()
        call()
        worker.wait()
        begin = perf_counter() + lead_seconds
        while perf_counter() < begin:
            call()
        end = perf_counter() + seconds
        while perf_counter() < end or not calls_ns:
            _profiled_call(runner, tokens, bench.take(), calls_ns, worker.device.synchronise)
    return {"calls": len(calls_ns), "median_ns": statistics.median(calls_ns), "median_error_ns": median_error(calls_ns)}


def _profiled_call(
    runner: Runner, length: int, prompt: int, calls_ns: list[int], synchronise: Callable[[], None]
) -> None:
    """One call of the profiled loop; a function of its own so that a profile shows where calls begin."""
    runner.prepare(length, prompt, 1)
    start = perf_counter_ns()
    runner.call()
    synchronise()
    calls_ns.append(perf_counter_ns() - start)


def median_error(values: Sequence[int]) -> float | None:
    """Standard error of a median; None below five values.

    It is half the distance between the values sqrt(n) / 2 ranks below and above the middle. Calls that follow each
    other are not quite independent, so it is rather too small.
    """
    count = len(values)
    if count < 5:
        return None
    ordered, reach = sorted(values), math.sqrt(count) / 2
    low, high = (min(max(round((count - 1) / 2 + sign * reach), 0), count - 1) for sign in (-1, 1))
    return (ordered[high] - ordered[low]) / 2


def _stretch_of(worker: Worker, workload: str, variant: str) -> tuple[Runner, list[Tensor]]:
    """The variant's runner for all stretches, and the outputs of the last one."""
    bench = worker.benches[workload]
    key = ("stretch", workload, variant)
    return worker.once(key, lambda: (runner_of(worker, bench, bench.subjects[variant].variant), []))


def stretch(worker: Worker, workload: str, variant: str, seconds: float) -> dict[str, Any]:
    """As many calls as take about `seconds`, once the parent says to go on.

    With 0 seconds there are none: that measures what the asking costs.
    """
    bench = worker.benches[workload]
    subject = bench.subjects[variant]
    assert subject.output is not None
    with torch.inference_mode():
        runner, kept = _stretch_of(worker, workload, variant)
        count = max(round(seconds * 1e9 / subject.call_ns / runner.counts_as), seconds > 0)
        if count and (bench.once or bench.workload.kind == "generate" or runner.counts_as > 1):
            count = 1
        elif bench.workload.kind == "decode":
            count = min(count, DECODE_ROOM // 2)
        kept[:] = output_places({}, subject.output, count)
        runner.prepare(bench.workload.tokens, bench.take(count), count)
        worker.wait()
        for place in kept:
            place.copy_(runner.call())
    return {"calls": count * runner.counts_as}


def stretch_outputs(worker: Worker, workload: str, variant: str, outputs: str) -> dict[str, Any]:
    """Leave an output of the last stretch in a file for the examiner."""
    runner, kept = _stretch_of(worker, workload, variant)
    drawn = Drawn(1)
    drawn.keep(variant, runner.asked, kept)
    drawn.end_sub_round()
    return {"drawn": drawn.write(Path(outputs)), "changed": worker.changed(variant, files=False)}
