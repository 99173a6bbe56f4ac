"""The verb `loop`: calls that a profiler watches from outside."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter, perf_counter_ns  # bound before any foreign code is imported
from typing import Any

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
