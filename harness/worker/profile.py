"""The verb `loop`: calls of one variant for a profiler to watch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter, perf_counter_ns  # bound before any foreign code is imported
from typing import Any

import torch

from .building import runner_of
from .devices import Cuda
from .runners import Runner
from .state import Worker


def loop(worker: Worker, workload: str, variant: str, lead_seconds: float, seconds: float) -> dict[str, Any]:
    """Run a variant for a while. A profiler attaches while this waits, before the first call.

    Calls of the first `lead_seconds` do not go through `_profiled_call`: the parent counts samples below it alone.
    """
    bench = worker.benches[workload]
    tokens = bench.workload.tokens
    calls_ns: list[int] = []
    with torch.inference_mode():
        runner = runner_of(worker, bench, bench.subjects[variant].variant)
        for _ in range(2):
            runner.prepare(tokens, bench.take(), 1)
            runner.call()
        worker.wait()
        wait_for_device = worker.device.synchronise if isinstance(worker.device, Cuda) else None
        begin = perf_counter() + lead_seconds
        while perf_counter() < begin:
            runner.prepare(tokens, bench.take(), 1)
            runner.call()
        end = perf_counter() + seconds
        while perf_counter() < end or not calls_ns:
            _profiled_call(runner, tokens, bench.take(), calls_ns, wait_for_device)
    return {
        "calls": len(calls_ns),
        "median_ns": statistics.median(calls_ns),
        "median_error_ns": median_error(calls_ns),
    }


def _profiled_call(
    runner: Runner, length: int, prompt: int, calls_ns: list[int], wait_for_device: Callable[[], None] | None
) -> None:
    """One call of the profiled loop; a function of its own so that a profile shows where calls begin."""
    runner.prepare(length, prompt, 1)
    start = perf_counter_ns()
    runner.call()
    if wait_for_device is not None:
        wait_for_device()
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
